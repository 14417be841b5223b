/* SPDX-License-Identifier: MIT */
/* The clock that gaps and holds are measured by. */
#ifndef LUAPULSE_ATTACH_CLOCK_H
#define LUAPULSE_ATTACH_CLOCK_H

#include <stdint.h>
#include <time.h>

/* CLOCK_MONOTONIC, ns */
static inline int64_t clock_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static inline struct timespec clock_timespec(int64_t ns) {
  return (struct timespec){ns / 1000000000, (long)(ns % 1000000000)};
}

#endif
