/* SPDX-License-Identifier: MIT */
/* Sinks: what is written arrives, and what is lost is told. */
#include "format/sink.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "unit.h"

#include "failing_memory.h"
#include "sample_profile.h"

static void memory_holds_what_was_written(void **state) {
  (void)state;
  sink_t *sink = sink_to_memory();
  size_t len;
  sink_text(sink, "a");
  sink_format(sink, "%d", 42);
  sink_write(sink, "\0z", 2);
  assert_memory_equal(sink_memory(sink, &len), "a42\0z", 5);
  assert_int_equal(len, 5);
  assert_true(sink_close(sink, NULL));
}

static void a_full_disk_is_reported_at_close(void **state) {
  (void)state;
  failure_t failure = {""};
  int fd = open("/dev/full", O_WRONLY);
  sink_t *sink = sink_to_fd(fd);
  sink_text(sink, "lost");
  assert_false(sink_close(sink, &failure));
  assert_string_equal(failure.text, strerror(ENOSPC));
  close(fd);
}

static void the_first_failure_is_kept(void **state) {
  (void)state;
  failure_t failure = {""};
  sink_t *sink = sink_to_memory();
  size_t len;
  sink_fail(sink, ENOMEM);
  sink_fail(sink, EIO);
  sink_text(sink, "ignored");
  assert_null(sink_memory(sink, &len));
  assert_false(sink_close(sink, &failure));
  assert_string_equal(failure.text, strerror(ENOMEM));
}

static void formatted_text_that_is_cut_fails_the_sink(void **state) {
  (void)state;
  char big[3000];
  memset(big, 'x', sizeof big - 1);
  big[sizeof big - 1] = '\0';
  sink_t *sink = sink_to_memory();
  sink_format(sink, "%s", big);
  assert_false(sink_close(sink, NULL));
}

static void many_bytes_pass_through_gzip_whole(void **state) {
  (void)state;
  sink_t *memory = sink_to_memory(), *gzip = sink_gzip(memory);
  for (int i = 0; i < 50000; i++) sink_format(gzip, "f%d 1\n", i);
  assert_true(sink_close(gzip, NULL));
  size_t len;
  const char *data = sink_memory(memory, &len);
  assert_true(len < 500000);
  profile_t *p = profile_read(data, len, READ_LIMIT_BYTES, NULL);
  assert_int_equal(p->sample_count, 50000);
  profile_free(p);
  sink_close(memory, NULL);
}

static bool gzip_bytes(void *context) {
  (void)context;
  sink_t *memory = sink_to_memory();
  if (memory == NULL) return false;
  sink_t *gzip = sink_gzip(memory);
  if (gzip != NULL) {
    unsigned seed = 7;
    for (int i = 0; i < 200000; i++) { /* incompressible: the memory sink has to grow */
      char byte = (char)rand_r(&seed);
      sink_write(gzip, &byte, 1);
    }
    sink_close(gzip, NULL);
  }
  return sink_close(memory, NULL) && gzip != NULL;
}

static void running_out_of_memory_is_reported(void **state) {
  (void)state;
  fail_each_allocation(gzip_bytes, NULL);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(memory_holds_what_was_written),
    cmocka_unit_test(a_full_disk_is_reported_at_close),
    cmocka_unit_test(the_first_failure_is_kept),
    cmocka_unit_test(formatted_text_that_is_cut_fails_the_sink),
    cmocka_unit_test(many_bytes_pass_through_gzip_whole),
    cmocka_unit_test(running_out_of_memory_is_reported),
};
UNIT_MAIN(tests)
