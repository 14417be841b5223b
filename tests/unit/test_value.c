/* SPDX-License-Identifier: MIT */
/* Values for people, in the words and steps of `go tool pprof`. */
#include "format/value.h"

#include "unit.h"

static void shows(const char *unit, int64_t smallest, int64_t total, int64_t value, const char *wanted) {
  char text[VALUE_TEXT_BYTES];
  value_text(value_scale(unit, smallest, total), value, text);
  assert_string_equal(text, wanted);
}

static void sizes_have_the_unit_that_the_smallest_fills(void **state) {
  (void)state;
  shows("bytes", 100, 1000, 1000, "1000B");
  shows("bytes", 1023, 1023, 1023, "1023B");
  shows("bytes", 1024, 1024, 1024, "1kB");
  shows("bytes", 1536, 1536, 1536, "1.50kB");
  shows("bytes", 600 << 10, 2 << 20, 2 << 20, "2048kB"); /* less than 100 times as much in all */
  shows("bytes", 5 << 20, 400 << 20, 400 << 20, "400MB");
  shows("bytes", INT64_C(3) << 30, INT64_C(9) << 30, INT64_C(9) << 30, "9GB");
  shows("bytes", INT64_C(3) << 50, INT64_C(3) << 50, INT64_C(3) << 50, "3PB");
  shows("kilobytes", 3, 3000, 3000, "3000kB");
  shows("kilobytes", 2000, 3000, 3000, "2.93MB");
}

static void sizes_far_apart_share_a_unit_in_which_the_smallest_is_a_hundredth(void **state) {
  (void)state;
  shows("bytes", 20 << 10, 20 << 20, 20 << 20, "20MB");
  shows("bytes", 20 << 10, 20 << 20, 20 << 10, "0.02MB");
  shows("bytes", 5 << 10, 20 << 20, 20 << 20, "20480kB"); /* 100 times 5 kB is no MB */
  shows("bytes", 100, INT64_C(1) << 40, INT64_C(1) << 40, "1073741824kB");
}

static void what_rounds_to_nothing_is_a_bare_zero(void **state) {
  (void)state;
  shows("bytes", 20 << 20, 20 << 20, 1, "0");
  shows("bytes", 20 << 20, 20 << 20, -1, "0");
  shows("nanoseconds", 1000000000, 1000000000, 1, "0");
  shows("bytes", 1, 1, 0, "0");
}

static void counts_are_whole(void **state) {
  (void)state;
  shows("count", 1, 123456789, 123456789, "123456789");
  shows("count", 1, 123456789, -5, "-5");
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(sizes_have_the_unit_that_the_smallest_fills),
    cmocka_unit_test(sizes_far_apart_share_a_unit_in_which_the_smallest_is_a_hundredth),
    cmocka_unit_test(what_rounds_to_nothing_is_a_bare_zero),
    cmocka_unit_test(counts_are_whole),
};
UNIT_MAIN(tests)
