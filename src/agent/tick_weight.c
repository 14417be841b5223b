/* SPDX-License-Identifier: MIT */
/* What a tick stands for; see tick_weight.h. */
#include "agent/tick_weight.h"

void tick_weight_begin(tick_weight_t *weight, uint64_t now) {
  *weight = (tick_weight_t){.last_sample = now, .last_timer = now, .this_timer = now};
}

void tick_weight_timer_ticked(tick_weight_t *weight, uint64_t now) {
  weight->last_timer = weight->this_timer;
  weight->this_timer = now;
}

static uint64_t time_since(uint64_t last, uint64_t now, uint64_t not_before) {
  uint64_t since = last > not_before ? last : not_before;
  return now > since ? now - since : 0;
}

uint64_t tick_weigh(tick_weight_t *weight, tick_kind_t kind, uint64_t now, uint64_t not_before) {
  if (kind == KERNEL_TICK) {
    uint64_t passed = time_since(weight->last_timer, now, not_before);
    weight->debt += passed;
    return passed;
  }
  uint64_t passed = time_since(weight->last_sample, now, not_before);
  uint64_t paid = weight->debt < passed ? weight->debt : passed;
  weight->debt -= paid;
  weight->last_sample = now;
  return passed - paid;
}
