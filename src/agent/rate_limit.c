/* SPDX-License-Identifier: MIT */
/* Limiting the rate of samples; see rate_limit.h. */
#include "agent/rate_limit.h"

enum { WINDOW_EVENTS = 64 };

/* The rate of the last window decides how much of the next is kept: a little less than allowed, for the bucket's sake. */
static void look_back(rate_limit_t *limit, double rate, uint64_t now) {
  if (++limit->seen < WINDOW_EVENTS) return;
  double seconds = (double)(now - limit->window) * 1e-9;
  double kept = 0.9 * rate * seconds / limit->seen;
  limit->keep = kept < 1 ? kept : 1;
  if (limit->keep < 1e-6) limit->keep = 1e-6; /* the clock stood still: weights stay finite */
  limit->seen = 0;
  limit->window = now;
}

static bool take_token(rate_limit_t *limit, double rate, uint64_t now) {
  double burst = rate / 4 > 1 ? rate / 4 : 1; /* a quarter of a second's worth */
  limit->tokens += (double)(now - limit->tokens_at) * 1e-9 * rate;
  limit->tokens_at = now;
  if (limit->tokens > burst) limit->tokens = burst;
  if (limit->tokens < 1) return false;
  limit->tokens -= 1;
  return true;
}

void rate_limit_start(rate_limit_t *limit, uint64_t now) {
  *limit = (rate_limit_t){.keep = 1, .window = now, .tokens = 1, .tokens_at = now};
}

double rate_limit_weigh(rate_limit_t *limit, double rate, uint64_t now, random_t *random) {
  if (rate == 0) return 1;
  double keep = limit->keep;
  look_back(limit, rate, now);
  if (keep < 1 && random_unit(random) > keep) return 0;
  if (!take_token(limit, rate, now)) {
    limit->owed += 1 / keep;
    return 0;
  }
  double weight = 1 / keep + limit->owed;
  limit->owed = 0;
  return weight;
}
