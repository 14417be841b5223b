/* SPDX-License-Identifier: MIT */
/* pprof: what is written comes back, and no input, however hostile, does harm. */
#include <zlib.h>

#include "unit.h"

#include "failing_memory.h"
#include "sample_profile.h"

/* -- protobuf by hand ------------------------------------------------------------------------------------ */

typedef struct {
  char data[4096];
  size_t len;
} raw_t;

static void put_varint(raw_t *raw, uint64_t value) {
  for (; value >= 0x80; value >>= 7) raw->data[raw->len++] = (char)(value | 0x80);
  raw->data[raw->len++] = (char)value;
}

static void put_number(raw_t *raw, int field, uint64_t value) {
  put_varint(raw, (uint64_t)field << 3);
  put_varint(raw, value);
}

static void put_bytes(raw_t *raw, int field, const void *data, size_t len) {
  put_varint(raw, (uint64_t)field << 3 | 2);
  put_varint(raw, len);
  memcpy(raw->data + raw->len, data, len);
  raw->len += len;
}

/* A message of number fields: field, value, field, value …, ended by field 0. */
static void put_message(raw_t *raw, int field, const uint64_t *numbers) {
  raw_t message = {.len = 0};
  for (; numbers[0] != 0; numbers += 2) put_number(&message, (int)numbers[0], numbers[1]);
  put_bytes(raw, field, message.data, message.len);
}
#define MESSAGE(raw, field, ...) put_message(raw, field, (const uint64_t[]){__VA_ARGS__, 0})

/* Strings 1 cpu, 2 ns, 3 outer, 4 inner, 5 /usr/lib/libc.so; one sample type; mapping 7; functions 70 and 80.
 */
static raw_t raw_start(void) {
  static const char *const strings[] = {"", "cpu", "nanoseconds", "outer", "inner", "/usr/lib/libc.so"};
  raw_t raw = {.len = 0};
  for (size_t i = 0; i < 6; i++) put_bytes(&raw, 6, strings[i], strlen(strings[i]));
  MESSAGE(&raw, 1, 1, 1, 2, 2);
  MESSAGE(&raw, 3, 1, 7, 5, 5);
  MESSAGE(&raw, 5, 1, 70, 2, 3);
  MESSAGE(&raw, 5, 1, 80, 2, 4);
  return raw;
}

static void assert_refused(const raw_t *raw, const char *why) {
  failure_t failure = {""};
  assert_null(pprof_read(raw->data, raw->len, &failure));
  assert_string_equal(failure.text, why);
}

static char *unzipped(const profile_t *p, size_t *len) {
  size_t zipped_len;
  char *zipped = sample_written(p, pprof_write, &zipped_len), *plain = malloc(1 << 20);
  z_stream zip = {.next_in = (Bytef *)zipped, .avail_in = (uInt)zipped_len};
  zip.next_out = (Bytef *)plain;
  zip.avail_out = 1 << 20;
  assert_int_equal(inflateInit2(&zip, 15 + 16), Z_OK);
  assert_int_equal(inflate(&zip, Z_FINISH), Z_STREAM_END);
  *len = zip.total_out;
  inflateEnd(&zip);
  free(zipped);
  return plain;
}

/* -- round trips ----------------------------------------------------------------------------------------- */

static void everything_comes_back(void **state) {
  (void)state;
  profile_t *p = sample_full();
  profile_t *copy = sample_round_trip(p, pprof_write, NULL);
  assert_non_null(copy);
  assert_int_equal(copy->type_count, 2);
  assert_int_equal(copy->default_type, 1);
  assert_string_equal(profile_text(copy, copy->types[1].unit).data, "nanoseconds");
  assert_string_equal(profile_text(copy, copy->period_type.type).data, "cpu");
  assert_int_equal(copy->period, p->period);
  assert_int_equal(copy->time_nanos, p->time_nanos);
  assert_int_equal(copy->duration_nanos, p->duration_nanos);
  assert_string_equal(profile_text(copy, copy->program).data, "app.lua");
  assert_memory_equal(copy->losses, p->losses, sizeof p->losses);
  assert_int_equal(copy->comment_count, 1);
  assert_string_equal(profile_text(copy, copy->comments[0]).data, "a comment");
  assert_true(profile_merge(copy, p, -1)); /* the difference is nothing: same stacks, labels, values */
  assert_int_equal(copy->sample_count, p->sample_count);
  for (size_t i = 0; i < copy->sample_count; i++)
    assert_true(profile_sample_is_zero(copy, &copy->samples[i]));
  profile_free(copy);
  profile_free(p);
}

