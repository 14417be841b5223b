/* SPDX-License-Identifier: MIT */
/* The rate limit: shares and totals stay true, the rate is kept. Time is simulated. */
#include <math.h>

#include "agent/rate_limit.h"
#include "unit.h"

/* A program of two kinds of work, alternating every `phase` events; an event of the first kind takes 50 µs, one of
 * the second 350 µs: equal in events, 1 to 7 in time. */
typedef struct {
  double weight[2];  /* by kind */
  double squares[2]; /* of the weights, for the variance */
  int events[2], kept;
  double seconds;
} outcome_t;

static outcome_t run(double rate, int phase, int events, uint64_t seed) {
  outcome_t outcome = {0};
  random_t random = {.state = seed};
  rate_limit_t limit;
  uint64_t now = 1000000000;
  rate_limit_start(&limit, now);
  for (int i = 0; i < events; i++) {
    int kind = (i / phase) % 2;
    now += kind == 0 ? 50000 : 350000;
    double weight = rate_limit_weigh(&limit, rate, now, &random);
    outcome.events[kind]++;
    outcome.weight[kind] += weight;
    outcome.squares[kind] += weight * weight;
    if (weight > 0) outcome.kept++;
  }
  outcome.seconds = (double)(now - 1000000000) * 1e-9;
  return outcome;
}

static void weights_are_true_for_either_kind_of_work(void **state) {
  (void)state;
  const int phases[] = {1, 10, 64, 1000, 20000};
  for (size_t i = 0; i < sizeof phases / sizeof phases[0]; i++) {
    outcome_t o = run(200, phases[i], 400000, 11 + i);
    for (int kind = 0; kind < 2; kind++)
      assert_true(fabs(o.weight[kind] - o.events[kind]) <= 4 * sqrt(o.squares[kind]));
  }
}

static void the_rate_is_kept(void **state) {
  (void)state;
  outcome_t o = run(200, 500, 400000, 5);
  assert_true(o.kept <= 200 * o.seconds + 200.0 / 4 + 1);
  assert_true(o.kept >= 100 * o.seconds); /* and it is used */
}

static void without_a_limit_every_event_weighs_one(void **state) {
  (void)state;
  outcome_t o = run(0, 10, 1000, 1);
  assert_int_equal(o.kept, 1000);
  assert_true(o.weight[0] == o.events[0] && o.weight[1] == o.events[1]);
}

static void below_the_limit_nothing_is_thinned_out(void **state) {
  (void)state;
  outcome_t o = run(100000, 10, 20000, 1);
  assert_int_equal(o.kept, 20000);
}

static void a_clock_that_stands_still_gives_finite_weights(void **state) {
  (void)state;
  random_t random = {.state = 1};
  rate_limit_t limit;
  rate_limit_start(&limit, 5);
  for (int i = 0; i < 1000; i++) assert_true(isfinite(rate_limit_weigh(&limit, 200, 5, &random)));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(weights_are_true_for_either_kind_of_work),
    cmocka_unit_test(the_rate_is_kept),
    cmocka_unit_test(without_a_limit_every_event_weighs_one),
    cmocka_unit_test(below_the_limit_nothing_is_thinned_out),
    cmocka_unit_test(a_clock_that_stands_still_gives_finite_weights),
};

UNIT_MAIN(tests)
