/* SPDX-License-Identifier: MIT */
/* What a tick stands for: the CPU time of its thread, in nanoseconds.
 *
 * Two sources may sample a thread's CPU time (tick_event.h); each tells of its own part. A sample of kernel time stands for the time
 * since the timer's last tick, whatever that one saw; a sample of user time for all the time since the last such sample, less what
 * samples of kernel time have taken: so the weights add up to the thread's time, and each part gets its own. Async-signal-safe. */
#ifndef LUAPULSE_AGENT_TICK_WEIGHT_H
#define LUAPULSE_AGENT_TICK_WEIGHT_H

#include <stdint.h>

typedef enum { NO_TICK, USER_TICK, KERNEL_TICK, ANY_TICK } tick_kind_t; /* what a tick is of */

typedef struct {
  uint64_t last_sample; /* thread CPU time */
  uint64_t last_timer;  /* … of the timer's last tick but for the pending one */
  uint64_t this_timer;  /* … of its last tick */
  uint64_t debt;        /* time that samples of kernel time have taken in advance of samples of user time */
} tick_weight_t;

void tick_weight_begin(tick_weight_t *weight, uint64_t now);
void tick_weight_timer_ticked(tick_weight_t *weight, uint64_t now);
/* Of a sample taken now. Nothing from before `not_before` counts. */
uint64_t tick_weigh(tick_weight_t *weight, tick_kind_t kind, uint64_t now, uint64_t not_before);

#endif
