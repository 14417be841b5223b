/* SPDX-License-Identifier: MIT */
/* What a traced call path is told of: the sample types of a profile taken by tracing, in this order.
 *
 * Exclusive time stands on the leaf, so that sums over stacks are inclusive times in any tool. The inclusive types repeat those
 * sums as values of their own; a path on which its function stands a second time has none, so that their sum over a function's
 * paths counts recursion once. Corrected times are less what the profiler itself took; raw ones are as measured. */
#ifndef LUAPULSE_PROFILE_TRACE_VALUES_H
#define LUAPULSE_PROFILE_TRACE_VALUES_H

#include "profile/profile.h"

enum {
  TRACE_CALLS,
  TRACE_EXCLUSIVE,
  TRACE_INCLUSIVE,
  TRACE_EXCLUSIVE_RAW,
  TRACE_INCLUSIVE_RAW,
  TRACE_MIN, /* inclusive time of the shortest call, 0: none has returned */
  TRACE_MAX,
  TRACE_VALUES
};

extern const char *const trace_value_names[TRACE_VALUES];
const char *trace_value_unit(int value);

/* Of two shortest, of two longest calls; 0 is none. */
static inline int64_t trace_least(int64_t a, int64_t b) {
  return a == 0 || (b != 0 && b < a) ? b : a;
}

static inline int64_t trace_greatest(int64_t a, int64_t b) {
  return a == 0 || (b != 0 && b > a) ? b : a;
}

/* True when the profile was taken by tracing. */
bool trace_is(const profile_t *p);
/* Computes what the live tables leave out: the inclusive values, and a comment that tells of negative corrected times, if there
 * are any. Does nothing to other profiles. When memory is out the profile fails. */
void trace_finish(profile_t *p);

#endif
