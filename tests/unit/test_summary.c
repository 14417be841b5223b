/* SPDX-License-Identifier: MIT */
/* Flat, cumulative, callers and callees; and the tables made of them. */
#include "profile/summary.h"

#include "unit.h"

#include "failing_memory.h"
#include "format/text.h"
#include "sample_profile.h"

static const summary_row_t *row_of(const summary_t *s, const char *name) {
  for (size_t i = 0; i < s->row_count; i++)
    if (strcmp(profile_text(s->profile, s->rows[i].name).data, name) == 0) return &s->rows[i];
  fail_msg("no row %s", name);
  return NULL;
}

static void recursion_counts_once_in_cum(void **state) {
  (void)state;
  profile_t *p = sample_types();
  sample_add(p, "aaa", 1, 10);
  sample_add(p, "aba", 1, 100);
  sample_add(p, "b", 1, 1000);
  summary_t *s = summary_new(p, 1, SUMMARY_FUNCTIONS);
  assert_int_equal(row_of(s, "a")->flat, 110);
  assert_int_equal(row_of(s, "a")->cum, 110);
  assert_int_equal(row_of(s, "b")->flat, 1000);
  assert_int_equal(row_of(s, "b")->cum, 1100);
  assert_int_equal(s->total, 1110);
  summary_free(s);
  profile_free(p);
}

static void lines_of_a_function_are_rows_of_their_own_when_asked(void **state) {
  (void)state;
  profile_t *p = sample_types();
  profile_add(p, profile_stack(p, 0, sample_frame(p, "a", "x.lua", 1, 5)), 0, (int64_t[]){1, 10});
  profile_add(p, profile_stack(p, 0, sample_frame(p, "a", "x.lua", 1, 6)), 0, (int64_t[]){1, 20});
  summary_t *functions = summary_new(p, 1, SUMMARY_FUNCTIONS), *lines = summary_new(p, 1, SUMMARY_LINES);
  assert_int_equal(functions->row_count, 1);
  assert_int_equal(functions->rows[0].flat, 30);
  assert_int_equal(functions->rows[0].line, 1);
  assert_int_equal(lines->row_count, 2);
  assert_int_equal(lines->rows[1].line, 6);
  assert_int_equal(lines->rows[1].flat, 20);
  summary_free(functions);
  summary_free(lines);
  profile_free(p);
}

static void the_same_name_in_two_files_is_two_functions(void **state) {
  (void)state;
  profile_t *p = sample_types();
  profile_add(p, profile_stack(p, 0, sample_frame(p, "init", "x.lua", 1, 5)), 0, (int64_t[]){1, 10});
  profile_add(p, profile_stack(p, 0, sample_frame(p, "init", "y.lua", 1, 5)), 0, (int64_t[]){1, 20});
  summary_t *s = summary_new(p, 1, SUMMARY_FUNCTIONS);
  assert_int_equal(s->row_count, 2);
  summary_free(s);
  profile_free(p);
}

static void the_heaviest_come_first_whatever_their_sign(void **state) {
  (void)state;
  profile_t *p = sample_types();
  sample_add(p, "a", 1, 10);
  sample_add(p, "b", 1, -30);
  sample_add(p, "c", 1, 20);
  sample_add(p, "d", 1, 0);
  summary_t *s = summary_new(p, 1, SUMMARY_FUNCTIONS);
  size_t count;
  uint32_t *ranking = summary_ranking(s, &count);
  assert_int_equal(count, 3);
  assert_ptr_equal(&s->rows[ranking[0]], row_of(s, "b"));
  assert_ptr_equal(&s->rows[ranking[1]], row_of(s, "c"));
  assert_true(s->has_negative);
  assert_int_equal(s->total, 60);
  mem_free(ranking);
  summary_free(s);
  profile_free(p);
}

static void edges_count_once_a_sample(void **state) {
  (void)state;
  profile_t *p = sample_types();
  sample_add(p, "fgfg", 1, 10);
  sample_add(p, "ffg", 1, 100);
  summary_t *s = summary_new(p, 1, SUMMARY_FUNCTIONS);
  size_t count;
  summary_edge_t *edges = summary_edges(s, &count);
  assert_int_equal(count, 2);
  assert_int_equal(edges[0].value, 110); /* f -> g */
  assert_ptr_equal(&s->rows[edges[0].caller], row_of(s, "f"));
  assert_int_equal(edges[1].value, 10); /* g -> f */
  mem_free(edges);
  summary_free(s);
  profile_free(p);
}

static void deep_and_wide_profiles_are_summed_without_recursion(void **state) {
  (void)state;
  profile_t *p = sample_types();
  uint32_t frames[64];
  for (uint32_t i = 0; i < 64; i++) {
    char name[8];
    snprintf(name, sizeof name, "f%u", i);
    frames[i] = sample_frame(p, name, "x.lua", i, i);
  }
  unsigned seed = 3;
  for (int sample = 0; sample < 400; sample++) {
    uint32_t stack = 0;
    for (int depth = 0; depth < 1024; depth++) stack = profile_stack(p, stack, frames[rand_r(&seed) % 64]);
    profile_add(p, stack, 0, (int64_t[]){1, 1});
  }
  assert_true(p->stack_count > 300000);
  summary_t *s = summary_new(p, 1, SUMMARY_FUNCTIONS);
  int64_t flat = 0;
  for (size_t i = 0; i < s->row_count; i++) {
    flat += s->rows[i].flat;
    assert_int_equal(s->rows[i].cum, 400); /* 1024 draws of 64: each is in each stack */
  }
  assert_int_equal(flat, 400);
  summary_free(s);
  profile_free(p);
}

