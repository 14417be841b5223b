/* SPDX-License-Identifier: MIT */
/* Finding Lua in nginx's configuration; see inline_source.h. What the process says of itself may be made up: paths only lead to files in
 * which a directive must stand where the chunk says. */
#include "attach/inline_source.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "attach/process.h"
#include "attach/process_stat.h"
#include "attach/target_file.h"
#include "attach/target_match.h"
#include "name/source.h"
#include "profile/mem.h"

enum {
  DEEP = 3, /* includes of includes */
  MOST_FILES = 256,
  MOST_BYTES = 32 << 20, /* of all of them */
  MOST_ENTRIES = 4096,   /* of folders */
  MOST_NAME = 256
};

typedef struct {
  const inline_source_t *source;
  pid_t pid; /* whose paths they are */
  /* of the main file, with a slash behind, or "": what is included is below it unless it begins with a slash */
  char folder[PATH_MAX];
  unsigned files_left, entries_left; /* to be looked into, and of folders, for patterns */
  size_t bytes_left;                 /* of files */
  unsigned deep;                     /* the file that is looked into is included by so many */
  char *path;                        /* what was found */
  size_t size;
} hunt_t;

/* -- one chunk ------------------------------------------------------------------------------------------------------- */

bool inline_source_parse(inline_source_t *source, const char *name, size_t len) {
  static const char by_lua[] = "_by_lua(";
  char text[sizeof source->directive + sizeof source->file + 24];
  if (len < 2 || name[0] != '=' || len >= sizeof text) return false;
  snprintf(text, sizeof text, "%.*s", (int)len - 1, name + 1);
  char *brace = strstr(text, by_lua), *colon = strrchr(text, ':');
  unsigned line = 0;
  char end = '\0';
  if (brace == NULL || colon == NULL || colon < brace || sscanf(colon, ":%u%c", &line, &end) != 2 ||
      end != ')')
    return false;
  brace += sizeof by_lua - 2;
  *source = (inline_source_t){.line = line};
  if (brace - text >= (ptrdiff_t)sizeof source->directive || colon - brace > (ptrdiff_t)sizeof source->file)
    return false;
  memcpy(source->directive, text, (size_t)(brace - text));
  memcpy(source->file, brace + 1, (size_t)(colon - brace - 1));
  return line > 0 && source->file[0] != '\0';
}

/* The directive in a line of the file, not behind a comment's sign; NULL: it is not there. */
static const char *find_directive(const char *line, size_t len, const char *directive) {
  const char *at = memmem(line, len, directive, strlen(directive));
  return at != NULL && memchr(line, '#', (size_t)(at - line)) == NULL ? at + strlen(directive) : NULL;
}

const char *inline_source_text(const inline_source_t *source, const char *text, size_t len) {
  static const char block[] = "_block";
  const char *end = text + len, *line = text;
  for (uint32_t i = 1; i < source->line; i++) {
    line = memchr(line, '\n', (size_t)(end - line));
    if (line == NULL) return NULL;
    line++;
  }
  const char *newline = memchr(line, '\n', (size_t)(end - line));
  if (newline != NULL) end = newline;
  const char *at = find_directive(line, (size_t)(end - line), source->directive);
  if (at == NULL || (size_t)(end - at) < sizeof block || memcmp(at, block, sizeof block - 1) != 0)
    return NULL;
  at += sizeof block - 1;
  while (at < end && (*at == ' ' || *at == '\t')) at++;
  return at < end && *at == '{' ? at + 1 : NULL;
}

/* -- files ------------------------------------------------------------------------------------------------------------ */

static bool look_into(void *hunt, const char *path);

/* "include conf.d/NAME.conf;" within the text. */
static bool look_at_includes(hunt_t *h, const char *text, size_t len) {
  static const char word[] = "include";
  const char *end = text + len;
  for (const char *at = text; (at = memmem(at, (size_t)(end - at), word, sizeof word - 1)) != NULL;) {
    char pattern[PATH_MAX];
    bool whole = at == text || strchr(" \t\n;{}", at[-1]) != NULL;
    at += sizeof word - 1;
    size_t blanks = 0, used = 0;
    while (at + blanks < end && (at[blanks] == ' ' || at[blanks] == '\t')) blanks++;
    while (at + blanks + used < end && used < MOST_NAME && strchr(" \t\n;#'\"", at[blanks + used]) == NULL)
      used++;
    if (!whole || blanks == 0 || used == 0 || used == MOST_NAME) continue;
    int wanted = snprintf(pattern, sizeof pattern, "%s%.*s", at[blanks] == '/' ? "" : h->folder, (int)used,
                          at + blanks);
    if (wanted < (int)sizeof pattern && target_match(h->pid, pattern, &h->entries_left, look_into, h))
      return true;
  }
  return false;
}

