/* SPDX-License-Identifier: MIT */
/* The profile: interning, adding, merging, and memory that runs out. */
#include "profile/profile.h"

#include "profile/where.h"
#include "unit.h"

#include "failing_memory.h"
#include "sample_profile.h"

static void equal_things_are_stored_once(void **state) {
  (void)state;
  profile_t *p = sample_types();
  assert_int_equal(profile_cstring(p, "x"), profile_cstring(p, "x"));
  assert_int_not_equal(profile_string(p, "x\0y", 3), profile_cstring(p, "x"));
  assert_int_equal(sample_stack(p, "abc"), sample_stack(p, "abc"));
  assert_int_not_equal(sample_stack(p, "ab"), sample_stack(p, "ba"));
  profile_free(p);
}

static void labels_in_any_order_are_the_same_set(void **state) {
  (void)state;
  profile_t *p = sample_types();
  profile_label_t one = {profile_cstring(p, "k"), profile_cstring(p, "v"), 0, 0};
  profile_label_t two = {profile_cstring(p, "n"), 0, 5, 0};
  uint32_t set = profile_label_set(p, (profile_label_t[]){one, two}, 2);
  assert_int_equal(profile_label_set(p, (profile_label_t[]){two, one}, 2), set);
  assert_int_not_equal(profile_label_set(p, &one, 1), set);
  assert_int_equal(profile_label_set(p, NULL, 0), 0);
  profile_free(p);
}

static void values_of_the_same_stack_add_up(void **state) {
  (void)state;
  profile_t *p = sample_types();
  sample_add(p, "ab", 1, 10);
  sample_add(p, "ab", 2, 20);
  assert_int_equal(p->sample_count, 1);
  assert_int_equal(p->samples[0].values[0], 3);
  assert_int_equal(p->samples[0].values[1], 30);
  profile_free(p);
}

static void one_type_too_many_fails_the_profile(void **state) {
  (void)state;
  profile_t *p = profile_new();
  for (int i = 0; i < PROFILE_MAX_TYPES; i++) profile_add_type(p, "t", "count");
  assert_true(profile_ok(p));
  profile_add_type(p, "t", "count");
  assert_false(profile_ok(p));
  profile_free(p);
}

static void merging_adds_samples_losses_and_durations(void **state) {
  (void)state;
  profile_t *a = sample_full(), *b = sample_full();
  sample_add(b, "new", 1, 1);
  assert_true(profile_merge(a, b, 1));
  assert_true(profile_ok(a));
  assert_int_equal(a->sample_count, b->sample_count);
  assert_int_equal(a->samples[0].values[1], 20000000);
  assert_int_equal(a->losses[LOSS_TRUNCATED], 6);
  assert_int_equal(a->duration_nanos, 10000000000);
  profile_free(a);
  profile_free(b);
}

static void merging_into_an_empty_profile_copies_everything(void **state) {
  (void)state;
  profile_t *empty = profile_new(), *full = sample_full();
  assert_true(profile_merge(empty, full, 1));
  assert_int_equal(empty->sample_count, full->sample_count);
  assert_int_equal(empty->default_type, 1);
  assert_string_equal(profile_text(empty, empty->program).data, "app.lua");
  assert_int_equal(empty->comment_count, 1);
  assert_int_equal(empty->label_sets[empty->samples[2].labels].count, 2);
  profile_free(empty);
  profile_free(full);
}

static void subtracting_a_profile_from_itself_leaves_zeros(void **state) {
  (void)state;
  profile_t *a = sample_full(), *b = sample_full();
  assert_true(profile_merge(a, b, -1));
  for (size_t i = 0; i < a->sample_count; i++) assert_true(profile_sample_is_zero(a, &a->samples[i]));
  assert_int_equal(a->losses[LOSS_TRUNCATED], 0);
  sample_add(b, "ab", 1, 5);
  assert_true(profile_merge(a, b, -1));
  assert_int_equal(a->samples[a->sample_count - 1].values[1], -5);
  profile_free(a);
  profile_free(b);
}

static void profiles_of_different_types_do_not_merge(void **state) {
  (void)state;
  profile_t *a = sample_full(), *b = profile_new();
  profile_add_type(b, "alloc_space", "bytes");
  size_t before = a->sample_count;
  assert_false(profile_merge(a, b, 1));
  assert_int_equal(a->sample_count, before);
  profile_free(a);
  profile_free(b);
}

static bool build(void *context) {
  (void)context;
  profile_t *p = sample_full();
  bool done = p != NULL && profile_ok(p);
  profile_free(p);
  return done;
}