static char *report(const profile_t *p, text_options_t options) {
  sink_t *sink = sink_to_memory();
  size_t len;
  options.type = p->default_type;
  assert_true(text_report(p, &options, sink, NULL));
  sink_write(sink, "", 1);
  char *text = strdup(sink_memory(sink, &len));
  sink_close(sink, NULL);
  return text;
}

static void a_report_shows_head_losses_and_table(void **state) {
  (void)state;
  profile_t *p = sample_full();
  char *text = report(p, (text_options_t){.view = TEXT_TOP});
  assert_non_null(strstr(text, "Program   app.lua\n"));
  assert_non_null(strstr(text, "Total     160ms\n"));
  assert_non_null(strstr(text, "Duration  5s\n"));
  assert_non_null(strstr(text, "Samples   16, in 5 different stacks\n"));
  assert_non_null(strstr(text, "Comment   a comment\n"));
  assert_non_null(strstr(text, "3 samples were deeper than recorded"));
  assert_non_null(strstr(text, "       20ms   12.50%   93.75%       70ms   43.75%  parse "));
  free(text);
  profile_free(p);
}

static void tree_and_peek_show_who_calls_whom(void **state) {
  (void)state;
  profile_t *p = sample_full();
  char *tree = report(p, (text_options_t){.view = TEXT_TREE});
  assert_non_null(strstr(tree,
                         "       70ms   43.75%       20ms    parse  lib/parse.lua:3\n"
                         "       50ms   31.25%       50ms      string.gsub\n"));
  char *peek = report(p, (text_options_t){.view = TEXT_PEEK, .peek = "pars"});
  assert_non_null(strstr(peek, "70ms  100.00% |     main chunk"));
  assert_non_null(strstr(peek, "50ms   71.43% |     string.gsub"));
  failure_t failure = {""};
  sink_t *sink = sink_to_memory();
  assert_false(text_report(p, &(text_options_t){.view = TEXT_PEEK, .peek = "nobody"}, sink, &failure));
  assert_string_equal(failure.text, "no function with a value has 'nobody' in its name");
  sink_close(sink, NULL);
  free(tree);
  free(peek);
  profile_free(p);
}

static void lines_are_cut_to_the_width(void **state) {
  (void)state;
  profile_t *p = sample_types();
  char name[200], file[200];
  memset(name, 'n', sizeof name - 1);
  memset(file, 'p', sizeof file - 1);
  name[199] = file[199] = '\0';
  memcpy(file + 190, "/last.lua", 9);
  profile_add(p, profile_stack(p, 0, sample_frame(p, name, file, 7, 7)), 0, (int64_t[]){1, 10});
  char *text = report(p, (text_options_t){.view = TEXT_TOP, .width = 100});
  char *line = strstr(text, "nnn");
  while (line > text && line[-1] != '\n') line--;
  size_t columns = 0;
  for (; *line != '\n'; line++) columns += ((unsigned char)*line & 0xC0) != 0x80;
  assert_int_equal(columns, 100);
  assert_non_null(strstr(text, "/last.lua:7\n"));
  free(text);
  profile_free(p);
}

static void a_hostile_name_cannot_drive_the_terminal(void **state) {
  (void)state;
  profile_t *p = sample_types();
  profile_add(p, profile_stack(p, 0, sample_frame(p, "\x1b]0;x\a", "\n\x1b.lua", 1, 1)), 0,
              (int64_t[]){1, 10});
  char *text = report(p, (text_options_t){.view = TEXT_TOP});
  assert_null(strchr(text, '\x1b'));
  assert_non_null(strstr(text, "\\x1b]0;x\\x07"));
  free(text);
  profile_free(p);
}

static void write_all_views(const profile_t *p, sink_t *sink) {
  text_write(p, sink);
  text_report(p, &(text_options_t){.view = TEXT_TREE}, sink, NULL);
  text_report(p, &(text_options_t){.view = TEXT_PEEK, .peek = "a"}, sink, NULL);
}

static void running_out_of_memory_is_reported(void **state) {
  (void)state;
  profile_t *p = sample_full();
  fail_each_allocation(sample_write_succeeds, &(sample_writing_t){p, write_all_views});
  profile_free(p);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(recursion_counts_once_in_cum),
    cmocka_unit_test(lines_of_a_function_are_rows_of_their_own_when_asked),
    cmocka_unit_test(the_same_name_in_two_files_is_two_functions),
    cmocka_unit_test(the_heaviest_come_first_whatever_their_sign),
    cmocka_unit_test(edges_count_once_a_sample),
    cmocka_unit_test(deep_and_wide_profiles_are_summed_without_recursion),
    cmocka_unit_test(a_report_shows_head_losses_and_table),
    cmocka_unit_test(tree_and_peek_show_who_calls_whom),
    cmocka_unit_test(lines_are_cut_to_the_width),
    cmocka_unit_test(a_hostile_name_cannot_drive_the_terminal),
    cmocka_unit_test(running_out_of_memory_is_reported),
};
UNIT_MAIN(tests)
