/* SPDX-License-Identifier: MIT */
/* What the commands make of their arguments: numbers, sizes, sample types; see cli.h. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "cli/cli.h"
#include "profile/heap_types.h"
#include "profile/where.h"

enum { LEAST_WIDTH = 80 }; /* numbers take half of it: of names nothing would be left */

size_t cli_terminal_width(void) {
  struct winsize size;
  if (!isatty(STDOUT_FILENO)) return 0;
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 100;
  return size.ws_col < LEAST_WIDTH ? LEAST_WIDTH : size.ws_col;
}

bool cli_parse_count(const char *text, size_t *count) {
  char *end;
  errno = 0;
  unsigned long value = strtoul(text, &end, 10);
  *count = value;
  return errno == 0 && *text >= '0' && *text <= '9' && *end == '\0';
}

bool cli_parse_number(const char *text, unsigned least, unsigned most, unsigned *value) {
  char *end;
  errno = 0;
  unsigned long number = strtoul(text, &end, 10);
  if (text[0] < '0' || text[0] > '9' || *end != '\0' || errno != 0 || number < least || number > most)
    return false;
  *value = (unsigned)number;
  return true;
}

bool cli_parse_word(const char *text, const char *words, unsigned *place) {
  for (*place = 0; *words != '\0'; words += strlen(words) + 1, ++*place)
    if (strcmp(words, text) == 0) return true;
  return false;
}

bool cli_parse_optional_word(const char *text, const char *words, unsigned *place) {
  return text == NULL || cli_parse_word(text, words, place);
}

bool cli_parse_size(const char *text, int64_t *bytes) {
  static const char suffixes[] = "kMG";
  char *end;
  errno = 0;
  long long value = strtoll(text, &end, 10);
  const char *suffix = *end != '\0' ? strchr(suffixes, *end) : NULL;
  int shift = suffix != NULL ? 10 * (int)(suffix - suffixes + 1) : 0;
  if (suffix != NULL) end++;
  if (errno != 0 || *text < '0' || *text > '9' || *end != '\0' || value > INT64_MAX >> shift) return false;
  *bytes = value << shift;
  return true;
}

bool cli_choose_type(const char *command, const char *path, profile_t *profile, const char *name,
                     size_t *type) {
  char names[HEAP_NAMES_BYTES];
  uint32_t found = name != NULL ? heap_find_type(profile, name) : (uint32_t)profile->default_type;
  *type = found;
  if (!profile_ok(profile)) {
    cli_failed(command, "%s: out of memory", path);
    return false;
  }
  if (found != PROFILE_NONE) return true;
  heap_type_names(profile, names);
  cli_failed(command, "%s: has no sample type '%s'; it has: %s", path, name, names);
  return false;
}

bool cli_add_where(cli_where_t *where, const char *text) {
  const char *sign = strchr(text, '=');
  if (sign == NULL || sign == text || where->count == CLI_WHERE_MAX) return false;
  where->labels[where->count++] = text;
  return true;
}

bool cli_keep_where(const char *command, const char *path, profile_t *profile, const cli_where_t *where) {
  for (size_t i = 0; i < where->count; i++) {
    char values[512];
    const char *text = where->labels[i];
    size_t key = strcspn(text, "=");
    bool any = where_values(profile, text, key, values, sizeof values) > 0;
    if (where_keep(profile, text, key, text + key + 1) > 0) continue;
    cli_failed(command, "%s: no sample has %s; %.*s is %s", path, text, (int)key, text,
               any ? values : "no label of any");
    return false;
  }
  return true;
}
