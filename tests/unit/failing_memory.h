/* SPDX-License-Identifier: MIT */
/* Memory that runs out: makes the n-th allocation of the profiler fail, and all after it when wanted. */
#ifndef LUAPULSE_TESTS_FAILING_MEMORY_H
#define LUAPULSE_TESTS_FAILING_MEMORY_H

#include <stdbool.h>
#include <stdlib.h>

#include "profile/mem.h"

static struct {
  size_t asked;   /* allocations so far */
  size_t fail_at; /* the first one to fail, from 1; 0 for none */
  bool for_good;  /* the ones after it fail too */
} failing_memory;

static void *failing_realloc(void *old, size_t size) {
  failing_memory.asked++;
  bool fails = failing_memory.fail_at != 0 &&
               (failing_memory.for_good ? failing_memory.asked >= failing_memory.fail_at
                                        : failing_memory.asked == failing_memory.fail_at);
  return fails ? NULL : realloc(old, size);
}

static inline void failing_memory_start(size_t fail_at, bool for_good) {
  failing_memory.asked = 0;
  failing_memory.fail_at = fail_at;
  failing_memory.for_good = for_good;
  mem_realloc = failing_realloc;
}

/* True when an allocation did fail: when it did not, the work needs fewer and the test has seen all. */
static inline bool failing_memory_stop(void) {
  mem_realloc = realloc;
  return failing_memory.asked >= failing_memory.fail_at;
}

/* Runs `work` with its 1st, 2nd, 3rd ... allocation failing until it needs no more. `work` returns true on
 * success; it must never succeed when an allocation it needed failed for good. */
static inline void fail_each_allocation(bool (*work)(void *context), void *context) {
  for (int for_good = 0; for_good < 2; for_good++)
    for (size_t n = 1;; n++) {
      failing_memory_start(n, for_good != 0);
      bool done = work(context);
      bool failed = failing_memory_stop();
      if (!failed) {
        assert_true(done);
        break;
      }
      assert_false(done);
    }
}

#endif
