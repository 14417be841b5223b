/* SPDX-License-Identifier: MIT */
/* Profiles that roll on: what is now, of late and in all; within a bound of memory. Merging only what samples have. */
#include "profile/rolling.h"

#include <math.h>

#include "unit.h"

#include "failing_memory.h"

enum { PERIOD = 10000000 };

static uint32_t frame_of(profile_t *p, const char *name) {
  uint32_t string = profile_cstring(p, name);
  return profile_frame(p, profile_function(p, (profile_function_t){string, string, 0, 1}), 2);
}

/* A window in which `name`, called by main, has so many samples. */
static profile_t *window_of(const char *name, int64_t samples) {
  profile_t *p = profile_new();
  if (p == NULL) return NULL;
  profile_add_type(p, "samples", "count");
  p->default_type = profile_add_type(p, "cpu", "nanoseconds");
  p->period = PERIOD;
  profile_label_t label = {.key = profile_cstring(p, "pid"), .num = 12};
  int64_t values[PROFILE_MAX_TYPES] = {samples, samples * PERIOD};
  uint32_t stack = profile_stack(p, profile_stack(p, 0, frame_of(p, "main")), frame_of(p, name));
  profile_add(p, stack, profile_label_set(p, &label, 1), values);
  return p;
}

static int64_t value_of(const profile_t *p, const char *name, rolling_type_t type) {
  int64_t sum = 0;
  for (size_t i = 0; i < p->sample_count; i++) {
    const profile_frame_t *frame = &p->frames[p->stacks[p->samples[i].stack].frame];
    if (strcmp(profile_text(p, p->functions[frame->function].name).data, name) == 0)
      sum += p->samples[i].values[type];
  }
  return sum;
}

static void windows_fade(void **state) {
  (void)state;
  rolling_t r;
  assert_true(rolling_begin(&r, 1 << 20));
  assert_true(rolling_add(&r, window_of("a", 10), 1));
  assert_int_equal(value_of(r.profile, "a", ROLLING_NOW), 10 * PERIOD);
  assert_int_equal(value_of(r.profile, "a", ROLLING_RECENT), 10 * PERIOD);
  assert_true(rolling_add(&r, window_of("b", 4), 1));
  assert_int_equal(value_of(r.profile, "a", ROLLING_NOW), 0);
  assert_int_equal(value_of(r.profile, "b", ROLLING_NOW), 4 * PERIOD);
  assert_int_equal(value_of(r.profile, "a", ROLLING_ALL), 10 * PERIOD);
  assert_true(fabs((double)value_of(r.profile, "a", ROLLING_RECENT) - 10 * PERIOD * exp(-0.2)) < 2);
  /* a steady rate is told as it is, from the first window on */
  assert_true(fabs(r.seconds[ROLLING_RECENT] - (1 + exp(-0.2))) < 1e-9);
  assert_true(fabs(r.seconds[ROLLING_ALL] - 2) < 1e-9);
  rolling_end(&r);
}

static void labels_are_left_out(void **state) {
  (void)state;
  rolling_t r;
  assert_true(rolling_begin(&r, 1 << 20));
  for (int i = 0; i < 3; i++) assert_true(rolling_add(&r, window_of("a", 1), 1));
  assert_int_equal(r.profile->sample_count, 1);
  assert_int_equal(r.profile->samples[0].labels, 0);
  rolling_end(&r);
}

static void reset_begins_anew(void **state) {
  (void)state;
  rolling_t r;
  assert_true(rolling_begin(&r, 1 << 20));
  assert_true(rolling_add(&r, window_of("a", 1), 1));
  assert_true(rolling_reset(&r));
  assert_int_equal(r.profile->sample_count, 0);
  assert_true(r.seconds[ROLLING_ALL] == 0);
  assert_true(rolling_add(&r, window_of("b", 1), 1));
  assert_int_equal(value_of(r.profile, "b", ROLLING_ALL), PERIOD);
  rolling_end(&r);
}

/* Functions come and go for good: nothing of the sum is lost, and memory stays within the bound. */
static void memory_is_bounded(void **state) {
  (void)state;
  enum { BOUND = 100000, ROUNDS = 5000 };
  rolling_t r;
  assert_true(rolling_begin(&r, BOUND));
  for (int i = 0; i < ROUNDS; i++) {
    char name[32];
    snprintf(name, sizeof name, "function%d", i);
    assert_true(rolling_add(&r, window_of(name, 1), 1));
    assert_int_equal(value_of(r.profile, name, ROLLING_NOW), PERIOD);
    assert_true(profile_bytes(r.profile) <= BOUND);
  }
  int64_t all = 0;
  for (size_t i = 0; i < r.profile->sample_count; i++) all += r.profile->samples[i].values[ROLLING_ALL];
  assert_int_equal(all, (int64_t)ROUNDS * PERIOD);
  assert_true(value_of(r.profile, "[older]", ROLLING_ALL) > 0);
  assert_int_equal(value_of(r.profile, "[older]", ROLLING_RECENT), 0);
  rolling_end(&r);
}

static void samples_are_dropped_and_names_stay(void **state) {
  (void)state;
  profile_t *p = window_of("a", 1);
  uint32_t frame = frame_of(p, "a");
  int64_t values[PROFILE_MAX_TYPES] = {1, PERIOD};
  profile_drop_samples(p);
  assert_int_equal(p->sample_count, 0);
  assert_int_equal(p->stack_count, 1);
  assert_int_equal(frame_of(p, "a"), frame);
  uint32_t stack = profile_stack(p, 0, frame);
  assert_int_equal(stack, 1);
  assert_true(profile_add(p, stack, 0, values));
  assert_true(profile_add(p, stack, 0, values));
  assert_int_equal(p->sample_count, 1);
  assert_int_equal(p->samples[0].values[0], 2);
  profile_free(p);
}

static void stacks_without_samples_are_not_merged(void **state) {
  (void)state;
  profile_t *p = window_of("a", 1), *into = profile_new();
  for (int i = 0; i < 100; i++) {
    char name[32];
    snprintf(name, sizeof name, "unused%d", i);
    profile_stack(p, 0, frame_of(p, name));
  }
  assert_true(profile_merge(into, p, 1));
  assert_int_equal(into->stack_count, 3);
  assert_int_equal(into->sample_count, 1);
  profile_free(p);
  profile_free(into);
}

static bool add_twice(void *context) {
  rolling_t r;
  (void)context;
  bool ok = rolling_begin(&r, 1 << 20);
  for (int i = 0; ok && i < 2; i++) {
    profile_t *window = window_of(i == 0 ? "a" : "b", 1);
    ok = window != NULL && rolling_add(&r, window, 1);
  }
  rolling_end(&r);
  return ok;
}

static void memory_may_run_out(void **state) {
  (void)state;
  fail_each_allocation(add_twice, NULL);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(windows_fade),
    cmocka_unit_test(labels_are_left_out),
    cmocka_unit_test(reset_begins_anew),
    cmocka_unit_test(memory_is_bounded),
    cmocka_unit_test(samples_are_dropped_and_names_stay),
    cmocka_unit_test(stacks_without_samples_are_not_merged),
    cmocka_unit_test(memory_may_run_out),
};

UNIT_MAIN(tests)
