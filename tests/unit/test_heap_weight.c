/* SPDX-License-Identifier: MIT */
/* Which blocks are samples and what they count for: on average exactly what they are, whatever their size. */
#include <math.h>

#include "agent/heap_weight.h"
#include "unit.h"

typedef struct {
  double objects, bytes; /* estimates */
  int samples;
} outcome_t;

/* Allocates `count` blocks of the size, as the allocator's wrapper does. */
static outcome_t allocate(size_t mean, size_t size, int count, uint64_t seed) {
  random_t random = {.state = seed};
  heap_rate_t rate = heap_rate(mean);
  int64_t left = heap_gap(&rate, &random);
  outcome_t outcome = {0};
  for (int i = 0; i < count; i++) {
    left -= (int64_t)size;
    if (left >= 0) continue;
    uint32_t objects;
    uint64_t bytes;
    heap_weigh(&rate, size, &random, &objects, &bytes);
    outcome.objects += objects;
    outcome.bytes += (double)bytes;
    outcome.samples++;
    left = heap_gap(&rate, &random);
  }
  return outcome;
}

static double chance_of(size_t mean, size_t size) {
  return -expm1((double)size * log1p(-1.0 / (double)mean));
}

/* A block counts for 1/p with probability p: its variance is 1/p - 1, and at most 1/4 of p for the rounding. */
static void estimates_are_unbiased(void **state) {
  (void)state;
  enum { COUNT = 400000 };
  const size_t sizes[] = {1, 16, 17, 40, 56, 100, 1000, 4096, 65536, 1 << 20},
               means[] = {2, 16, 100, 1000, 65536, 524288};
  for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
    for (size_t m = 0; m < sizeof means / sizeof means[0]; m++) {
      double p = chance_of(means[m], sizes[s]), size = (double)sizes[s];
      if (p * COUNT < 50) continue; /* too few for the normal approximation */
      outcome_t o = allocate(means[m], sizes[s], COUNT, 1000 * s + m + 1);
      double sigma = sqrt(COUNT * (1 / p - 1 + p / 4));
      assert_true(fabs(o.objects - COUNT) <= 4 * sigma + 1e-6);
      assert_true(fabs(o.bytes - COUNT * size) <= 4 * size * sigma + 1e-6);
      assert_true(fabs(o.samples - p * COUNT) <= 4 * sqrt(COUNT * p * (1 - p)) + 1e-6);
    }
}

/* Sizes that follow each other do not disturb one another, also where one is larger than many gaps. */
static void mixed_sizes_are_unbiased_each(void **state) {
  (void)state;
  enum { ROUNDS = 100000, SIZES = 4, MEAN = 1000 };
  const size_t sizes[SIZES] = {24, 20000, 48, 900};
  double objects[SIZES] = {0};
  random_t random = {.state = 99};
  heap_rate_t rate = heap_rate(MEAN);
  int64_t left = heap_gap(&rate, &random);
  for (int i = 0; i < ROUNDS; i++)
    for (int s = 0; s < SIZES; s++) {
      left -= (int64_t)sizes[s];
      if (left >= 0) continue;
      uint32_t count;
      uint64_t bytes;
      heap_weigh(&rate, sizes[s], &random, &count, &bytes);
      objects[s] += count;
      left = heap_gap(&rate, &random);
    }
  for (int s = 0; s < SIZES; s++) {
    double p = chance_of(MEAN, sizes[s]);
    assert_true(fabs(objects[s] - ROUNDS) <= 4 * sqrt(ROUNDS * (1 / p - 1 + p / 4)));
  }
}

static void a_block_of_many_gaps_counts_for_itself(void **state) {
  (void)state;
  outcome_t o = allocate(100, 1 << 20, 1000, 5);
  assert_int_equal(o.samples, 1000);
  assert_true(o.objects == 1000 && o.bytes == 1000.0 * (1 << 20));
}

static void a_mean_of_1_takes_every_block(void **state) {
  (void)state;
  for (size_t size = 1; size < 200; size++) {
    outcome_t o = allocate(1, size, 100, size);
    assert_int_equal(o.samples, 100);
    assert_true(o.objects == 100 && o.bytes == 100.0 * (double)size);
  }
}

static void a_mean_of_0_takes_none(void **state) {
  (void)state;
  assert_int_equal(allocate(0, 1 << 20, 100000, 1).samples, 0);
}

static void extremes_stay_finite(void **state) {
  (void)state;
  random_t random = {.state = 1};
  heap_rate_t rate = heap_rate((size_t)1 << 50);
  uint32_t objects;
  uint64_t bytes;
  heap_weigh(&rate, 1, &random, &objects, &bytes);
  assert_int_equal(objects, UINT32_MAX); /* as many as fit */
  assert_true(bytes >= ((uint64_t)1 << 50) - 2 && bytes <= ((uint64_t)1 << 50) + 2);
  assert_true(heap_gap(&rate, &random) > 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(estimates_are_unbiased),
    cmocka_unit_test(mixed_sizes_are_unbiased_each),
    cmocka_unit_test(a_block_of_many_gaps_counts_for_itself),
    cmocka_unit_test(a_mean_of_1_takes_every_block),
    cmocka_unit_test(a_mean_of_0_takes_none),
    cmocka_unit_test(extremes_stay_finite),
};

UNIT_MAIN(tests)
