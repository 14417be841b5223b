/* SPDX-License-Identifier: MIT */
/* What a profile is: sample types, strings, functions, frames, stacks, samples, labels (pprof's model).
 *
 * Mental model. Everything is interned into arrays and named by its index: a string, a function, a frame (a
 * function at a line), a stack (a node of one tree: its parent stack plus one frame; node 0 is the empty
 * stack), a label set. A sample is (stack, label set) with one value per sample type; adding the same pair
 * again adds the values.
 *
 * Memory failures are sticky: a profile that ran out of memory answers PROFILE_NONE / ignores additions from
 * then on and profile_ok() says so. Callers check once, at the end.
 *
 * Pure C: no Lua, no operating system. One thread at a time. */
#ifndef LUAPULSE_PROFILE_PROFILE_H
#define LUAPULSE_PROFILE_PROFILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "profile/loss.h"

#define PROFILE_NONE UINT32_MAX
#define PROFILE_MAX_TYPES 16

/* Bytes with a length: names come from Lua and may hold NUL, newline or invalid UTF-8. */
typedef struct {
  const char *data; /* followed by a NUL that is not part of the text */
  size_t len;
} text_t;

typedef struct {
  uint32_t type; /* string: "cpu" */
  uint32_t unit; /* string: "nanoseconds" */
} profile_type_t;

typedef struct {
  uint32_t name;        /* string shown to people */
  uint32_t system_name; /* string, the raw name; often the same */
  uint32_t file;        /* string; 0 (empty) when unknown */
  int64_t start_line;   /* line of definition, 0 when unknown */
} profile_function_t;

typedef struct {
  uint32_t function;
  int64_t line; /* line of execution, 0 when unknown */
} profile_frame_t;

typedef struct {
  uint32_t parent; /* stack of the caller */
  uint32_t frame;
} profile_stack_t;

typedef struct {
  uint32_t key;      /* string */
  uint32_t str;      /* string, or 0 when the label is a number */
  int64_t num;       /* the number when str is 0 */
  uint32_t num_unit; /* string, 0 when none */
} profile_label_t;

typedef struct {
  uint32_t first; /* index into profile_t.labels */
  uint32_t count; /* set 0 is the empty set */
} profile_label_set_t;

typedef struct {
  uint32_t stack;
  uint32_t labels; /* label set */
  int64_t values[PROFILE_MAX_TYPES];
} profile_sample_t;

/* A call that ended, or was under way at the end. */
typedef struct {
  int64_t start, duration; /* nanoseconds; start since an arbitrary moment */
  uint32_t function;
  uint32_t track; /* of its coroutine, from 1: the one that ran at start */
} profile_event_t;

struct intern; /* hash index over one of the arrays */

typedef struct profile {
  text_t *strings; /* [0] is "" */
  profile_function_t *functions;
  profile_frame_t *frames;
  profile_stack_t *stacks; /* [0] is the empty stack; a parent always precedes its children */
  profile_label_t *labels;
  profile_label_set_t *label_sets;
  profile_sample_t *samples;
  uint32_t *comments; /* strings */
  size_t string_count, function_count, frame_count, stack_count, label_count, label_set_count, sample_count,
      comment_count;

  profile_type_t types[PROFILE_MAX_TYPES];
  size_t type_count;
  size_t default_type;        /* index into types */
  profile_type_t period_type; /* what `period` counts */
  int64_t period;
  int64_t time_nanos;     /* start, Unix time */
  int64_t duration_nanos; /* wall-clock length */
  uint32_t program;       /* string: what was profiled (the file name of the pprof mapping), 0 when unknown */

  uint64_t losses[LOSS_COUNT];

  /* the timeline of a traced profile: calls in the order in which they ended */
  profile_event_t *events;
  size_t event_count;
  uint64_t event_total; /* calls that ended: the newest were kept */

  bool frozen; /* nothing new is taken in, see profile_bytes() */

  /* private */
  bool failed;
  size_t string_bytes;
  bool traced; /* some values are the least or the greatest of all, not sums; see trace_values.h … */
  size_t traced_types; /* … as told when there were so many types */
  size_t string_room, function_room, frame_room, stack_room, label_room, label_set_room, sample_room,
      comment_room, event_room;
  struct intern *string_index, *function_index, *frame_index, *stack_index, *label_set_index, *sample_index;
} profile_t;

profile_t *profile_new(void); /* NULL when memory is out */
void profile_free(profile_t *p);
bool profile_ok(const profile_t *p); /* false once memory ran out */

/* What it takes in memory, about. Who has to keep to a bound sets p->frozen when it is met: from then on only what is there is found
 * and counted, and anything new is PROFILE_NONE. */
size_t profile_bytes(const profile_t *p);

uint32_t profile_string(profile_t *p, const char *data, size_t len);
uint32_t profile_cstring(profile_t *p, const char *text);
text_t profile_text(const profile_t *p, uint32_t string);

/* Index of the new type; PROFILE_MAX_TYPES at most, then the profile fails. */
size_t profile_add_type(profile_t *p, const char *type, const char *unit);
void profile_add_comment(profile_t *p, uint32_t string);
/* Index of the type with that name, or PROFILE_NONE. */
uint32_t profile_find_type(const profile_t *p, const char *type);

uint32_t profile_function(profile_t *p, profile_function_t function);
uint32_t profile_frame(profile_t *p, uint32_t function, int64_t line);
uint32_t profile_stack(profile_t *p, uint32_t parent, uint32_t frame);
/* The labels are sorted by key on the way in, so that sets compare. */
uint32_t profile_label_set(profile_t *p, const profile_label_t *labels, size_t count);
/* Adds values[0 .. type_count) to the sample (stack, labels), creating it when new. False when it could not be. */
bool profile_add(profile_t *p, uint32_t stack, uint32_t labels, const int64_t *values);

/* Takes all samples and stacks out. What they are made of stays, and keeps its numbers: strings, functions, frames, label sets. */
void profile_drop_samples(profile_t *p);

/* Keeps the first `count` samples alone, which may have been put into another order. */
void profile_keep_samples(profile_t *p, size_t count);

void profile_add_event(profile_t *p, profile_event_t event);

/* Adds `sign` times every sample, loss and duration of `from` to `into`. Types must be the same (by name and
 * unit) or `into` empty of types: false otherwise. Sign -1 gives a difference; samples that become all zero
 * stay, with zeros: writers skip them. */
bool profile_merge(profile_t *into, const profile_t *from, int sign);

/* True when every value is zero. */
bool profile_sample_is_zero(const profile_t *p, const profile_sample_t *sample);

#endif
