/* SPDX-License-Identifier: MIT */
/* speedscope's JSON. */
#include "unit.h"

#include "failing_memory.h"
#include "sample_profile.h"

static void each_type_is_a_profile_over_shared_frames(void **state) {
  (void)state;
  profile_t *p = sample_types();
  size_t len;
  p->losses[LOSS_DROPPED] = 2;
  sample_add(p, "ab", 1, 10);
  sample_add(p, "a", 2, 20);
  char *text = sample_written(p, speedscope_write, &len);
  assert_non_null(strstr(text, "\"$schema\":\"https://www.speedscope.app/file-format-schema.json\""));
  assert_non_null(strstr(text, "{\"name\":\"a\",\"file\":\"x.lua\",\"line\":1},\n{\"name\":\"b\""));
  assert_non_null(strstr(text, "\"name\":\"samples\",\"unit\":\"none\""));
  assert_non_null(strstr(text, "\"name\":\"cpu\",\"unit\":\"nanoseconds\""));
  assert_non_null(strstr(text, "\"samples\":[[0],\n[0,1]],\n\"weights\":[20,10],\n\"endValue\":30"));
  assert_non_null(strstr(text, "\"activeProfileIndex\":1"));
  assert_non_null(strstr(text, "2 samples could not be recorded"));
  free(text);
  profile_free(p);
}

static void lines_and_labels_are_merged_into_functions(void **state) {
  (void)state;
  profile_t *p = sample_types();
  size_t len;
  profile_add(p, profile_stack(p, 0, sample_frame(p, "a", "x.lua", 1, 5)), 0, (int64_t[]){1, 10});
  profile_add(p, profile_stack(p, 0, sample_frame(p, "a", "x.lua", 1, 6)), 0, (int64_t[]){1, 10});
  char *text = sample_written(p, speedscope_write, &len);
  assert_non_null(strstr(text, "\"samples\":[[0]],\n\"weights\":[20]"));
  free(text);
  profile_free(p);
}

static void negative_differences_are_left_out_and_told(void **state) {
  (void)state;
  profile_t *p = sample_types();
  size_t len;
  sample_add(p, "a", 1, 10);
  sample_add(p, "b", -1, -10);
  char *text = sample_written(p, speedscope_write, &len);
  assert_non_null(strstr(text, "negative differences are left out"));
  assert_null(strstr(text, "-10"));
  free(text);
  profile_free(p);
}

static void a_profile_without_types_is_still_json(void **state) {
  (void)state;
  profile_t *p = profile_new();
  size_t len;
  char *text = sample_written(p, speedscope_write, &len);
  assert_non_null(strstr(text, "\"shared\":{\"frames\":[]},\"profiles\":[]}"));
  free(text);
  profile_free(p);
}

static void running_out_of_memory_is_reported(void **state) {
  (void)state;
  profile_t *p = sample_full();
  fail_each_allocation(sample_write_succeeds, &(sample_writing_t){p, speedscope_write});
  profile_free(p);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(each_type_is_a_profile_over_shared_frames),
    cmocka_unit_test(lines_and_labels_are_merged_into_functions),
    cmocka_unit_test(negative_differences_are_left_out_and_told),
    cmocka_unit_test(a_profile_without_types_is_still_json),
    cmocka_unit_test(running_out_of_memory_is_reported),
};
UNIT_MAIN(tests)