static void the_same_profile_gives_the_same_bytes(void **state) {
  (void)state;
  profile_t *a = sample_full(), *b = sample_full();
  size_t a_len, b_len;
  char *a_bytes = sample_written(a, pprof_write, &a_len), *b_bytes = sample_written(b, pprof_write, &b_len);
  assert_int_equal(a_len, b_len);
  assert_memory_equal(a_bytes, b_bytes, a_len);
  free(a_bytes);
  free(b_bytes);
  profile_free(a);
  profile_free(b);
}

static void names_of_any_bytes_come_back(void **state) {
  (void)state;
  static const char name[] = "a;b\nc\0d\xff\xee\xbe\x80\\x3b";
  profile_t *p = sample_types();
  uint32_t string = profile_string(p, name, sizeof name - 1);
  uint32_t function = profile_function(p, (profile_function_t){string, string, string, -4});
  profile_add(p, profile_stack(p, 0, profile_frame(p, function, -9)), 0, (int64_t[]){1, -2});
  profile_t *copy = sample_round_trip(p, pprof_write, NULL);
  assert_non_null(copy);
  assert_true(text_is(profile_text(copy, copy->functions[0].name), name, sizeof name - 1));
  assert_true(text_is(profile_text(copy, copy->functions[0].file), name, sizeof name - 1));
  assert_int_equal(copy->functions[0].start_line, -4);
  assert_int_equal(copy->frames[0].line, -9);
  assert_int_equal(copy->samples[0].values[1], -2);
  profile_free(copy);
  profile_free(p);
}

static void samples_without_value_are_not_written(void **state) {
  (void)state;
  profile_t *p = sample_types();
  sample_add(p, "a", 0, 0);
  sample_add(p, "b", 1, 1);
  p->losses[LOSS_DROPPED] = (uint64_t)-2; /* of a difference */
  profile_t *copy = sample_round_trip(p, pprof_write, NULL);
  assert_int_equal(copy->sample_count, 1);
  assert_int_equal((int64_t)copy->losses[LOSS_DROPPED], -2);
  profile_free(copy);
  profile_free(p);
}

/* -- other people's files -------------------------------------------------------------------------------- */

static void inlined_lines_become_frames(void **state) {
  (void)state;
  raw_t raw = raw_start(), location = {.len = 0}, sample = {.len = 0};
  put_number(&location, 1, UINT64_C(1) << 60); /* ids may be any number */
  MESSAGE(&location, 4, 1, 80, 2, 5);          /* innermost first */
  MESSAGE(&location, 4, 1, 70, 2, 9);
  put_bytes(&raw, 4, location.data, location.len);
  put_number(&sample, 1, UINT64_C(1) << 60); /* not packed: old writers */
  put_number(&sample, 2, 42);
  put_bytes(&raw, 2, sample.data, sample.len);
  profile_t *p = pprof_read(raw.data, raw.len, NULL);
  assert_non_null(p);
  const profile_stack_t *leaf = &p->stacks[p->samples[0].stack];
  assert_string_equal(profile_text(p, p->functions[p->frames[leaf->frame].function].name).data, "inner");
  assert_int_equal(p->frames[leaf->frame].line, 5);
  const profile_stack_t *caller = &p->stacks[leaf->parent];
  assert_string_equal(profile_text(p, p->functions[p->frames[caller->frame].function].name).data, "outer");
  assert_int_equal(caller->parent, 0);
  profile_free(p);
}

static void code_without_a_name_is_named_by_its_address(void **state) {
  (void)state;
  raw_t raw = raw_start();
  MESSAGE(&raw, 4, 1, 1, 2, 7, 3, 0xabc);
  MESSAGE(&raw, 2, 1, 1, 2, 42);
  profile_t *p = pprof_read(raw.data, raw.len, NULL);
  assert_non_null(p);
  uint32_t frame = p->stacks[p->samples[0].stack].frame;
  assert_string_equal(profile_text(p, p->functions[p->frames[frame].function].name).data, "0xabc [libc.so]");
  profile_free(p);
}

static void without_a_default_the_last_type_is_shown(void **state) {
  (void)state;
  raw_t raw = raw_start();
  MESSAGE(&raw, 1, 1, 3, 2, 2);
  profile_t *p = pprof_read(raw.data, raw.len, NULL);
  assert_int_equal(p->default_type, 1);
  profile_free(p);
}

/* -- hostile files --------------------------------------------------------------------------------------- */

