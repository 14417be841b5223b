/* SPDX-License-Identifier: MIT */
/* Reports of traced profiles: calls, exclusive and inclusive time, mean, shortest and longest call, of functions and of paths. */
#include "unit.h"

#include "failing_memory.h"
#include "format/text.h"
#include "profile/trace_values.h"
#include "sample_profile.h"

static void add(profile_t *p, const char *letters, int64_t calls, int64_t exclusive, int64_t raw, int64_t min,
                int64_t max) {
  int64_t values[PROFILE_MAX_TYPES] = {calls, exclusive, 0, raw, 0, min, max};
  profile_add(p, sample_stack(p, letters), 0, values);
}

/* Exclusive times, in ns; f calls g and itself, and m both:
 *   m 1000, f 8000, f in f 2000, g in f 4000, g 1000, h 3000, n -60; 18940 in all.
 * Inclusive: m 18940, f 14000 (with itself counted once), g 5000, h 3000. */
static profile_t *traced(void) {
  profile_t *p = profile_new();
  for (int i = 0; i < TRACE_VALUES; i++) profile_add_type(p, trace_value_names[i], trace_value_unit(i));
  p->default_type = TRACE_EXCLUSIVE;
  add(p, "m", 0, 1000, 1100, 0, 0); /* under way at start */
  add(p, "mf", 4, 8000, 8800, 2500, 9000);
  add(p, "mff", 1, 2000, 2200, 2000, 2000);
  add(p, "mfg", 8, 4000, 4800, 300, 900);
  add(p, "mg", 2, 1000, 1200, 200, 700);
  add(p, "mh", 1, 3000, 3100, 0, 0);  /* has not returned */
  add(p, "mn", 3, -60, 300, -40, 15); /* corrected by more than it took */
  trace_finish(p);
  return p;
}

static char *report(const profile_t *p, text_view_t view, size_t type) {
  text_options_t options = {.view = view, .by = SUMMARY_FUNCTIONS, .type = type, .peek = "f"};
  failure_t failure = {""};
  sink_t *sink = sink_to_memory();
  size_t len;
  assert_true(text_report(p, &options, sink, &failure));
  const char *data = sink_memory(sink, &len);
  char *text = strndup(data, len);
  assert_true(sink_close(sink, &failure));
  return text;
}

/* The table alone: what follows the empty line after the head. */
static void shows(const profile_t *p, text_view_t view, size_t type, const char *expected) {
  char *text = report(p, view, type), *table = strstr(text, "\n\n");
  assert_non_null(table);
  assert_string_equal(table + 2, expected);
  free(text);
}

static void by_function(void **state) {
  (void)state;
  profile_t *p = traced();
  shows(p, TEXT_TOP, TRACE_EXCLUSIVE,
        "       flat    flat%     sum%        cum     cum%      calls       mean        min        max  "
        "function\n"
        "       10us   52.80%   52.80%       14us   73.92%          5     2.80us        2us        9us  f  "
        "x.lua:1\n"
        "        5us   26.40%   79.20%        5us   26.40%         10      500ns      200ns      900ns  g  "
        "x.lua:1\n"
        "        3us   15.84%   95.04%        3us   15.84%          1        3us          -          -  h  "
        "x.lua:1\n"
        "        1us    5.28%  100.32%    18.94us  100.00%          0          -          -          -  m  "
        "x.lua:1\n"
        "    -0.06us   -0.32%  100.00%    -0.06us   -0.32%          3      -20ns      -40ns       15ns  n  "
        "x.lua:1\n");
  profile_free(p);
}

static void by_path(void **state) {
  (void)state;
  profile_t *p = traced();
  shows(p, TEXT_TREE, TRACE_EXCLUSIVE,
        "        cum     cum%       flat      calls       mean        min        max  function, callers "
        "above callees\n"
        "    18.94us  100.00%        1us          0          -          -          -  m  x.lua:1\n"
        "       14us   73.92%        8us          4     3.50us     2.50us        9us    f  x.lua:1\n"
        "        4us   21.12%        4us          8      500ns      300ns      900ns      g  x.lua:1\n"
        "        2us   10.56%        2us          1        2us        2us        2us      f  x.lua:1\n"
        "        3us   15.84%        3us          1        3us          -          -    h  x.lua:1\n"
        "        1us    5.28%        1us          2      500ns      200ns      700ns    g  x.lua:1\n"
        "    -0.06us   -0.32%    -0.06us          3      -20ns      -40ns       15ns    n  x.lua:1\n");
  profile_free(p);
}

/* Means are of raw times; the shortest and the longest call are known corrected only. */
static void as_measured(void **state) {
  (void)state;
  profile_t *p = traced();
  shows(p, TEXT_TOP, TRACE_EXCLUSIVE_RAW,
        "       flat    flat%     sum%        cum     cum%      calls       mean        min        max  "
        "function\n"
        "       11us   51.16%   51.16%    15.80us   73.49%          5     3.16us        2us        9us  f  "
        "x.lua:1\n"
        "        6us   27.91%   79.07%        6us   27.91%         10      600ns      200ns      900ns  g  "
        "x.lua:1\n"
        "     3.10us   14.42%   93.49%     3.10us   14.42%          1     3.10us          -          -  h  "
        "x.lua:1\n"
        "     1.10us    5.12%   98.60%    21.50us  100.00%          0          -          -          -  m  "
        "x.lua:1\n"
        "     0.30us    1.40%  100.00%     0.30us    1.40%          3      100ns      -40ns       15ns  n  "
        "x.lua:1\n");
  profile_free(p);
}

static void the_head_counts_calls(void **state) {
  (void)state;
  profile_t *p = traced();
  char *text = report(p, TEXT_TOP, TRACE_EXCLUSIVE);
  assert_non_null(strstr(text, "\nCalls     19, in 7 different stacks\n"));
  assert_non_null(strstr(text, "have a negative exclusive time after correction, -60 ns in all"));
  free(text);
  profile_free(p);
}

/* Columns of calls stand beside times, and nowhere else. */
static void other_types_have_no_such_columns(void **state) {
  (void)state;
  profile_t *p = traced();
  const size_t types[] = {TRACE_CALLS, TRACE_INCLUSIVE, TRACE_MIN};
  for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
    char *text = report(p, TEXT_TOP, types[i]);
    assert_null(strstr(text, "      mean        min        max"));
    free(text);
  }
  char *text = report(p, TEXT_PEEK, TRACE_EXCLUSIVE);
  assert_null(strstr(text, "      mean        min        max"));
  free(text);
  profile_free(p);
}

static bool written(void *profile) {
  text_options_t options = {.view = TEXT_TREE, .by = SUMMARY_FUNCTIONS, .type = TRACE_EXCLUSIVE};
  failure_t failure = {""};
  sink_t *sink = sink_to_memory();
  if (sink == NULL) return false;
  bool done = text_report(profile, &options, sink, &failure);
  return sink_close(sink, &failure) && done;
}

static void out_of_memory(void **state) {
  (void)state;
  profile_t *p = traced();
  fail_each_allocation(written, p);
  profile_free(p);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(by_function),
    cmocka_unit_test(by_path),
    cmocka_unit_test(as_measured),
    cmocka_unit_test(the_head_counts_calls),
    cmocka_unit_test(other_types_have_no_such_columns),
    cmocka_unit_test(out_of_memory),
};

UNIT_MAIN(tests)