/* Whether the path ends as the chunk has it: below the folder of the main file, or with its beginning left out. */
static bool is_file(const char *path, const char *file) {
  static const char dots[] = "...";
  bool cut = strncmp(file, dots, sizeof dots - 1) == 0;
  if (cut) file += sizeof dots - 1;
  size_t len = strlen(path), end = strlen(file);
  return end > 0 && len >= end && strcmp(path + len - end, file) == 0 &&
         (cut || len == end || file[0] == '/' || path[len - end - 1] == '/');
}

/* True when it, or what it includes, is the file. */
static bool look_into(void *hunt, const char *path) {
  hunt_t *h = hunt;
  size_t len;
  if (h->files_left == 0) return false;
  h->files_left--;
  char *text = source_read(target_file_open(h->pid, path), &len);
  if (text == NULL) return false;
  if (len > h->bytes_left) h->files_left = 0; /* no configuration is so large */
  h->bytes_left -= len < h->bytes_left ? len : h->bytes_left;
  bool found = is_file(path, h->source->file) && inline_source_text(h->source, text, len) != NULL;
  if (found) snprintf(h->path, h->size, "%s", path);
  if (!found && h->deep < DEEP) {
    h->deep++;
    found = look_at_includes(h, text, len);
    h->deep--;
  }
  mem_free(text);
  return found;
}

static bool look_into_main(hunt_t *h, const char *path) {
  const char *slash = strrchr(path, '/');
  snprintf(h->folder, sizeof h->folder, "%.*s", slash != NULL ? (int)(slash + 1 - path) : 0, path);
  return look_into(h, path);
}

/* -- the master -------------------------------------------------------------------------------------------------------- */

/* The word behind an option: "-c nginx.conf". It calls itself by one line of text, the arguments within. */
static bool option_of(const char *command, const char *option, char *value, size_t size) {
  const char *at = strstr(command, option);
  size_t len = 0;
  if (at == NULL) return false;
  at += strlen(option);
  len = strcspn(at, " ");
  if (len == 0 || len >= size) return false;
  snprintf(value, size, "%.*s", (int)len, at);
  return true;
}

/* As the process `pid` was told to. */
static bool look_where_told(hunt_t *h, pid_t pid) {
  process_t process;
  failure_t ignored; /* it has ended */
  char file[256], prefix[256], path[sizeof file + sizeof prefix];
  if (!process_look(&process, pid, &ignored)) return false;
  if (!option_of(process.command, " -c ", file, sizeof file)) strcpy(file, "conf/nginx.conf");
  bool prefixed = file[0] != '/' && option_of(process.command, " -p ", prefix, sizeof prefix);
  snprintf(path, sizeof path, "%s%s%s", prefixed ? prefix : "", prefixed ? "/" : "", file);
  h->pid = pid;
  return look_into_main(h, path);
}

/* The parent, if it is that of a worker: of a container's first process it is somebody on the host. */
static bool look_where_parent_was_told(hunt_t *h, pid_t pid) {
  process_stat_t stat;
  return process_stat(&stat, pid) && target_file_same_root(pid, stat.parent) &&
         look_where_told(h, stat.parent);
}

bool inline_source_find(const inline_source_t *source, pid_t pid, pid_t *whose, char *path, size_t size) {
  static const char *const usual[] = {"/etc/nginx/nginx.conf", "/usr/local/openresty/nginx/conf/nginx.conf",
                                      "/usr/local/nginx/conf/nginx.conf", "/etc/openresty/nginx.conf"};
  hunt_t h = {.source = source,
              .files_left = MOST_FILES,
              .entries_left = MOST_ENTRIES,
              .bytes_left = MOST_BYTES,
              .path = path,
              .size = size};
  h.pid = pid;
  bool found = look_where_parent_was_told(&h, pid) || look_where_told(&h, pid);
  for (size_t i = 0; !found && i < sizeof usual / sizeof usual[0]; i++) found = look_into_main(&h, usual[i]);
  *whose = h.pid;
  return found;
}
