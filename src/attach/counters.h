/* SPDX-License-Identifier: MIT */
/* The processor's own counters for processes, where it has any and they may be used: many virtual machines have none. */
#ifndef LUAPULSE_ATTACH_COUNTERS_H
#define LUAPULSE_ATTACH_COUNTERS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

typedef enum {
  COUNTER_CYCLES,
  COUNTER_INSTRUCTIONS,
  COUNTER_BRANCHES,
  COUNTER_BRANCH_MISSES,
  COUNTERS
} counter_t;

typedef struct {
  int *events; /* COUNTERS for each thread */
  size_t count, room;
} counters_t;

/* Counts from now on in all threads of the process, and those they start. False when the processor has no counters, or memory or
 * descriptors are out; what was opened before stays. */
bool counters_open(counters_t *counters, pid_t pid);
void counters_close(counters_t *counters);
/* So far, in user code; scaled up where the processor had not enough counters all the time. */
void counters_read(const counters_t *counters, double values[COUNTERS]);

#endif
