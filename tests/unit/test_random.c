/* SPDX-License-Identifier: MIT */
/* Random gaps: their distributions are what docs/sampling.md says they are. */
#include <math.h>

#include "profile/random.h"
#include "unit.h"

enum { DRAWS = 200000 };

static void exponential_gaps_have_exactly_the_mean_asked_for(void **state) {
  (void)state;
  const double means[] = {1, 2, 10, 1000, 20000};
  for (size_t m = 0; m < sizeof means / sizeof means[0]; m++) {
    random_t random = {.state = 42 + m};
    double sum = 0;
    for (int i = 0; i < DRAWS; i++) sum += (double)random_exponential(&random, means[m]);
    /* the geometric distribution on 1, 2, … with mean μ has variance μ² - μ */
    double sigma = sqrt((means[m] * means[m] - means[m]) / DRAWS);
    assert_true(fabs(sum / DRAWS - means[m]) <= 4 * sigma + 1e-9);
  }
}

static void exponential_gaps_are_memoryless(void **state) {
  (void)state;
  /* given that a gap is longer than t, what is left of it is distributed like a fresh one */
  const double mean = 500, t = 700;
  random_t random = {.state = 7};
  double left = 0;
  int count = 0;
  for (int i = 0; i < DRAWS; i++) {
    double gap = (double)random_exponential(&random, mean);
    if (gap <= t) continue;
    left += gap - t;
    count++;
  }
  assert_true(count > 1000);
  assert_true(fabs(left / count - mean) <= 4 * mean / sqrt(count));
}

static void exponential_gaps_fit_the_distribution(void **state) {
  (void)state;
  /* chi-square over 20 classes of equal probability; 19 degrees of freedom, p = 1e-5 at 58.6 */
  enum { CLASSES = 20 };
  const double mean = 20000;
  int seen[CLASSES] = {0};
  random_t random = {.state = 1};
  for (int i = 0; i < DRAWS; i++) {
    double below = 1 - exp(-(double)random_exponential(&random, mean) / mean);
    int at = (int)(below * CLASSES);
    seen[at < CLASSES ? at : CLASSES - 1]++;
  }
  double chi = 0, expected = (double)DRAWS / CLASSES;
  for (int i = 0; i < CLASSES; i++) chi += (seen[i] - expected) * (seen[i] - expected) / expected;
  assert_true(chi < 58.6);
}

static void jitter_is_uniform_around_the_period(void **state) {
  (void)state;
  random_t random = {.state = 3};
  double sum = 0;
  for (int i = 0; i < DRAWS; i++) {
    uint64_t gap = random_jitter(&random, 1000000);
    assert_in_range(gap, 500000, 1500000);
    sum += (double)gap;
  }
  assert_true(fabs(sum / DRAWS - 1e6) <= 4 * (1e6 / sqrt(12)) / sqrt(DRAWS));
}

static void the_same_seed_gives_the_same_gaps(void **state) {
  (void)state;
  random_t a = {.state = 9}, b = {.state = 9};
  for (int i = 0; i < 1000; i++) assert_int_equal(random_exponential(&a, 77), random_exponential(&b, 77));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(exponential_gaps_have_exactly_the_mean_asked_for),
    cmocka_unit_test(exponential_gaps_are_memoryless),
    cmocka_unit_test(exponential_gaps_fit_the_distribution),
    cmocka_unit_test(jitter_is_uniform_around_the_period),
    cmocka_unit_test(the_same_seed_gives_the_same_gaps),
};

UNIT_MAIN(tests)
