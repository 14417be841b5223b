/* SPDX-License-Identifier: MIT */
/* Folded stacks: ours come back exactly, other people's are understood. */
#include "unit.h"

#include "failing_memory.h"
#include "sample_profile.h"

static profile_t *read_text(const char *text) {
  return folded_read(text, strlen(text), NULL);
}

static const profile_function_t *leaf_function(const profile_t *p, size_t sample) {
  return &p->functions[p->frames[p->stacks[p->samples[sample].stack].frame].function];
}

static void stacks_are_written_sorted_and_merged_by_line(void **state) {
  (void)state;
  profile_t *p = sample_full();
  size_t len;
  char *text = sample_written(p, folded_write, &len);
  assert_string_equal(
      text,
      "# luapulse folded: type=cpu unit=nanoseconds program=app.lua\n"
      "# luapulse losses: overflow=0 truncated=3 unattributed=0 dropped=0 rate_limited=7 gone=0\n"
      "f (x.lua:1);g (x.lua:1);f (x.lua:1);g (x.lua:1);h (x.lua:1) 50000000\n"
      "main chunk (app.lua:12) 10000000\n"
      "main chunk (app.lua:12);parse (lib/parse.lua:8) 20000000\n"
      "main chunk (app.lua:12);parse (lib/parse.lua:8);string.gsub 50000000\n"
      "r (x.lua:1);r (x.lua:1);r (x.lua:1);q (x.lua:1) 30000000\n");
  free(text);
  profile_free(p);
}

static void what_is_written_comes_back(void **state) {
  (void)state;
  profile_t *p = sample_full();
  profile_t *copy = sample_round_trip(p, folded_write, NULL);
  assert_string_equal(profile_text(copy, copy->types[0].type).data, "cpu");
  assert_string_equal(profile_text(copy, copy->types[0].unit).data, "nanoseconds");
  assert_string_equal(profile_text(copy, copy->program).data, "app.lua");
  assert_memory_equal(copy->losses, p->losses, sizeof p->losses);
  assert_int_equal(copy->comment_count, 0);
  assert_int_equal(copy->sample_count, 5);
  size_t len, copy_len;
  char *text = sample_written(p, folded_write, &len), *copied = sample_written(copy, folded_write, &copy_len);
  assert_string_equal(text, copied);
  free(text);
  free(copied);
  profile_free(copy);
  profile_free(p);
}

typedef struct {
  const char *name;
  size_t name_len;
  const char *file;
  size_t file_len;
  int64_t line;
} frame_case_t;

#define CASE(name, file, line) \
  { name, sizeof(name) - 1, file, sizeof(file) - 1, line }

static void frames_of_any_bytes_come_back(void **state) {
  (void)state;
  static const frame_case_t cases[] = {
      CASE("a;b\nc\rd\0e\xff\xee\xbe\x80", "dir;x\n\0\xfe.lua", 7),
      CASE("looks placed (app.lua:12)", "", 0),
      CASE("looks placed (app.lua:12)", "real.lua", 3),
      CASE("f", "a (copy)/x (1:2).lua", 5),
      CASE("f", "(odd", 5),
      CASE("", "", 0),
      CASE("", "x.lua", 0),
      CASE("no file", "", 12),
      CASE(" spaces ", "  ", -1),
      CASE("# comment?", "", 0),
      CASE("back\\slash\\x28", "C:\\x28\\lib.lua", 1),
      CASE("12", "", 0),
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const frame_case_t *c = &cases[i];
    profile_t *p = sample_types();
    uint32_t name = profile_string(p, c->name, c->name_len);
    profile_function_t function = {name, name, profile_string(p, c->file, c->file_len), 0};
    uint32_t frame = profile_frame(p, profile_function(p, function), c->line);
    profile_add(p, profile_stack(p, profile_stack(p, 0, frame), frame), 0, (int64_t[]){1, -3});
    profile_t *copy = sample_round_trip(p, folded_write, NULL);
    assert_non_null(copy);
    assert_int_equal(copy->stack_count, 3);
    assert_int_equal(copy->samples[0].values[0], -3);
    const profile_function_t *read = leaf_function(copy, 0);
    assert_true(text_is(profile_text(copy, read->name), c->name, c->name_len));
    assert_true(text_is(profile_text(copy, read->file), c->file, c->file_len));
    assert_int_equal(copy->frames[0].line, c->line);
    profile_free(copy);
    profile_free(p);
  }
}

