/* SPDX-License-Identifier: MIT */
/* Random gaps. One generator per VM, thread timer and engine; not for secrets. Async-signal-safe: arithmetic
 * only. */
#ifndef LUAPULSE_PROFILE_RANDOM_H
#define LUAPULSE_PROFILE_RANDOM_H

#include <math.h>
#include <stdint.h>

typedef struct {
  uint64_t state;
} random_t;

/* splitmix64: any seed, also 0 and 1, gives a good sequence */
static inline uint64_t random_next(random_t *random) {
  uint64_t z = (random->state += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

/* Uniform in (0, 1]: never 0, so that its logarithm is finite. */
static inline double random_unit(random_t *random) {
  return ((double)(random_next(random) >> 11) + 1.0) * 0x1p-53;
}

/* The exponential gap on whole numbers 1, 2, … (the geometric distribution), with exactly that mean:
 * memoryless, so no periodic program can fall in step with the sampler. */
static inline uint64_t random_exponential(random_t *random, double mean) {
  double rate = mean > 1.0 ? -log1p(-1.0 / mean) : 1e9;
  double gap = ceil(-log(random_unit(random)) / rate);
  if (gap < 1.0) return 1;
  return gap > 1e18 ? (uint64_t)1e18 : (uint64_t)gap;
}

/* Uniform in [mean / 2, 3 mean / 2): a jittered period. */
static inline uint64_t random_jitter(random_t *random, uint64_t mean) {
  return mean / 2 + (uint64_t)(random_unit(random) * (double)mean);
}

#endif
