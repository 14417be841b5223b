/* SPDX-License-Identifier: MIT */
/* Costs as callgrind counts them: by line for a function itself, and by (line, called function) for what it
 * calls.
 *
 * A viewer computes what a function costs with all it calls as the sum of both. For that sum to be the
 * function's true cum under any recursion, each sample counts one call out of each function on its stack: the
 * innermost one. A function calling itself makes no call. */
#ifndef LUAPULSE_FORMAT_CALLGRIND_CALLS_H
#define LUAPULSE_FORMAT_CALLGRIND_CALLS_H

#include "profile/profile.h"
#include "profile/summary.h"

typedef struct {
  uint32_t name, file; /* strings */
  int64_t start_line;
  uint32_t first_row; /* its lines, chained by next_row; UINT32_MAX ends a chain */
} calls_function_t;

typedef struct {
  uint32_t caller; /* row: a line of the calling function */
  uint32_t callee; /* function */
  uint32_t next;   /* call from the same row, or UINT32_MAX */
} calls_edge_t;

typedef struct {
  const profile_t *profile;
  summary_t *lines;            /* rows are lines */
  calls_function_t *functions; /* same name and file: callgrind knows no more */
  size_t function_count;
  uint32_t *function_of_row, *next_row, *first_edge; /* by row */
  calls_edge_t *edges;
  size_t edge_count;
  size_t columns;                  /* one for each sample type, then the number of samples */
  int64_t *row_costs, *edge_costs; /* [position * columns + column] */
} calls_t;

/* NULL when memory is out. */
calls_t *calls_new(const profile_t *p);
void calls_free(calls_t *calls);

#endif
