/* SPDX-License-Identifier: MIT */
/* Where the value of one sample type went: flat and cumulative, by function or by line, with callers and
 * callees.
 *
 * Flat is what samples were worth whose innermost frame is the row; cum what all samples were worth in which
 * the row appears, a sample counting once however often it recurs. The same rules as `go tool pprof`'s. */
#ifndef LUAPULSE_PROFILE_SUMMARY_H
#define LUAPULSE_PROFILE_SUMMARY_H

#include "profile/profile.h"
#include "profile/tree.h"

typedef enum {
  SUMMARY_FUNCTIONS, /* a row is a name, a file and a line of definition */
  SUMMARY_LINES,     /* a row is a name, a file and a line of execution */
} summary_by_t;

typedef struct {
  uint32_t name, file; /* strings of the profile */
  int64_t line;        /* 0 when unknown */
  int64_t flat, cum;   /* in the unit of the sample type */
} summary_row_t;

typedef struct {
  const profile_t *profile; /* the caller's; must outlive the summary */
  size_t type;
  summary_row_t *rows; /* in order of appearance; the key of a tree node is its row */
  size_t row_count;
  uint32_t *row_of_frame;
  tree_t *tree;           /* callers to callees, merged by row */
  int64_t *self, *totals; /* by node of the tree */
  int64_t total;          /* of all samples; percentages are of this */
  bool has_negative;      /* then total is the sum of absolute values: the profile is a difference */
} summary_t;

/* NULL when memory is out. */
summary_t *summary_new(const profile_t *p, size_t type, summary_by_t by);
void summary_free(summary_t *summary);

/* Rows, heaviest first: by |flat|, then |cum|, then by name, file and line. Rows without any value are left
 * out. The array is the caller's to mem_free(); NULL when memory is out. */
uint32_t *summary_ranking(const summary_t *summary, size_t *count);

/* By row: its place in the order of names, files and lines, from 0. The array is the caller's to mem_free();
 * NULL when memory is out. */
uint32_t *summary_name_ranks(const summary_t *summary);

/* A caller row, a callee row, and what the samples were worth in which one called the other, counted once a
 * sample. A row calling itself has no edge. */
typedef struct {
  uint32_t caller, callee;
  int64_t value;
} summary_edge_t;

/* All edges with a value, heaviest first. The array is the caller's to mem_free(); NULL when memory is out.
 */
summary_edge_t *summary_edges(const summary_t *summary, size_t *count);

#endif
