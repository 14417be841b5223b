/* SPDX-License-Identifier: MIT */
/* Names from source files; see source.h. Paths come from strangers; see regular_file.h. */
#include "name/source.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "name/definition.h"
#include "name/regular_file.h"
#include "profile/mem.h"

enum {
  MAX_NAME = 256,
  MAX_MARK = 24,       /* " [reload 4294967295]" */
  MAX_PLACE_FILE = 240 /* of a longer path the agent's place_name() shows the end */
};

/* -- places ---------------------------------------------------------------------------------------------- */

static bool is_reload_mark(const char *text, size_t len) {
  static const char mark[] = " [reload ";
  size_t digits = sizeof mark - 1;
  if (len <= digits + 1 || len > MAX_MARK || memcmp(text, mark, digits) != 0 || text[len - 1] != ']')
    return false;
  for (size_t i = digits; i < len - 1; i++)
    if (text[i] < '0' || text[i] > '9') return false;
  return true;
}

/* True when the name is the last `shown` bytes of the file, the line, and perhaps a mark: *mark is where. */
static bool is_place(text_t name, text_t file, size_t shown, int64_t line, size_t *mark) {
  char digits[24];
  int len = snprintf(digits, sizeof digits, ":%lld", (long long)line);
  if (len < 0 || name.len < shown + (size_t)len) return false;
  *mark = shown + (size_t)len;
  return memcmp(name.data, file.data + (file.len - shown), shown) == 0 &&
         memcmp(name.data + shown, digits, (size_t)len) == 0 &&
         (*mark == name.len || is_reload_mark(name.data + *mark, name.len - *mark));
}

/* True when a name is wanted for the function; *mark is where in its name "[reload N]" begins. */
static bool is_nameless(const profile_t *p, const profile_function_t *function, size_t *mark) {
  text_t name = profile_text(p, function->name), file = profile_text(p, function->file);
  if (function->start_line <= 0 || function->start_line > UINT32_MAX) return false;
  if (file.len == 0 || memchr(file.data, '\0', file.len) != NULL) return false;
  return is_place(name, file, file.len, function->start_line, mark) ||
         (file.len > MAX_PLACE_FILE && is_place(name, file, MAX_PLACE_FILE, function->start_line, mark));
}

/* -- files ----------------------------------------------------------------------------------------------- */

static size_t read_all(int fd, char *into, size_t size) {
  size_t used = 0;
  while (used < size) {
    ssize_t got = read(fd, into + used, size - used);
    if (got <= 0) break;
    used += (size_t)got;
  }
  return used;
}

char *source_read(int fd, size_t *len) {
  struct stat info;
  char *text = NULL;
  if (fd < 0) return NULL;
  if (fstat(fd, &info) == 0 && info.st_size > 0 && (uint64_t)info.st_size <= SOURCE_MAX_BYTES)
    text = mem_alloc((size_t)info.st_size);
  if (text != NULL) *len = read_all(fd, text, (size_t)info.st_size);
  close(fd);
  return text;
}

/* -- naming ---------------------------------------------------------------------------------------------- */

static void name_function(profile_t *p, profile_function_t *function, const char *text, size_t len) {
  char name[MAX_NAME + MAX_MARK];
  size_t mark;
  if (!is_nameless(p, function, &mark)) return;
  size_t used = definition_name(text, len, (uint32_t)function->start_line, name, MAX_NAME);
  if (used == 0) return;
  text_t old = profile_text(p, function->name);
  memcpy(name + used, old.data + mark, old.len - mark);
  uint32_t string = profile_string(p, name, used + old.len - mark);
  if (string == PROFILE_NONE)
    p->failed = false; /* it is whole without that string, and was whole before */
  else
    function->name = string;
}

/* Functions of one file are a list: `first` by the file's string, `next` by the function; 0 ends it, a
 * function is its index plus 1. */
static void name_listed(profile_t *p, const uint32_t *first, const uint32_t *next, size_t file_count) {
  for (size_t file = 0; file < file_count; file++) {
    size_t len;
    char *text = first[file] != 0 ? source_read(regular_file_open(p->strings[file].data), &len) : NULL;
    if (text == NULL) continue;
    for (uint32_t i = first[file]; i != 0; i = next[i - 1]) name_function(p, &p->functions[i - 1], text, len);
    mem_free(text);
  }
}

void source_name_functions(profile_t *p) {
  size_t file_count = p->string_count, mark; /* naming adds strings: these are no files */
  if (!profile_ok(p) || p->function_count == 0) return;
  uint32_t *first = mem_alloc(file_count * sizeof *first);
  uint32_t *next = mem_alloc(p->function_count * sizeof *next);
  if (first != NULL && next != NULL) {
    for (size_t i = 0; i < p->function_count; i++) {
      const profile_function_t *function = &p->functions[i];
      if (!is_nameless(p, function, &mark)) continue;
      next[i] = first[function->file];
      first[function->file] = (uint32_t)i + 1;
    }
    name_listed(p, first, next, file_count);
  }
  mem_free(first);
  mem_free(next);
}
