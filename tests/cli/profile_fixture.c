/* SPDX-License-Identifier: MIT */
/* A profile out of a text, for the tests of the command: profile_fixture OUT.pb.gz <TEXT. A line is one of
 *
 *   type NAME UNIT          default NAME          program NAME
 *   period N TYPE UNIT      comment TEXT          duration NANOSECONDS
 *   sample FRAMES LABELS VALUES…
 *
 * FRAMES is name@file:line;name@file:line, outermost first; LABELS is - or key=value,key=value, a value of
 * digits being a number. Anything else is an error: a test that is written wrongly must not pass. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "format/format.h"

enum { MOST_LABELS = 8 };

static void wrong(const char *line) {
  fprintf(stderr, "profile_fixture: %s\n", line);
  exit(2);
}

static char *next_word(char **rest) {
  char *word = strsep(rest, " ");
  if (word == NULL || *word == '\0') wrong("a word is missing");
  return word;
}

static int64_t number_of(const char *text) {
  char *end;
  int64_t number = strtoll(text, &end, 10);
  if (*text == '\0' || *end != '\0') wrong(text);
  return number;
}

static uint32_t add_frame(profile_t *p, uint32_t stack, char *text) {
  char *place = text, *name = strsep(&place, "@");
  char *colon = place != NULL ? strrchr(place, ':') : NULL;
  int64_t line = 0;
  if (colon != NULL) {
    *colon = '\0';
    line = number_of(colon + 1);
  }
  uint32_t string = profile_cstring(p, name), file = place != NULL ? profile_cstring(p, place) : 0;
  uint32_t function = profile_function(p, (profile_function_t){string, string, file, line > 0 ? 1 : 0});
  return profile_stack(p, stack, profile_frame(p, function, line));
}

static uint32_t label_set(profile_t *p, char *text) {
  profile_label_t labels[MOST_LABELS];
  size_t count = 0;
  if (strcmp(text, "-") == 0) return 0;
  while (text != NULL && count < MOST_LABELS) {
    char *value = strsep(&text, ","), *key = strsep(&value, "=");
    if (value == NULL) wrong(key);
    bool is_number = strspn(value, "-0123456789") == strlen(value);
    labels[count++] = (profile_label_t){.key = profile_cstring(p, key),
                                        .str = is_number ? 0 : profile_cstring(p, value),
                                        .num = is_number ? number_of(value) : 0};
  }
  return profile_label_set(p, labels, count);
}

static void add_sample(profile_t *p, char *rest) {
  char *frames = next_word(&rest), *labels = next_word(&rest);
  int64_t values[PROFILE_MAX_TYPES] = {0};
  uint32_t stack = 0;
  while (frames != NULL) stack = add_frame(p, stack, strsep(&frames, ";"));
  for (size_t i = 0; i < p->type_count; i++) values[i] = number_of(next_word(&rest));
  if (rest != NULL) wrong("a value too many");
  profile_add(p, stack, label_set(p, labels), values);
}

static void read_line(profile_t *p, char *rest) {
  const char *what = next_word(&rest);
  if (strcmp(what, "type") == 0) {
    char *name = next_word(&rest);
    profile_add_type(p, name, next_word(&rest));
  } else if (strcmp(what, "default") == 0) {
    p->default_type = profile_find_type(p, next_word(&rest));
    if (p->default_type >= p->type_count) wrong("no such default type");
  } else if (strcmp(what, "program") == 0) {
    p->program = profile_cstring(p, rest);
  } else if (strcmp(what, "duration") == 0) {
    p->duration_nanos = number_of(next_word(&rest));
  } else if (strcmp(what, "comment") == 0) {
    profile_add_comment(p, profile_cstring(p, rest));
  } else if (strcmp(what, "period") == 0) {
    p->period = number_of(next_word(&rest));
    p->period_type.type = profile_cstring(p, next_word(&rest));
    p->period_type.unit = profile_cstring(p, next_word(&rest));
  } else if (strcmp(what, "sample") == 0) {
    add_sample(p, rest);
  } else {
    wrong(what);
  }
}

int main(int argc, char **argv) {
  profile_t *p = profile_new();
  char *line = NULL;
  size_t room = 0;
  if (argc != 2 || p == NULL) wrong("usage: profile_fixture OUT <TEXT");
  for (ssize_t len; (len = getline(&line, &room, stdin)) > 0;) {
    if (line[len - 1] == '\n') line[len - 1] = '\0';
    if (line[0] != '\0') read_line(p, line);
  }
  int fd = open(argv[1], O_WRONLY | O_CREAT | O_TRUNC, 0644);
  sink_t *sink = fd >= 0 ? sink_to_fd(fd) : NULL;
  if (sink == NULL || !profile_ok(p)) wrong("cannot write");
  pprof_write(p, sink);
  if (!sink_close(sink, NULL) || close(fd) != 0) wrong("cannot write");
  free(line);
  profile_free(p);
  return 0;
}
