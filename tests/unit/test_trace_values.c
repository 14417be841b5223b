/* SPDX-License-Identifier: MIT */
/* The values of traced profiles: inclusive times, recursion, extremes, negative corrections. */
#include <string.h>

#include "profile/trace_values.h"
#include "unit.h"

static profile_t *traced(void) {
  profile_t *p = profile_new();
  for (int i = 0; i < TRACE_VALUES; i++) profile_add_type(p, trace_value_names[i], trace_value_unit(i));
  return p;
}

static uint32_t below(profile_t *p, uint32_t parent, const char *name) {
  uint32_t string = profile_cstring(p, name);
  uint32_t function = profile_function(p, (profile_function_t){string, string, 0, 0});
  return profile_stack(p, parent, profile_frame(p, function, 0));
}

static void add(profile_t *p, uint32_t stack, int64_t calls, int64_t exclusive, int64_t raw, int64_t min,
                int64_t max) {
  int64_t values[PROFILE_MAX_TYPES] = {calls, exclusive, 0, raw, 0, min, max};
  profile_add(p, stack, 0, values);
}

static const int64_t *values_of(const profile_t *p, uint32_t stack) {
  for (size_t i = 0; i < p->sample_count; i++)
    if (p->samples[i].stack == stack) return p->samples[i].values;
  return NULL;
}

static void inclusive_is_the_sum_below(void **state) {
  (void)state;
  profile_t *p = traced();
  uint32_t main = below(p, 0, "main"), a = below(p, main, "a"), b = below(p, a, "b"), c = below(p, main, "c");
  add(p, a, 1, 10, 12, 1, 1);
  add(p, b, 2, 5, 7, 1, 2);
  add(p, c, 1, 3, 3, 1, 1);
  trace_finish(p);
  assert_true(trace_is(p));
  assert_int_equal(values_of(p, main)[TRACE_INCLUSIVE], 18); /* which had no value of its own */
  assert_int_equal(values_of(p, main)[TRACE_INCLUSIVE_RAW], 22);
  assert_int_equal(values_of(p, a)[TRACE_INCLUSIVE], 15);
  assert_int_equal(values_of(p, b)[TRACE_INCLUSIVE], 5);
  assert_int_equal(values_of(p, c)[TRACE_INCLUSIVE], 3);
  assert_int_equal(p->comment_count, 0);
  profile_free(p);
}

static void recursion_counts_once(void **state) {
  (void)state;
  profile_t *p = traced();
  uint32_t f = below(p, 0, "f"), g = below(p, f, "g"), again = below(p, g, "f");
  add(p, f, 1, 10, 10, 1, 1);
  add(p, g, 1, 5, 5, 1, 1);
  add(p, again, 1, 2, 2, 1, 1);
  trace_finish(p);
  assert_int_equal(values_of(p, f)[TRACE_INCLUSIVE] + values_of(p, again)[TRACE_INCLUSIVE], 17);
  assert_int_equal(values_of(p, g)[TRACE_INCLUSIVE], 7);
  profile_free(p);
}

static void extremes_merge_as_extremes(void **state) {
  (void)state;
  profile_t *p = traced(), *q = traced();
  uint32_t f = below(p, 0, "f"), in_q = below(q, 0, "f");
  add(p, f, 2, 10, 10, 4, 9);
  add(p, f, 1, 1, 1, 0, 0); /* a call that has not returned */
  add(q, in_q, 3, 10, 10, 3, 7);
  assert_true(profile_merge(p, q, 1));
  assert_int_equal(values_of(p, f)[TRACE_CALLS], 6);
  assert_int_equal(values_of(p, f)[TRACE_MIN], 3);
  assert_int_equal(values_of(p, f)[TRACE_MAX], 9);
  assert_true(profile_merge(p, q, -1));
  assert_int_equal(values_of(p, f)[TRACE_CALLS], 3);
  assert_int_equal(values_of(p, f)[TRACE_MIN], 3);
  profile_free(p);
  profile_free(q);
}

static void negative_times_are_told(void **state) {
  (void)state;
  profile_t *p = traced();
  uint32_t f = below(p, 0, "f"), g = below(p, f, "g");
  add(p, f, 1, 10, 20, 1, 1);
  add(p, g, 1, -4, 3, -4, -4);
  trace_finish(p);
  assert_int_equal(values_of(p, f)[TRACE_INCLUSIVE], 6); /* nothing is cut off */
  assert_int_equal(values_of(p, g)[TRACE_MIN], -4);
  assert_int_equal(p->comment_count, 1);
  assert_non_null(strstr(profile_text(p, p->comments[0]).data, "1 path"));
  profile_free(p);
}

static void other_profiles_are_left_alone(void **state) {
  (void)state;
  profile_t *p = profile_new();
  profile_add_type(p, "samples", "count");
  profile_add_type(p, "min", "count"); /* a name that means nothing here */
  uint32_t f = below(p, 0, "f");
  int64_t values[PROFILE_MAX_TYPES] = {1, 5};
  profile_add(p, f, 0, values);
  profile_add(p, f, 0, values);
  trace_finish(p);
  assert_false(trace_is(p));
  assert_int_equal(values_of(p, f)[1], 10);
  profile_free(p);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(inclusive_is_the_sum_below),    cmocka_unit_test(recursion_counts_once),
    cmocka_unit_test(extremes_merge_as_extremes),    cmocka_unit_test(negative_times_are_told),
    cmocka_unit_test(other_profiles_are_left_alone),
};
UNIT_MAIN(tests)
