/* SPDX-License-Identifier: MIT */
/* How often a block is a sample, and what it counts for then.
 *
 * Gaps between samples are geometric in bytes, with mean m: each byte is chosen with probability 1/m, and a block is a sample
 * when one of its bytes is. So a block of s bytes is one with probability p = 1 - (1 - 1/m)^s, and counts for 1/p
 * blocks and s/p bytes: on average exactly what it is. Blocks of many gaps have p near 1 and count for themselves. The counts are
 * whole numbers, rounded up or down at random so that the average stays. */
#ifndef LUAPULSE_AGENT_HEAP_WEIGHT_H
#define LUAPULSE_AGENT_HEAP_WEIGHT_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>

#include "profile/random.h"

typedef struct {
  size_t mean;  /* bytes between samples; 1: every block, 0: none */
  double decay; /* log(1 - 1/mean) */
} heap_rate_t;

static inline heap_rate_t heap_rate(size_t mean) {
  return (heap_rate_t){mean, mean > 1 ? log1p(-1.0 / (double)mean) : 0};
}

/* Bytes before that which is chosen next. */
static inline int64_t heap_gap(const heap_rate_t *rate, random_t *random) {
  if (rate->mean == 0) return INT64_MAX;
  return rate->mean == 1 ? 0 : (int64_t)random_exponential(random, (double)rate->mean) - 1;
}

static inline uint64_t heap_round(double value, random_t *random) {
  return (uint64_t)(value + 1.0 - random_unit(random)); /* random_unit is in (0, 1] */
}

static inline void heap_weigh(const heap_rate_t *rate, size_t size, random_t *random, uint32_t *objects,
                              uint64_t *bytes) {
  double chance = rate->mean > 1 ? -expm1((double)size * rate->decay) : 1.0;
  *objects = 1;
  *bytes = size;
  if (chance >= 1.0) return;
  double count = 1.0 / chance;
  *objects = count < 4e9 ? (uint32_t)heap_round(count, random) : UINT32_MAX;
  *bytes = heap_round(count * (double)size, random);
}

#endif
