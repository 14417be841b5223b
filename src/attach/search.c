/* SPDX-License-Identifier: MIT */
/* Looking through all processes; see search.h. */
#include "attach/search.h"

#include <string.h>
#include <unistd.h>

#include "attach/children.h"
#include "attach/clock.h"
#include "attach/ident.h"
#include "attach/maps.h"
#include "attach/process_stat.h"
#include "attach/target_file.h"
#include "name/regular_file.h"
#include "profile/mem.h"

enum {
  FILES = 1 << 14,         /* places for files, a power of two; three quarters are used */
  CHUNK = 1 << 20,         /* of a file, read at once … */
  OVERLAP = 64,            /* … so that no mark is cut */
  MOST_CHUNKS = 512,       /* of a file */
  FIRST_NS = 20 * 1000000, /* between looks into a process: at first … */
  DOUBLINGS = 9,           /* … and at last: ten seconds */
  TOLD_FIRST = 8, /* where a Lua is, whoever is told stops it for a moment: after five seconds at first … */
  TOLD_DOUBLINGS = 12,   /* … and at last a minute and a half */
  LOOK_NS = 20 * 1000000 /* for all that is due, but at the first look */
};

typedef struct {
  uint64_t inode, place; /* of its path, mixed; inode 0: this place is free */
  uint32_t device;
  bool has_lua;
} known_file_t;

typedef struct {
  pid_t pid;
  uint64_t space;
  unsigned looks, told;
  int64_t due, told_due; /* CLOCK_MONOTONIC, ns: to look at it, to tell of it again */
} seen_t;

struct search {
  children_t children;
  seen_t *seen;
  size_t count, room;
  size_t next; /* to look at: who waits longest */
  known_file_t *files;
  size_t file_count;
  char *chunk;
  bool began, failed;
};

search_t *search_new(void) {
  search_t *s = mem_alloc(sizeof *s);
  if (s == NULL) return NULL;
  s->files = mem_alloc(FILES * sizeof *s->files);
  s->chunk = mem_alloc(CHUNK);
  if (s->files != NULL && s->chunk != NULL) return s;
  search_free(s);
  return NULL;
}

void search_free(search_t *s) {
  if (s == NULL) return;
  children_free(&s->children);
  mem_free(s->seen);
  mem_free(s->files);
  mem_free(s->chunk);
  mem_free(s);
}

/* -- files -------------------------------------------------------------------------------------------------------- */

/* False also when it cannot be read: *read tells. */
static bool file_has_lua(search_t *s, const map_t *map, pid_t pid, bool *read) {
  idents_t idents = {.count = 0};
  off_t at = 0;
  int fd = target_file_open_mapped(map, pid);
  *read = fd >= 0 || fd == REGULAR_FILE_OTHER;
  if (fd < 0) return false;
  for (int i = 0; i < MOST_CHUNKS && idents.count == 0; i++) {
    ssize_t got = pread(fd, s->chunk, CHUNK, at);
    if (got <= 0) break;
    ident_search(&idents, s->chunk, (size_t)got, (uint64_t)at, "");
    if (got < CHUNK) break;
    at += got - OVERLAP;
  }
  close(fd);
  return idents.count > 0;
}

static uint64_t mix(const char *path) {
  uint64_t mixed = 0xcbf29ce484222325u;
  for (; *path != '\0'; path++) mixed = (mixed ^ (unsigned char)*path) * 0x100000001b3u;
  return mixed;
}

static known_file_t *file_entry(search_t *s, const map_t *map, uint64_t place) {
  uint64_t mixed = (map->inode ^ place ^ (uint64_t)map->device << 40) * 0x9e3779b97f4a7c15u;
  for (size_t at = (size_t)(mixed >> 32);; at++) {
    known_file_t *f = &s->files[at & (FILES - 1)];
    if (f->inode == 0 || (f->inode == map->inode && f->place == place && f->device == map->device)) return f;
  }
}

static bool has_lua(search_t *s, const map_t *map, pid_t pid) {
  uint64_t place = mix(map->path);
  const known_file_t *known = file_entry(s, map, place);
  if (known->inode != 0) return known->has_lua;
  bool read, has = file_has_lua(s, map, pid, &read);
  if (!read) return false; /* somebody else may be permitted to */
  if (s->file_count >= (size_t)FILES / 4 * 3) {
    memset(s->files, 0, FILES * sizeof *s->files);
    s->file_count = 0;
  }
  *file_entry(s, map, place) = (known_file_t){map->inode, place, map->device, has};
  s->file_count++;
  return has;
}

/* -- processes ------------------------------------------------------------------------------------------------------ */

static bool maps_lua(search_t *s, pid_t pid) {
  maps_t maps;
  failure_t ignored; /* it has ended, or is somebody else's */
  bool found = false;
  if (!maps_read(&maps, pid, &ignored)) return false;
  for (size_t i = 0; i < maps.count && !found; i++) {
    const map_t *map = &maps.maps[i];
    found = map->executable && map->inode != 0 && has_lua(s, map, pid);
  }
  maps_free(&maps);
  return found;
}

static void on_new(void *context, pid_t pid, pid_t parent) {
  search_t *s = context;
  (void)parent;
  if (pid == getpid()) return;
  s->failed |= !mem_reserve((void **)&s->seen, &s->room, s->count + 1, sizeof *s->seen);
  if (!s->failed) s->seen[s->count++] = (seen_t){.pid = pid};
}

/* False when it has ended. */
static bool look_at(search_t *s, seen_t *p, int64_t now, search_each_t *each, void *context) {
  process_stat_t stat;
  if (!process_stat(&stat, p->pid)) return false;
  if (stat.space != p->space) *p = (seen_t){.pid = p->pid, .space = stat.space}; /* another program */
  p->due = now + ((int64_t)FIRST_NS << (p->looks < DOUBLINGS ? p->looks : DOUBLINGS));
  p->looks++;
  if (!maps_lua(s, p->pid) || now < p->told_due) return true;
  unsigned pause = p->told + TOLD_FIRST;
  p->told_due = now + ((int64_t)FIRST_NS << (pause < TOLD_DOUBLINGS ? pause : TOLD_DOUBLINGS));
  p->told++;
  each(context, p->pid);
  return true;
}

void search_look(search_t *s, search_each_t *each, void *context) {
  int64_t begin = clock_now();
  children_look(&s->children, on_new, s);
  if (s->next >= s->count) s->next = 0;
  for (size_t left = s->count; left > 0 && s->count > 0; left--) {
    int64_t now = clock_now();
    if (s->began && now - begin > LOOK_NS) return;
    if (s->next >= s->count) s->next = 0;
    seen_t *p = &s->seen[s->next];
    if (now < p->due || look_at(s, p, now, each, context))
      s->next++;
    else
      *p = s->seen[--s->count];
  }
  s->began = true;
}