static void wrong_indexes_are_told(void **state) {
  (void)state;
  raw_t raw = raw_start();
  MESSAGE(&raw, 2, 1, 99, 2, 1);
  assert_refused(&raw, "sample 1 names location 99, which is not there");
  raw = raw_start();
  MESSAGE(&raw, 2, 1, 99, 2, 1, 2, 1);
  assert_refused(&raw, "sample 1 has 2 values for 1 sample types");
  raw = raw_start();
  MESSAGE(&raw, 4, 1, 1, 2, 55);
  assert_refused(&raw, "location 1 names mapping 55, which is not there");
  raw = raw_start();
  MESSAGE(&raw, 5, 1, 70, 2, 3);
  assert_refused(&raw, "two functions have the id 70");
  raw = raw_start();
  MESSAGE(&raw, 5, 1, 90, 2, 1000);
  assert_refused(&raw, "function 3 names string 1000, which is not there");
  raw = raw_start();
  MESSAGE(&raw, 1, 1, (uint64_t)-1, 2, 2);
  assert_refused(&raw, "sample type 2 names string -1, which is not there");
  raw = raw_start();
  for (int i = 0; i < PROFILE_MAX_TYPES; i++) MESSAGE(&raw, 1, 1, 1, 2, 2);
  assert_refused(&raw, "it has 17 sample types; 16 can be read");
}

static void a_file_cut_anywhere_is_refused_when_zipped_and_harmless_when_not(void **state) {
  (void)state;
  profile_t *p = sample_full();
  size_t len, zipped_len;
  char *plain = unzipped(p, &len), *zipped = sample_written(p, pprof_write, &zipped_len);
  for (size_t cut = 0; cut < len; cut++) {
    char *exact = malloc(cut + 1); /* its own block: reading past the end shows */
    memcpy(exact, plain, cut);
    profile_free(pprof_read(exact, cut, NULL));
    free(exact);
  }
  for (size_t cut = 0; cut < zipped_len; cut++) {
    failure_t failure = {""};
    assert_null(profile_read(zipped, cut, READ_LIMIT_BYTES, &failure));
    assert_true(failure.text[0] != '\0');
  }
  free(plain);
  free(zipped);
  profile_free(p);
}

static void flipped_bytes_do_no_harm(void **state) {
  (void)state;
  profile_t *p = sample_full();
  size_t len;
  char *plain = unzipped(p, &len);
  for (size_t at = 0; at < len; at++)
    for (int bit = 0; bit < 8; bit++) {
      plain[at] ^= (char)(1 << bit);
      failure_t failure = {""};
      profile_t *damaged = pprof_read(plain, len, &failure);
      assert_true(damaged != NULL || failure.text[0] != '\0');
      if (damaged != NULL) profile_free(sample_round_trip(damaged, pprof_write, NULL));
      profile_free(damaged);
      plain[at] ^= (char)(1 << bit);
    }
  free(plain);
  profile_free(p);
}

static void a_file_that_inflates_beyond_the_limit_is_refused(void **state) {
  (void)state;
  sink_t *memory = sink_to_memory(), *gzip = sink_gzip(memory);
  static char zeros[1 << 20];
  failure_t failure = {""};
  size_t len;
  for (int i = 0; i < 4; i++) sink_write(gzip, zeros, sizeof zeros);
  sink_close(gzip, NULL);
  const char *data = sink_memory(memory, &len);
  assert_null(profile_read(data, len, 2 << 20, &failure));
  assert_string_equal(failure.text, "it is larger than 2 MiB, the most that is read");
  sink_close(memory, NULL);
}

/* -- little that asks for much --------------------------------------------------------------------------------- */

static char *repeated(const char *unit, size_t unit_len, size_t count) {
  char *data = malloc(unit_len * count);
  assert_non_null(data);
  for (size_t i = 0; i < count; i++) memcpy(data + i * unit_len, unit, unit_len);
  return data;
}

/* The start, and behind it samples of one location of 256 inlined calls, `repeats` times. */
static void assert_frames_refused(size_t repeats, size_t samples, const char *why) {
  enum { LINES = 256 };
  static char ids[100000], bytes[1 << 21];
  raw_t raw = raw_start(), location = {.len = 0};
  size_t len = 0;
  put_number(&location, 1, 1);
  for (int i = 0; i < LINES; i++) MESSAGE(&location, 4, 1, 70, 2, (uint64_t)i + 1);
  put_bytes(&raw, 4, location.data, location.len);
  memcpy(bytes, raw.data, raw.len);
  len = raw.len;
  memset(ids, 1, repeats);
  for (size_t i = 0; i < samples; i++) {
    raw_t head = {.len = 0}, field = {.len = 0};
    put_varint(&field, 1 << 3 | 2);
    put_varint(&field, repeats);
    put_varint(&head, 2 << 3 | 2);
    put_varint(&head, field.len + repeats + 2);
    memcpy(bytes + len, head.data, head.len), len += head.len;
    memcpy(bytes + len, field.data, field.len), len += field.len;
    memcpy(bytes + len, ids, repeats), len += repeats;
    memcpy(bytes + len, "\x10\x01", 2), len += 2;
    assert_true(len < sizeof bytes);
  }
  failure_t failure = {""};
  assert_null(pprof_read(bytes, len, &failure));
  assert_string_equal(failure.text, why);
}

