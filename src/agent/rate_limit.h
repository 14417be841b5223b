/* SPDX-License-Identifier: MIT */
/* At most so many samples a second, without bending shares.
 *
 * A bucket of tokens alone would keep the samples that come when time has passed, so that what is kept follows time, not
 * instructions. Therefore each event is kept with a probability chosen from the rate of the events before it, and weighs
 * one over that probability (Horvitz and Thompson): unbiased however the probability moves, because it never depends on
 * the event it decides. The bucket stands behind, for bursts that the estimate did not see coming. */
#ifndef LUAPULSE_AGENT_RATE_LIMIT_H
#define LUAPULSE_AGENT_RATE_LIMIT_H

#include <stdbool.h>
#include <stdint.h>

#include "profile/random.h"

typedef struct {
  double keep;     /* the probability in force */
  uint32_t seen;   /* events since the window began */
  uint64_t window; /* monotonic, ns */
  double tokens;
  uint64_t tokens_at; /* monotonic, ns */
  double owed;        /* weight of events the bucket refused: the next one kept carries it */
} rate_limit_t;

void rate_limit_start(rate_limit_t *limit, uint64_t now);
/* How many events this one stands for, 0 when it is not kept. `rate` is per second, 0 for no limit. */
double rate_limit_weigh(rate_limit_t *limit, double rate, uint64_t now, random_t *random);

#endif
