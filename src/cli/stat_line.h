/* SPDX-License-Identifier: MIT */
/* What luapulse stat prints: its lines, their head, and the summary at the end. */
#ifndef LUAPULSE_CLI_STAT_LINE_H
#define LUAPULSE_CLI_STAT_LINE_H

#include "attach/counters.h"
#include "attach/recorder.h"
#include "attach/usage.h"
#include "attach/vitals.h"

/* What can be told at all. */
typedef struct {
  bool compiled, gc; /* some target has LuaJIT; or the collector of PUC Lua is told … */
  bool gc_at_least;  /* … which is not all of it, see collector.h */
  bool kernel;       /* the engine tells */
  bool counters;     /* the processor has them */
} stat_told_t;

/* An interval, or all of them. */
typedef struct {
  double seconds;
  double process_seconds; /* of all processes together */
  uint64_t samples, doing[DOING_KINDS];
  usage_t usage;
  double counters[COUNTERS];
  vitals_t vitals; /* at its end, of all processes */
} stat_interval_t;

/* Of the vitals of all lines. */
typedef struct {
  uint64_t lines;
  uint64_t heap_first, heap_most;
  uint64_t gc[GC_STATES]; /* lines that found the collector at it */
  uint64_t counts, coroutines_first, coroutines_last;
  int64_t held_most; /* ns */
} stat_course_t;

/* False, with errno, when standard output cannot be written. */
bool stat_print_head(const stat_told_t *told);
bool stat_print_line(const stat_told_t *told, const stat_interval_t *interval);
bool stat_print_summary(const stat_told_t *told, const stat_interval_t *all, const stat_course_t *course,
                        const recorder_counts_t *counts);

#endif
