/* SPDX-License-Identifier: MIT */
/* callgrind's format, and how it counts recursion. */
#include "unit.h"

#include "failing_memory.h"
#include "format/callgrind_calls.h"
#include "sample_profile.h"

static void costs_calls_and_names_are_written(void **state) {
  (void)state;
  profile_t *p = sample_types();
  size_t len;
  sample_add(p, "a", 1, 10);
  sample_add(p, "ab", 2, 20);
  char *text = sample_written(p, callgrind_write, &len);
  assert_non_null(strstr(text, "version: 1\n"));
  assert_non_null(strstr(text, "desc: Lost: none\n"));
  assert_non_null(strstr(text, "events: cpu samples\nsummary: 30 3\n"));
  assert_non_null(strstr(text, ") a\n1 10 1\n"));            /* itself: line, cpu, samples */
  assert_non_null(strstr(text, ") b\ncalls=2 1\n1 20 2\n")); /* the call: sampled twice, b begins at line 1 */
  free(text);
  profile_free(p);
}

/* What a viewer shows as inclusive: a function's own lines and the calls out of it. */
static int64_t inclusive(const calls_t *c, const char *name, size_t column) {
  int64_t sum = 0;
  for (size_t row = 0; row < c->lines->row_count; row++) {
    uint32_t string = c->functions[c->function_of_row[row]].name;
    if (strcmp(profile_text(c->profile, string).data, name) != 0) continue;
    sum += c->row_costs[row * c->columns + column];
    for (uint32_t edge = c->first_edge[row]; edge != UINT32_MAX; edge = c->edges[edge].next)
      sum += c->edge_costs[edge * c->columns + column];
  }
  return sum;
}

static void inclusive_costs_are_true_under_any_recursion(void **state) {
  (void)state;
  profile_t *p = sample_types();
  sample_add(p, "aaa", 1, 1);
  sample_add(p, "aab", 1, 10);
  sample_add(p, "fgfgh", 1, 100);
  sample_add(p, "fgf", 1, 1000);
  sample_add(p, "gfhgfa", 1, 10000);
  calls_t *calls = calls_new(p);
  summary_t *summary = summary_new(p, 1, SUMMARY_FUNCTIONS);
  for (size_t i = 0; i < summary->row_count; i++) {
    const char *name = profile_text(p, summary->rows[i].name).data;
    assert_int_equal(inclusive(calls, name, 1), summary->rows[i].cum);
  }
  summary_free(summary);
  calls_free(calls);
  profile_free(p);
}

static void without_a_samples_type_each_sample_is_one_call(void **state) {
  (void)state;
  profile_t *p = profile_new();
  size_t len;
  profile_add_type(p, "alloc_space", "bytes");
  profile_add(p, sample_stack(p, "ab"), 0, (int64_t[]){64});
  profile_add(p, sample_stack(p, "abc"), 0, (int64_t[]){64});
  char *text = sample_written(p, callgrind_write, &len);
  assert_non_null(strstr(text, "calls=2 1\n1 128\n"));
  free(text);
  profile_free(p);
}

static void a_stack_that_was_not_sampled_is_one_call_whatever_its_labels(void **state) {
  (void)state;
  profile_t *p = sample_types();
  size_t len;
  profile_add_type(p, "inuse_space", "bytes");
  profile_label_t old = {profile_cstring(p, "gc_cycles_survived"), 0, 4, 0};
  profile_label_t older = {profile_cstring(p, "gc_cycles_survived"), 0, 8, 0};
  profile_add(p, sample_stack(p, "ab"), profile_label_set(p, &old, 1), (int64_t[]){0, 0, 64});
  profile_add(p, sample_stack(p, "ab"), profile_label_set(p, &older, 1), (int64_t[]){0, 0, 64});
  profile_add(p, sample_stack(p, "ac"), 0, (int64_t[]){5, 50, 0});
  profile_add(p, sample_stack(p, "ac"), profile_label_set(p, &older, 1), (int64_t[]){0, 0, 32});
  char *text = sample_written(p, callgrind_write, &len);
  assert_non_null(strstr(text, ") b\ncalls=1 1\n1 0 0 128\n"));
  assert_non_null(strstr(text, ") c\ncalls=5 1\n1 50 5 32\n"));
  free(text);
  profile_free(p);
}

static void names_cannot_break_a_line(void **state) {
  (void)state;
  profile_t *p = sample_types();
  size_t len;
  profile_add(p, profile_stack(p, 0, sample_frame(p, "a\nfn=(9) b", "x\n.lua", 1, 1)), 0, (int64_t[]){1, 1});
  char *text = sample_written(p, callgrind_write, &len);
  assert_non_null(strstr(text, "a\\x0afn=(9) b\n"));
  assert_null(strstr(text, "\nfn=(9) b"));
  free(text);
  profile_free(p);
}

static void negative_differences_are_zero_and_told(void **state) {
  (void)state;
  profile_t *p = sample_types();
  size_t len;
  sample_add(p, "a", -1, -10);
  char *text = sample_written(p, callgrind_write, &len);
  assert_non_null(strstr(text, "desc: Difference: negative values are written as zero\n"));
  assert_null(strstr(text, "-10"));
  free(text);
  profile_free(p);
}

static void running_out_of_memory_is_reported(void **state) {
  (void)state;
  profile_t *p = sample_full();
  fail_each_allocation(sample_write_succeeds, &(sample_writing_t){p, callgrind_write});
  profile_free(p);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(costs_calls_and_names_are_written),
    cmocka_unit_test(inclusive_costs_are_true_under_any_recursion),
    cmocka_unit_test(without_a_samples_type_each_sample_is_one_call),
    cmocka_unit_test(a_stack_that_was_not_sampled_is_one_call_whatever_its_labels),
    cmocka_unit_test(names_cannot_break_a_line),
    cmocka_unit_test(negative_differences_are_zero_and_told),
    cmocka_unit_test(running_out_of_memory_is_reported),
};
UNIT_MAIN(tests)
