/* SPDX-License-Identifier: MIT */
/* Reading /proc/PID/maps; see maps.h. */
#include "attach/maps.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "profile/mem.h"

enum { READ_BYTES = 65536 };

/* The file as a text with a NUL at its end; NULL with errno. */
static char *read_text(const char *path) {
  char *text = NULL;
  size_t room = 0, used = 0;
  int fd = open(path, O_RDONLY | O_CLOEXEC), error = 0;
  if (fd < 0) return NULL;
  for (ssize_t got = 1; got > 0;) {
    if (!mem_reserve((void **)&text, &room, used + READ_BYTES + 1, 1)) {
      error = ENOMEM;
      break;
    }
    got = read(fd, text + used, READ_BYTES);
    if (got < 0) error = errno;
    if (got > 0) used += (size_t)got;
  }
  close(fd);
  if (error != 0) {
    mem_free(text);
    errno = error;
    return NULL;
  }
  text[used] = '\0';
  char *fitting = mem_realloc(text, used + 1); /* who has many targets keeps many of them */
  return fitting != NULL ? fitting : text;
}

/* "start-end rwxp offset device inode   path", of which the text is cut at the path's end. */
static bool parse_line(char *line, map_t *map) {
  char *at = line;
  map->start = strtoull(at, &at, 16);
  if (*at++ != '-') return false;
  map->end = strtoull(at, &at, 16);
  if (*at++ != ' ' || strlen(at) < 5 || map->end <= map->start) return false;
  map->readable = at[0] == 'r';
  map->writable = at[1] == 'w';
  map->executable = at[2] == 'x';
  map->offset = strtoull(at + 4, &at, 16);
  at += strspn(at, " ");
  map->device = (uint32_t)strtoul(at, &at, 16) << 20;
  if (*at == ':') map->device |= (uint32_t)strtoul(at + 1, &at, 16);
  at += strcspn(at, " ");
  map->inode = strtoull(at, &at, 10);
  map->path = at + strspn(at, " ");
  return true;
}

bool maps_read(maps_t *maps, pid_t pid, failure_t *failure) {
  char path[64];
  size_t room = 0;
  *maps = (maps_t){NULL, 0, NULL};
  snprintf(path, sizeof path, "/proc/%d/maps", (int)pid);
  maps->text = read_text(path);
  if (maps->text == NULL) return failure_set(failure, "%s: cannot be read: %s", path, strerror(errno));
  for (char *line = maps->text; *line != '\0' && maps->count < MAPS_MAX;) {
    char *end = line + strcspn(line, "\n"), *next = *end != '\0' ? end + 1 : end;
    *end = '\0';
    if (!mem_reserve((void **)&maps->maps, &room, maps->count + 1, sizeof *maps->maps)) {
      maps_free(maps);
      return failure_set(failure, "out of memory");
    }
    if (parse_line(line, &maps->maps[maps->count])) maps->count++;
    line = next;
  }
  return true;
}

void maps_free(maps_t *maps) {
  mem_free(maps->maps);
  mem_free(maps->text);
  *maps = (maps_t){NULL, 0, NULL};
}

const map_t *maps_find(const maps_t *maps, uint64_t address) {
  size_t low = 0, high = maps->count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (address >= maps->maps[middle].end)
      low = middle + 1;
    else
      high = middle;
  }
  return low < maps->count && address >= maps->maps[low].start ? &maps->maps[low] : NULL;
}

bool maps_same_file(const map_t *a, const map_t *b) {
  return a->inode != 0 && a->inode == b->inode && strcmp(a->path, b->path) == 0;
}

const map_t *maps_image(const maps_t *maps, const map_t *map) {
  while (map > maps->maps && maps_same_file(map - 1, map) && map[-1].offset <= map->offset) map--;
  return map;
}

walk_range_t *maps_images(const maps_t *maps, uint32_t *count) {
  *count = 0;
  if (maps->count == 0) return NULL;
  walk_range_t *ranges = mem_alloc(maps->count * sizeof *ranges);
  if (ranges == NULL) return NULL;
  for (size_t i = 0; i < maps->count;) {
    size_t next = i + 1;
    bool code = maps->maps[i].executable;
    while (next < maps->count && maps_same_file(&maps->maps[next], &maps->maps[i]))
      code |= maps->maps[next++].executable;
    /* files that are mapped as data may hold a Lua's memory: an allocator can be anybody's */
    if (code && maps->maps[i].inode != 0)
      ranges[(*count)++] = (walk_range_t){maps->maps[i].start, maps->maps[next - 1].end};
    i = next;
  }
  return ranges;
}