static void what_a_file_may_take_is_limited_by_its_size(void **state) {
  (void)state;
  enum { MANY = 1 << 20 };
  assert_frames_refused(257, 1, "sample 1 has more than 65536 frames, the most that can be read");
  assert_frames_refused(250, 100, "its samples have more frames than a file of its size may have");
  failure_t failure = {""};
  char *empty = repeated("\x12\x00", 2, MANY); /* samples with nothing in them */
  assert_null(pprof_read(empty, 2 * MANY, &failure));
  assert_string_equal(failure.text, "its messages take more memory than those of a file of its size may");
  free(empty);
}

static void labels_of_a_sample_are_limited(void **state) {
  (void)state;
  enum { MANY = 1025 };
  static const char label[] = "\x1a\x04\x08\x03\x10\x04"; /* outer=inner */
  static char bytes[8192];
  raw_t raw = raw_start(), head = {.len = 0};
  put_varint(&head, 2 << 3 | 2);
  put_varint(&head, (sizeof label - 1) * MANY + 2);
  memcpy(raw.data + raw.len, head.data, head.len);
  memcpy(bytes, raw.data, raw.len + head.len);
  size_t len = raw.len + head.len;
  for (int i = 0; i < MANY; i++) memcpy(bytes + len, label, sizeof label - 1), len += sizeof label - 1;
  memcpy(bytes + len, "\x10\x01", 2), len += 2;
  failure_t failure = {""};
  assert_null(pprof_read(bytes, len, &failure));
  assert_string_equal(failure.text, "sample 1 has 1025 labels; 1024 can be read");
}

/* The smallest samples, labels and lines that mean anything. */
static void small_messages_can_be_read(void **state) {
  (void)state;
  enum { MANY = 100000 };
  static const char sample[] = "\x12\x0b\x0a\x01\x01\x10\x01\x1a\x04\x08\x03\x10\x04";
  raw_t raw = raw_start();
  MESSAGE(&raw, 4, 1, 1, 3, 0x1000);
  char *samples = repeated(sample, sizeof sample - 1, MANY),
       *bytes = malloc(raw.len + (sizeof sample - 1) * MANY);
  assert_non_null(bytes);
  memcpy(bytes, raw.data, raw.len);
  memcpy(bytes + raw.len, samples, (sizeof sample - 1) * MANY);
  failure_t failure = {""};
  profile_t *p = pprof_read(bytes, raw.len + (sizeof sample - 1) * MANY, &failure);
  assert_string_equal(failure.text, "");
  assert_int_equal(p->samples[0].values[0], MANY);
  profile_free(p);
  free(samples);
  free(bytes);
}

/* -- memory ---------------------------------------------------------------------------------------------- */

static bool round_trip_succeeds(void *context) {
  profile_t *copy = sample_round_trip(context, pprof_write, NULL);
  profile_free(copy);
  return copy != NULL;
}

static void running_out_of_memory_is_reported(void **state) {
  (void)state;
  profile_t *p = sample_full();
  fail_each_allocation(sample_write_succeeds, &(sample_writing_t){p, pprof_write});
  fail_each_allocation(round_trip_succeeds, p);
  profile_free(p);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(everything_comes_back),
    cmocka_unit_test(the_same_profile_gives_the_same_bytes),
    cmocka_unit_test(names_of_any_bytes_come_back),
    cmocka_unit_test(samples_without_value_are_not_written),
    cmocka_unit_test(inlined_lines_become_frames),
    cmocka_unit_test(code_without_a_name_is_named_by_its_address),
    cmocka_unit_test(without_a_default_the_last_type_is_shown),
    cmocka_unit_test(wrong_indexes_are_told),
    cmocka_unit_test(a_file_cut_anywhere_is_refused_when_zipped_and_harmless_when_not),
    cmocka_unit_test(flipped_bytes_do_no_harm),
    cmocka_unit_test(a_file_that_inflates_beyond_the_limit_is_refused),
    cmocka_unit_test(what_a_file_may_take_is_limited_by_its_size),
    cmocka_unit_test(labels_of_a_sample_are_limited),
    cmocka_unit_test(small_messages_can_be_read),
    cmocka_unit_test(running_out_of_memory_is_reported),
};
UNIT_MAIN(tests)
