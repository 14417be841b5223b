/* SPDX-License-Identifier: MIT */
/* The values of traced profiles; see trace_values.h. */
#include "profile/trace_values.h"

#include <stdio.h>
#include <string.h>

#include "profile/mem.h"
#include "profile/tree.h"

const char *const trace_value_names[TRACE_VALUES] = {
    "calls", "exclusive", "inclusive", "exclusive_raw", "inclusive_raw", "min", "max"};

const char *trace_value_unit(int value) {
  return value == TRACE_CALLS ? "count" : "nanoseconds";
}

bool trace_is(const profile_t *p) {
  if (p->type_count < TRACE_VALUES) return false;
  for (int i = 0; i < TRACE_VALUES; i++)
    if (strcmp(profile_text(p, p->types[i].type).data, trace_value_names[i]) != 0) return false;
  return true;
}

/* True when the function at the leaf of the stack stands on it a second time. */
static bool recurs(const profile_t *p, uint32_t stack) {
  uint32_t function = p->frames[p->stacks[stack].frame].function;
  for (uint32_t above = p->stacks[stack].parent; above != 0; above = p->stacks[above].parent)
    if (p->frames[p->stacks[above].frame].function == function) return true;
  return false;
}

static void tell_negative(profile_t *p, uint64_t paths, int64_t sum) {
  char text[160];
  if (paths == 0) return;
  int len = snprintf(
      text, sizeof text,
      "%llu paths have a negative exclusive time after correction, %lld ns in all: they are shorter than "
      "what measuring them costs",
      (unsigned long long)paths, (long long)sum);
  profile_add_comment(p, profile_string(p, text, (size_t)len));
}

/* Every path gets a sample: those that only called others have none of their own yet. */
static bool add_missing(profile_t *p) {
  bool *has = mem_alloc(p->stack_count);
  static const int64_t nothing[PROFILE_MAX_TYPES];
  if (has == NULL) return false;
  for (size_t i = 0; i < p->sample_count; i++) has[p->samples[i].stack] = true;
  for (size_t i = 1; i < p->stack_count; i++)
    if (!has[i]) profile_add(p, (uint32_t)i, 0, nothing);
  mem_free(has);
  return profile_ok(p);
}

typedef struct {
  int64_t corrected, raw;
} sum_t;

/* By stack: what it and all that was called from it took. */
static void sum_up(const profile_t *p, sum_t *sums) {
  for (size_t i = 0; i < p->sample_count; i++) {
    sum_t *sum = &sums[p->samples[i].stack];
    sum->corrected = tree_sum(sum->corrected, p->samples[i].values[TRACE_EXCLUSIVE]);
    sum->raw = tree_sum(sum->raw, p->samples[i].values[TRACE_EXCLUSIVE_RAW]);
  }
  for (size_t i = p->stack_count; i-- > 1;) { /* children come after their parents */
    sum_t *parent = &sums[p->stacks[i].parent];
    parent->corrected = tree_sum(parent->corrected, sums[i].corrected);
    parent->raw = tree_sum(parent->raw, sums[i].raw);
  }
}

void trace_finish(profile_t *p) {
  if (!trace_is(p) || !profile_ok(p)) return;
  sum_t *sums = add_missing(p) ? mem_alloc(p->stack_count * sizeof *sums) : NULL;
  if (sums == NULL) {
    p->failed = true;
    return;
  }
  sum_up(p, sums);
  uint64_t negative = 0;
  int64_t negative_sum = 0;
  for (size_t i = 0; i < p->sample_count; i++) {
    profile_sample_t *sample = &p->samples[i];
    sum_t *sum = &sums[sample->stack];
    bool counts = sample->stack != 0 && !recurs(p, sample->stack);
    sample->values[TRACE_INCLUSIVE] = counts ? sum->corrected : 0;
    sample->values[TRACE_INCLUSIVE_RAW] = counts ? sum->raw : 0;
    *sum = (sum_t){0}; /* a stack with several label sets has one sum: the first of its samples takes it */
    if (sample->values[TRACE_EXCLUSIVE] >= 0) continue;
    negative++;
    negative_sum = tree_sum(negative_sum, sample->values[TRACE_EXCLUSIVE]);
  }
  mem_free(sums);
  tell_negative(p, negative, negative_sum);
}