static void a_sample_without_a_stack_comes_back(void **state) {
  (void)state;
  profile_t *p = sample_types();
  sample_add(p, "", 1, 9);
  profile_t *copy = sample_round_trip(p, folded_write, NULL);
  assert_int_equal(copy->sample_count, 1);
  assert_int_equal(copy->samples[0].stack, 0);
  assert_int_equal(copy->samples[0].values[0], 9);
  profile_free(copy);
  profile_free(p);
}

static void hostile_type_names_stay_in_the_header(void **state) {
  (void)state;
  profile_t *p = profile_new();
  profile_add_type(p, "my type 5", "per\nline 12");
  profile_add(p, sample_stack(p, "a"), 0, (int64_t[]){1});
  profile_t *copy = sample_round_trip(p, folded_write, NULL);
  assert_string_equal(profile_text(copy, copy->types[0].type).data, "my type 5");
  assert_string_equal(profile_text(copy, copy->types[0].unit).data, "per\nline 12");
  assert_int_equal(copy->sample_count, 1);
  profile_free(copy);
  profile_free(p);
}

static void other_peoples_stacks_are_samples(void **state) {
  (void)state;
  profile_t *p = read_text(
      "# made by hand\n\nswapper;[k];do_idle_[k] 12\r\nlua 5.4;Foo::bar(int, char*) 3.6\nlua 5.4 1");
  assert_non_null(p);
  assert_string_equal(profile_text(p, p->types[0].type).data, "samples");
  assert_string_equal(profile_text(p, p->types[0].unit).data, "count");
  assert_int_equal(p->sample_count, 3);
  assert_int_equal(p->samples[0].values[0], 12);
  assert_string_equal(profile_text(p, leaf_function(p, 1)->name).data, "Foo::bar(int, char*)");
  assert_int_equal(p->samples[1].values[0], 4);
  assert_string_equal(profile_text(p, leaf_function(p, 2)->name).data, "lua 5.4");
  assert_string_equal(profile_text(p, p->comments[0]).data, "made by hand");
  profile_free(p);
}

static void what_is_no_stack_is_refused_with_its_line(void **state) {
  (void)state;
  failure_t failure = {""};
  assert_null(folded_read("a 1\nb\n", 6, &failure));
  assert_string_equal(failure.text, "line 2 does not end in a count: it is neither pprof nor folded stacks");
  assert_null(folded_read("a 99999999999999999999\n", 23, &failure));
  assert_null(folded_read("\n\n", 2, &failure));
  assert_null(profile_read("", 0, READ_LIMIT_BYTES, &failure));
  assert_string_equal(failure.text, "it is empty");
}

static bool round_trip_succeeds(void *context) {
  profile_t *copy = sample_round_trip(context, folded_write, NULL);
  profile_free(copy);
  return copy != NULL;
}

static void running_out_of_memory_is_reported(void **state) {
  (void)state;
  profile_t *p = sample_full();
  fail_each_allocation(sample_write_succeeds, &(sample_writing_t){p, folded_write});
  fail_each_allocation(round_trip_succeeds, p);
  profile_free(p);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(stacks_are_written_sorted_and_merged_by_line),
    cmocka_unit_test(what_is_written_comes_back),
    cmocka_unit_test(frames_of_any_bytes_come_back),
    cmocka_unit_test(a_sample_without_a_stack_comes_back),
    cmocka_unit_test(hostile_type_names_stay_in_the_header),
    cmocka_unit_test(other_peoples_stacks_are_samples),
    cmocka_unit_test(what_is_no_stack_is_refused_with_its_line),
    cmocka_unit_test(running_out_of_memory_is_reported),
};
UNIT_MAIN(tests)