static void samples_are_chosen_by_labels(void **state) {
  (void)state;
  profile_t *p = sample_types();
  char values[64], small[10];
  static const int64_t one[PROFILE_MAX_TYPES] = {1, 10};
  profile_label_t pid = {profile_cstring(p, "pid"), 0, 12, 0}, other = {profile_cstring(p, "pid"), 0, 123, 0};
  profile_label_t name = {profile_cstring(p, "comm"), profile_cstring(p, "nginx"), 0, 0};
  profile_add(p, sample_stack(p, "ab"), profile_label_set(p, &other, 1), one);
  profile_add(p, sample_stack(p, "ab"), profile_label_set(p, (profile_label_t[]){pid, name}, 2), one);
  profile_add(p, sample_stack(p, "ac"), profile_label_set(p, (profile_label_t[]){pid, name}, 2), one);
  profile_add(p, sample_stack(p, "ab"), 0, one);
  size_t len = where_values(p, "pid", 3, values, sizeof values);
  assert_int_equal(len, strlen("123, 12"));
  assert_memory_equal(values, "123, 12", len);
  assert_int_equal(where_values(p, "tid", 3, values, sizeof values), 0);
  assert_true(where_values(p, "pid", 3, small, sizeof small) < sizeof small);
  assert_int_equal(where_keep(p, "pid", 3, "12"), 2);
  assert_int_equal(where_keep(p, "comm", 4, "nginx"), 2);
  for (size_t i = 0; i < 2; i++) { /* what is added now meets those that are left */
    profile_add(p, p->samples[i].stack, p->samples[i].labels, one);
    assert_int_equal(p->sample_count, 2);
    assert_int_equal(p->samples[i].values[1], 20);
  }
  assert_int_equal(where_keep(p, "comm", 4, "nginx2"), 0);
  assert_int_equal(p->sample_count, 0);
  profile_free(p);
}

static bool merge(void *context) {
  profile_t *into = profile_new();
  bool done = into != NULL && profile_merge(into, context, 1) && profile_ok(into);
  profile_free(into);
  return done;
}

static void running_out_of_memory_while_building_is_reported(void **state) {
  (void)state;
  fail_each_allocation(build, NULL);
}

static void running_out_of_memory_while_merging_is_reported(void **state) {
  (void)state;
  profile_t *p = sample_full();
  fail_each_allocation(merge, p);
  profile_free(p);
}

static void a_frozen_profile_takes_nothing_new(void **state) {
  (void)state;
  profile_t *p = profile_new();
  int64_t values[PROFILE_MAX_TYPES] = {3};
  profile_add_type(p, "samples", "count");
  uint32_t name = profile_cstring(p, "f");
  uint32_t stack =
      profile_stack(p, 0, profile_frame(p, profile_function(p, (profile_function_t){name, name, 0, 1}), 2));
  assert_true(profile_add(p, stack, 0, values));
  size_t bytes = profile_bytes(p);
  p->frozen = true;
  assert_int_equal(profile_cstring(p, "g"), PROFILE_NONE);
  assert_int_equal(profile_cstring(p, "f"), name);
  assert_int_equal(profile_function(p, (profile_function_t){name, name, 0, 5}), PROFILE_NONE);
  assert_int_equal(profile_frame(p, 0, 99), PROFILE_NONE);
  assert_int_equal(profile_stack(p, stack, 0), PROFILE_NONE);
  assert_int_equal(profile_label_set(p, &(profile_label_t){.key = name, .num = 1}, 1), PROFILE_NONE);
  assert_false(profile_add(p, 0, 0, values));
  assert_true(profile_add(p, stack, 0, values)); /* what is there is counted */
  assert_int_equal(p->samples[0].values[0], 6);
  assert_int_equal(profile_bytes(p), bytes);
  assert_true(profile_ok(p));
  p->frozen = false;
  assert_int_not_equal(profile_cstring(p, "g"), PROFILE_NONE);
  assert_true(profile_bytes(p) > bytes);
  profile_free(p);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_frozen_profile_takes_nothing_new),
    cmocka_unit_test(equal_things_are_stored_once),
    cmocka_unit_test(labels_in_any_order_are_the_same_set),
    cmocka_unit_test(values_of_the_same_stack_add_up),
    cmocka_unit_test(one_type_too_many_fails_the_profile),
    cmocka_unit_test(merging_adds_samples_losses_and_durations),
    cmocka_unit_test(merging_into_an_empty_profile_copies_everything),
    cmocka_unit_test(subtracting_a_profile_from_itself_leaves_zeros),
    cmocka_unit_test(samples_are_chosen_by_labels),
    cmocka_unit_test(profiles_of_different_types_do_not_merge),
    cmocka_unit_test(running_out_of_memory_while_building_is_reported),
    cmocka_unit_test(running_out_of_memory_while_merging_is_reported),
};
UNIT_MAIN(tests)
