/* SPDX-License-Identifier: MIT */
/* Profiles for the tests to work on. */
#ifndef LUAPULSE_TESTS_SAMPLE_PROFILE_H
#define LUAPULSE_TESTS_SAMPLE_PROFILE_H

#include <stdlib.h>
#include <string.h>

#include "format/format.h"
#include "format/read.h"
#include "profile/profile.h"

static inline uint32_t sample_frame(profile_t *p, const char *name, const char *file, int64_t start,
                                    int64_t line) {
  uint32_t string = profile_cstring(p, name);
  profile_function_t function = {string, string, profile_cstring(p, file), start};
  return profile_frame(p, profile_function(p, function), line);
}

/* A stack of functions called by single letters: "abc" is c called by b called by a; file x.lua, line 1. */
static inline uint32_t sample_stack(profile_t *p, const char *letters) {
  uint32_t stack = 0;
  for (; *letters != '\0'; letters++) {
    char name[2] = {*letters, '\0'};
    stack = profile_stack(p, stack, sample_frame(p, name, "x.lua", 1, 1));
  }
  return stack;
}

static inline void sample_add(profile_t *p, const char *letters, int64_t samples, int64_t cpu) {
  profile_add(p, sample_stack(p, letters), 0, (int64_t[]){samples, cpu});
}

static inline profile_t *sample_types(void) {
  profile_t *p = profile_new();
  if (p == NULL) return NULL;
  profile_add_type(p, "samples", "count");
  p->default_type = profile_add_type(p, "cpu", "nanoseconds");
  return p;
}

/* Everything a profile can hold, a little of each. May come back failed, or NULL, when memory fails. */
static inline profile_t *sample_full(void) {
  profile_t *p = sample_types();
  if (p == NULL) return NULL;
  p->period_type = p->types[1];
  p->period = 10000000;
  p->time_nanos = 1700000000000000000;
  p->duration_nanos = 5000000000;
  p->program = profile_cstring(p, "app.lua");
  p->losses[LOSS_TRUNCATED] = 3;
  p->losses[LOSS_RATE_LIMITED] = 7;
  profile_add_comment(p, profile_cstring(p, "a comment"));
  uint32_t main_chunk = profile_stack(p, 0, sample_frame(p, "main chunk", "app.lua", 0, 12));
  uint32_t parse = profile_stack(p, main_chunk, sample_frame(p, "parse", "lib/parse.lua", 3, 8));
  uint32_t gsub = profile_stack(p, parse, sample_frame(p, "string.gsub", "", 0, 0));
  profile_label_t labels[] = {{profile_cstring(p, "request"), profile_cstring(p, "GET /"), 0, 0},
                              {profile_cstring(p, "size"), 0, 4096, profile_cstring(p, "bytes")}};
  uint32_t set = profile_label_set(p, labels, 2);
  profile_add(p, main_chunk, 0, (int64_t[]){1, 10000000});
  profile_add(p, parse, 0, (int64_t[]){2, 20000000});
  profile_add(p, gsub, set, (int64_t[]){4, 40000000});
  profile_add(p, gsub, 0, (int64_t[]){1, 10000000});
  sample_add(p, "rrrq", 3, 30000000);
  sample_add(p, "fgfgh", 5, 50000000);
  profile_add_event(p, (profile_event_t){1000, 2500, 0, 1});
  profile_add_event(p, (profile_event_t){1500, 100, 0, 2});
  return p;
}

static inline bool text_is(text_t text, const char *bytes, size_t len) {
  return text.len == len && memcmp(text.data, bytes, len) == 0;
}

/* Writes and reads back. */
static inline profile_t *sample_round_trip(const profile_t *p, void (*write)(const profile_t *, sink_t *),
                                           failure_t *failure) {
  sink_t *sink = sink_to_memory();
  size_t len = 0;
  if (sink == NULL) return NULL;
  write(p, sink);
  const char *data = sink_memory(sink, &len);
  profile_t *copy = data != NULL ? profile_read(data, len, READ_LIMIT_BYTES, failure) : NULL;
  sink_close(sink, NULL);
  return copy;
}

/* What a writer writes, with a NUL after it, to be freed. */
static inline char *sample_written(const profile_t *p, void (*write)(const profile_t *, sink_t *),
                                   size_t *len) {
  sink_t *sink = sink_to_memory();
  write(p, sink);
  sink_write(sink, "", 1);
  const char *data = sink_memory(sink, len);
  char *copy = data != NULL ? malloc(*len) : NULL;
  if (copy != NULL) memcpy(copy, data, *len);
  *len -= 1;
  sink_close(sink, NULL);
  return copy;
}

/* True when the writer reports no failure; for fail_each_allocation(). */
typedef struct {
  const profile_t *profile;
  void (*write)(const profile_t *, sink_t *);
} sample_writing_t;

static inline bool sample_write_succeeds(void *context) {
  const sample_writing_t *writing = context;
  sink_t *sink = sink_to_memory();
  if (sink == NULL) return false;
  writing->write(writing->profile, sink);
  return sink_close(sink, NULL);
}

#endif
