/* SPDX-License-Identifier: MIT */
/* What ticks stand for adds up to the time of the thread, and each kind gets its own. */
#include "agent/tick_weight.h"
#include "profile/random.h"
#include "unit.h"

static void ticks_of_one_kind_add_up(void **state) {
  (void)state;
  tick_weight_t weight;
  random_t random = {.state = 3};
  uint64_t now = 1000, sum = 0;
  tick_weight_begin(&weight, now);
  for (int i = 0; i < 1000; i++) {
    now += random_next(&random) % 10000000;
    tick_weight_timer_ticked(&weight, now);
    sum += tick_weigh(&weight, ANY_TICK, now, 0);
  }
  assert_int_equal(sum, now - 1000);
}

/* A thread that is in the kernel for three parts of four: the event ticks in user time, the timer in all of it. */
static void kernel_time_gets_its_own(void **state) {
  (void)state;
  enum { MS = 1000000, ROUNDS = 20000 };
  tick_weight_t weight;
  random_t random = {.state = 5};
  uint64_t now = 0, next_timer = 10 * MS, kernel = 0, user = 0;
  tick_weight_begin(&weight, now);
  for (int i = 0; i < ROUNDS; i++) {
    now += MS; /* 1 ms of user time, at the end of which the event ticks */
    user += tick_weigh(&weight, USER_TICK, now, 0);
    uint64_t in_kernel = 3 * MS;
    if (next_timer < now) { /* it ticked in user time: not its part */
      tick_weight_timer_ticked(&weight, now);
      next_timer = now + 5 * MS + random_next(&random) % (8 * MS);
    }
    now += in_kernel;
    if (next_timer < now) {
      tick_weight_timer_ticked(&weight, now);
      kernel += tick_weigh(&weight, KERNEL_TICK, now, 0);
      next_timer = now + 5 * MS + random_next(&random) % (8 * MS);
    }
  }
  double share = (double)kernel / (double)(kernel + user);
  uint64_t accounted = kernel + user - weight.debt; /* which the next samples of user time will pay */
  assert_true(accounted <= now && accounted + 20 * MS > now);
  assert_true(share > 0.70 && share < 0.80);
}

static void nothing_before_counts(void **state) {
  (void)state;
  tick_weight_t weight;
  tick_weight_begin(&weight, 100);
  tick_weight_timer_ticked(&weight, 1000);
  assert_int_equal(tick_weigh(&weight, ANY_TICK, 1000, 900), 100);
  tick_weight_timer_ticked(&weight, 2000);
  assert_int_equal(tick_weigh(&weight, KERNEL_TICK, 2000, 1800), 200);
  assert_int_equal(tick_weigh(&weight, ANY_TICK, 2000, 3000), 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(ticks_of_one_kind_add_up),
    cmocka_unit_test(kernel_time_gets_its_own),
    cmocka_unit_test(nothing_before_counts),
};

UNIT_MAIN(tests)
