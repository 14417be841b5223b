/* SPDX-License-Identifier: MIT */
/* Patterns of paths; see target_match.h. glob() would follow the links of a container to the host's folders: each folder is opened as the
 * process sees it. */
#include "attach/target_match.h"

#include <dirent.h>
#include <fnmatch.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "attach/target_file.h"

typedef struct {
  pid_t pid;
  unsigned *entries_left;
  target_match_t *each;
  void *context;
  char path[PATH_MAX]; /* what was found so far, with a slash behind, or "" */
} matching_t;

static bool is_pattern(const char *text, size_t len) {
  for (size_t i = 0; i < len; i++)
    if (strchr("*?[", text[i]) != NULL) return true;
  return false;
}

static bool take_entry(matching_t *m) {
  if (*m->entries_left == 0) return false;
  --*m->entries_left;
  return true;
}

static bool match(matching_t *m, size_t used, const char *rest);

/* The entries of the folder that was found, for the first part of the rest. */
static bool match_entries(matching_t *m, size_t used, const char *rest, size_t len) {
  char part[NAME_MAX + 1];
  bool done = false;
  const struct dirent *entry;
  if (len >= sizeof part || !take_entry(m)) return false;
  snprintf(part, sizeof part, "%.*s", (int)len, rest);
  int fd = target_file_open_folder(m->pid, used > 0 ? m->path : ".");
  DIR *folder = fd >= 0 ? fdopendir(fd) : NULL;
  if (folder == NULL) {
    if (fd >= 0) close(fd);
    return false;
  }
  while (!done && take_entry(m) && (entry = readdir(folder)) != NULL) {
    size_t name_len = strlen(entry->d_name);
    if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 ||
        fnmatch(part, entry->d_name, FNM_PERIOD) != 0 || used + name_len >= sizeof m->path)
      continue;
    memcpy(m->path + used, entry->d_name, name_len + 1);
    done = match(m, used + name_len, rest + len);
    m->path[used] = '\0';
  }
  closedir(folder);
  return done;
}

/* What is behind m->path, of `used` bytes. */
static bool match(matching_t *m, size_t used, const char *rest) {
  while (*rest != '\0') {
    size_t slashes = strspn(rest, "/"), len = strcspn(rest + slashes, "/");
    if (used + slashes + len >= sizeof m->path) return false;
    memcpy(m->path + used, rest, slashes);
    m->path[used += slashes] = '\0';
    rest += slashes;
    if (is_pattern(rest, len)) return match_entries(m, used, rest, len);
    memcpy(m->path + used, rest, len);
    m->path[used += len] = '\0';
    rest += len;
  }
  return m->each(m->context, m->path);
}

/* Each opens the folder above it as long as it lasts. */
static unsigned count_patterns(const char *path) {
  unsigned count = 0;
  for (size_t len; *path != '\0'; path += len) {
    path += strspn(path, "/");
    len = strcspn(path, "/");
    count += is_pattern(path, len);
  }
  return count;
}

bool target_match(pid_t pid, const char *pattern, unsigned *entries_left, target_match_t *each,
                  void *context) {
  matching_t m = {.pid = pid, .entries_left = entries_left, .each = each, .context = context, .path = ""};
  return count_patterns(pattern) <= TARGET_MATCH_PARTS && match(&m, 0, pattern);
}
