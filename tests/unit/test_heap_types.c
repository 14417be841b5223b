/* SPDX-License-Identifier: MIT */
/* The sample types of heap profiles: what was freed, ages, and what comments tell. */
#include "profile/heap_types.h"

#include "unit.h"

#include "failing_memory.h"
#include "profile/summary.h"
#include "sample_profile.h"

enum { ALLOC_OBJECTS, ALLOC_SPACE, INUSE_OBJECTS, INUSE_SPACE };

static profile_t *heap_profile(void) {
  profile_t *p = profile_new();
  if (p == NULL) return NULL;
  profile_add_type(p, "alloc_objects", "count");
  profile_add_type(p, "alloc_space", "bytes");
  profile_add_type(p, "inuse_objects", "count");
  p->default_type = profile_add_type(p, "inuse_space", "bytes");
  return p;
}

static uint32_t labels(profile_t *p, const char *type, int64_t cycles) {
  profile_label_t pair[2] = {{profile_cstring(p, "type"), profile_cstring(p, type), 0, 0},
                             {profile_cstring(p, HEAP_SURVIVED), 0, cycles, 0}};
  return profile_label_set(p, pair, cycles > 0 ? 2 : 1);
}

static int64_t flat(const profile_t *p, size_t type, const char *name) {
  summary_t *s = summary_new(p, type, SUMMARY_FUNCTIONS);
  int64_t value = -1;
  for (size_t i = 0; i < s->row_count; i++)
    if (strcmp(profile_text(p, s->rows[i].name).data, name) == 0) value = s->rows[i].flat;
  assert_false(s->has_negative);
  summary_free(s);
  return value;
}

static void freed_is_allocated_less_in_use_whatever_the_age(void **state) {
  (void)state;
  profile_t *p = heap_profile();
  uint32_t a = sample_stack(p, "ma"), b = sample_stack(p, "mb");
  profile_add(p, a, labels(p, "table", 0), (int64_t[]){10, 1000, 1, 100});
  profile_add(p, a, labels(p, "table", 1), (int64_t[]){0, 0, 2, 200});
  profile_add(p, a, labels(p, "table", 8), (int64_t[]){0, 0, 4, 400});
  profile_add(p, a, labels(p, "string", 0), (int64_t[]){5, 50, 0, 0});
  profile_add(p, b, 0, (int64_t[]){7, 70, 7, 70});
  uint32_t space = heap_find_type(p, "free_space"), objects = heap_find_type(p, "free_objects");
  assert_int_equal(space, 4);
  assert_int_equal(objects, 5);
  assert_string_equal(profile_text(p, p->types[space].unit).data, "bytes");
  assert_string_equal(profile_text(p, p->types[objects].unit).data, "count");
  assert_int_equal(flat(p, space, "a"), 350);
  assert_int_equal(flat(p, objects, "a"), 8);
  assert_int_equal(flat(p, space, "b"), 0);
  assert_int_equal(flat(p, INUSE_SPACE, "a"), 700); /* the others are as they were */
  assert_int_equal(flat(p, ALLOC_SPACE, "a"), 1050);
  assert_int_equal(heap_find_type(p, "free_space"), space); /* once */
  assert_int_equal(p->type_count, 6);
  assert_int_equal(p->default_type, INUSE_SPACE);
  profile_free(p);
}

static void live_blocks_without_a_sample_of_their_allocation_get_one(void **state) {
  (void)state;
  profile_t *p = heap_profile();
  profile_add(p, sample_stack(p, "a"), labels(p, "table", 2), (int64_t[]){3, 300, 1, 100});
  uint32_t space = heap_find_type(p, "free_space");
  assert_int_equal(flat(p, space, "a"), 200);
  profile_free(p);
}

static void the_types_of_cpu_and_tracing_stay(void **state) {
  (void)state;
  profile_t *p = profile_new();
  profile_add_type(p, "samples", "count");
  profile_add_type(p, "cpu", "nanoseconds");
  profile_add_type(p, "alloc_objects", "count");
  profile_add_type(p, "alloc_space", "bytes");
  profile_add_type(p, "inuse_objects", "count");
  profile_add_type(p, "inuse_space", "bytes");
  profile_add(p, sample_stack(p, "a"), 0, (int64_t[]){1, 10, 3, 300, 1, 100});
  assert_int_equal(heap_find_type(p, "cpu"), 1);
  uint32_t space = heap_find_type(p, "free_space");
  assert_int_equal(flat(p, space, "a"), 200);
  assert_int_equal(flat(p, 1, "a"), 10);
  assert_false(heap_is_type(p, 0));
  assert_false(heap_is_type(p, 1));
  for (size_t i = 2; i < p->type_count; i++) assert_true(heap_is_type(p, i));
  profile_free(p);
}

