/* SPDX-License-Identifier: MIT */
/* The process-wide memory budget; see budget.h. */
#include "agent/budget.h"

#include <stdatomic.h>

static _Atomic size_t taken;

bool budget_take(size_t bytes, size_t limit) {
  size_t now = atomic_load_explicit(&taken, memory_order_relaxed);
  do {
    if (bytes > limit || now > limit - bytes) return false;
  } while (!atomic_compare_exchange_weak_explicit(&taken, &now, now + bytes, memory_order_relaxed,
                                                  memory_order_relaxed));
  return true;
}

void budget_give_back(size_t bytes) {
  atomic_fetch_sub_explicit(&taken, bytes, memory_order_relaxed);
}
