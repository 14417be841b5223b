/* SPDX-License-Identifier: MIT */
/* The cheapest monotonic clock of the machine, in nanoseconds: the processor's time-stamp counter where it is invariant, the
 * kernel trusts it and it was calibrated against CLOCK_MONOTONIC; else that clock by the vDSO. Its zero is arbitrary. */
#ifndef LUAPULSE_AGENT_STOPWATCH_H
#define LUAPULSE_AGENT_STOPWATCH_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/time.h"

typedef struct {
  uint64_t base;   /* ticks at zero */
  uint64_t factor; /* nanoseconds a tick, less than one, times 2^64; 0: the counter is not used */
} stopwatch_t;

extern stopwatch_t stopwatch;

/* Chooses and calibrates, the first time in a few milliseconds. Ordinary context. */
void stopwatch_prepare(void);
/* "tsc" or "vdso". */
const char *stopwatch_source(void);

#if defined __x86_64__
static inline uint64_t stopwatch_ticks(void) {
  return __builtin_ia32_rdtsc();
}
#else
static inline uint64_t stopwatch_ticks(void) {
  return 0;
}
#endif

/* The product of ticks since the base, not of ticks since the last reading: what is rounded off does not add up. Its upper half, which
 * the processor has in a register of its own. */
static inline uint64_t stopwatch_now_by_ticks(void) {
  return (uint64_t)(((unsigned __int128)(stopwatch_ticks() - stopwatch.base) * stopwatch.factor) >> 64);
}

static inline bool stopwatch_has_ticks(void) {
  return stopwatch.factor != 0;
}

static inline uint64_t stopwatch_now(void) {
  return stopwatch_has_ticks() ? stopwatch_now_by_ticks() : time_monotonic();
}

#endif