static void what_cannot_be_computed_is_not_there(void **state) {
  (void)state;
  char names[HEAP_NAMES_BYTES];
  profile_t *p = sample_types();
  assert_int_equal(heap_find_type(p, "free_space"), PROFILE_NONE);
  heap_type_names(p, names);
  assert_string_equal(names, "samples, cpu");
  profile_add_type(p, "alloc_space", "bytes");
  assert_int_equal(heap_find_type(p, "free_space"), PROFILE_NONE);
  profile_add_type(p, "inuse_space", "megabytes"); /* of another unit */
  assert_int_equal(heap_find_type(p, "free_space"), PROFILE_NONE);
  profile_free(p);
  p = heap_profile();
  heap_type_names(p, names);
  assert_string_equal(names,
                      "alloc_objects, alloc_space, inuse_objects, inuse_space, free_objects, free_space");
  heap_find_type(p, "free_space"); /* now it is there: it is listed once */
  heap_type_names(p, names);
  assert_string_equal(names,
                      "alloc_objects, alloc_space, inuse_objects, inuse_space, free_space, free_objects");
  while (p->type_count < PROFILE_MAX_TYPES) profile_add_type(p, "x", "count");
  assert_int_equal(heap_find_type(p, "free_objects"), PROFILE_NONE); /* no room for one more */
  assert_true(profile_ok(p));
  profile_free(p);
}

static void ages_are_read_off_the_labels(void **state) {
  (void)state;
  profile_t *p = heap_profile();
  profile_label_t text = {profile_cstring(p, HEAP_SURVIVED), profile_cstring(p, "8"), 0, 0};
  profile_label_t negative = {profile_cstring(p, HEAP_SURVIVED), 0, -8, 0};
  profile_label_t other = {profile_cstring(p, "bytes"), 0, 8, 0};
  assert_int_equal(heap_cycles_survived(p, 0), 0);
  assert_int_equal(heap_cycles_survived(p, labels(p, "table", 0)), 0);
  assert_int_equal(heap_cycles_survived(p, labels(p, "table", 16)), 16);
  assert_int_equal(heap_cycles_survived(p, profile_label_set(p, &text, 1)), 0);
  assert_int_equal(heap_cycles_survived(p, profile_label_set(p, &negative, 1)), 0);
  assert_int_equal(heap_cycles_survived(p, profile_label_set(p, &other, 1)), 0);
  profile_free(p);
}

static void comments_tell_numbers(void **state) {
  (void)state;
  profile_t *p = heap_profile();
  int64_t number = -1;
  static const char *const comments[] = {
      "heap_gc_cycles: 37",  "a comment",        "heap_words: many",
      "heap_negative: -1",   "heap_none: ",      "xheap_x: 3",
      "heap_two words: 3",   "heap_tail: 3 and", "heap_huge: 99999999999999999999",
      "heap_gc_cycles: 999", "heap_zero: 0"};
  for (size_t i = 0; i < sizeof comments / sizeof *comments; i++)
    profile_add_comment(p, profile_cstring(p, comments[i]));
  assert_true(heap_told(p, "heap_gc_cycles", &number));
  assert_int_equal(number, 37); /* the first */
  assert_true(heap_told(p, "heap_zero", &number));
  assert_int_equal(number, 0);
  static const char *const none[] = {"heap_words", "heap_negative", "heap_none", "heap_x",  "xheap_x",
                                     "heap_two",   "heap_tail",     "heap_huge", "heap_gc", "heap_missing"};
  for (size_t i = 0; i < sizeof none / sizeof *none; i++) assert_false(heap_told(p, none[i], &number));
  assert_int_equal(number, 0);
  profile_free(p);
}

static bool derive_succeeds(void *context) {
  (void)context;
  profile_t *p = heap_profile();
  if (p == NULL) return false;
  profile_add(p, sample_stack(p, "ab"), labels(p, "table", 4), (int64_t[]){0, 0, 1, 100});
  bool done = heap_find_type(p, "free_space") != PROFILE_NONE && profile_ok(p);
  profile_free(p);
  return done;
}

static void running_out_of_memory_is_reported(void **state) {
  (void)state;
  fail_each_allocation(derive_succeeds, NULL);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(freed_is_allocated_less_in_use_whatever_the_age),
    cmocka_unit_test(live_blocks_without_a_sample_of_their_allocation_get_one),
    cmocka_unit_test(the_types_of_cpu_and_tracing_stay),
    cmocka_unit_test(what_cannot_be_computed_is_not_there),
    cmocka_unit_test(ages_are_read_off_the_labels),
    cmocka_unit_test(comments_tell_numbers),
    cmocka_unit_test(running_out_of_memory_is_reported),
};
UNIT_MAIN(tests)
