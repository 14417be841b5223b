/* SPDX-License-Identifier: MIT */
/* Clocks in nanoseconds. clock_gettime is async-signal-safe. */
#ifndef LUAPULSE_AGENT_TIME_H
#define LUAPULSE_AGENT_TIME_H

#include <stdint.h>
#include <sys/types.h>
#include <time.h>

static inline uint64_t time_read(clockid_t clock) {
  struct timespec now;
  if (clock_gettime(clock, &now) != 0) return 0;
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static inline uint64_t time_monotonic(void) {
  return time_read(CLOCK_MONOTONIC);
}

static inline uint64_t time_thread_cpu(void) {
  return time_read(CLOCK_THREAD_CPUTIME_ID);
}

/* The CPU clock of a thread of this process: how the kernel numbers them (CPUCLOCK_PERTHREAD, CPUCLOCK_SCHED). */
static inline clockid_t time_thread_clock(pid_t tid) {
  return (clockid_t)((~(unsigned)tid << 3) | 6u);
}

static inline uint64_t time_unix(void) {
  return time_read(CLOCK_REALTIME);
}

#endif
