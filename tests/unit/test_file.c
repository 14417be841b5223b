/* SPDX-License-Identifier: MIT */
/* Files are whole or not there at all, and formats are told by their names. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "unit.h"

#include "failing_memory.h"
#include "folder.h"
#include "sample_profile.h"

static size_t count_files(void) {
  DIR *directory = opendir(".");
  size_t count = 0;
  for (struct dirent *entry; (entry = readdir(directory)) != NULL;)
    count += entry->d_name[0] != '.' || strlen(entry->d_name) > 2;
  closedir(directory);
  return count;
}

static void write_new(void *context, sink_t *sink) {
  (void)context;
  sink_text(sink, "new");
}

static void write_and_fail(void *context, sink_t *sink) {
  (void)context;
  sink_text(sink, "half");
  sink_fail(sink, ENOSPC);
}

static void put(const char *path, const char *text) {
  FILE *file = fopen(path, "w");
  fputs(text, file);
  fclose(file);
}

static void assert_holds(const char *path, const char *text) {
  char have[100] = "";
  FILE *file = fopen(path, "r");
  assert_non_null(file);
  have[fread(have, 1, sizeof have - 1, file)] = '\0';
  fclose(file);
  assert_string_equal(have, text);
}

static void a_new_file_is_private_and_alone(void **state) {
  (void)state;
  struct stat status;
  assert_true(file_replace("out", write_new, NULL, NULL));
  assert_holds("out", "new");
  assert_int_equal(stat("out", &status), 0);
  assert_int_equal(status.st_mode & 0777, 0600);
  assert_int_equal(count_files(), 1);
}

static void when_writing_fails_the_old_file_stays(void **state) {
  (void)state;
  failure_t failure = {""};
  put("out", "old");
  assert_false(file_replace("out", write_and_fail, NULL, &failure));
  assert_string_equal(failure.text, "out: cannot be written: No space left on device");
  assert_holds("out", "old");
  assert_int_equal(count_files(), 1);
}

static void a_link_is_replaced_and_its_target_left_alone(void **state) {
  (void)state;
  struct stat status;
  put("target", "precious");
  assert_int_equal(symlink("target", "out"), 0);
  assert_true(file_replace("out", write_new, NULL, NULL));
  assert_holds("target", "precious");
  assert_holds("out", "new");
  assert_int_equal(lstat("out", &status), 0);
  assert_true(S_ISREG(status.st_mode));
}

static void devices_directories_and_pipes_are_refused(void **state) {
  (void)state;
  failure_t failure = {""};
  assert_false(file_replace("/dev/null", write_new, NULL, &failure));
  assert_string_equal(failure.text, "/dev/null: is a device, not a regular file");
  assert_false(file_replace("/dev/stdout", write_new, NULL, &failure));
  assert_int_equal(mkdir("dir", 0700), 0);
  assert_false(file_replace("dir", write_new, NULL, &failure));
  assert_string_equal(failure.text, "dir: is a directory, not a regular file");
  assert_false(file_replace("dir/", write_new, NULL, &failure));
  assert_int_equal(mkfifo("pipe", 0600), 0);
  assert_false(file_replace("pipe", write_new, NULL, &failure));
  assert_string_equal(failure.text, "pipe: is a pipe, not a regular file");
  assert_int_equal(symlink("pipe", "link"), 0);
  assert_false(file_replace("link", write_new, NULL, &failure));
  assert_int_equal(symlink("/proc/self/fd/1", "descriptor"), 0);
  assert_false(file_replace("descriptor", write_new, NULL, &failure));
  assert_int_equal(count_files(), 4);
}

static void a_missing_directory_is_named(void **state) {
  (void)state;
  failure_t failure = {""};
  assert_false(file_replace("nowhere/out", write_new, NULL, &failure));
  assert_string_equal(failure.text, "nowhere/out: its directory cannot be opened: No such file or directory");
}

static void every_format_is_written_to_a_file_and_told_by_its_name(void **state) {
  (void)state;
  profile_t *p = sample_full();
  for (const format_t *format = formats; format->name != NULL; format++) {
    char path[64];
    snprintf(path, sizeof path, "./app%s", format->extension);
    assert_ptr_equal(format_for_path(path), format);
    assert_ptr_equal(format_by_name(format->name), format);
    assert_ptr_equal(format_by_name(format->extension + 1), format);
    assert_true(format_write_file(p, format, path, NULL));
  }
  assert_string_equal(format_for_path("dir/callgrind.out.123")->name, "callgrind");
  assert_null(format_for_path("dir.folded/app"));
  assert_null(format_by_name("nothing"));
  profile_free(p);
}

static void a_profile_that_ran_out_of_memory_is_not_written(void **state) {
  (void)state;
  failure_t failure = {""};
  profile_t *p = sample_full();
  p->failed = true;
  assert_false(format_write_file(p, format_by_name("pprof"), "out.pb.gz", &failure));
  assert_int_equal(count_files(), 0);
  profile_free(p);
}

static void what_cannot_be_read_is_named(void **state) {
  (void)state;
  failure_t failure = {""};
  assert_null(profile_read_file("nothing", &failure));
  assert_string_equal(failure.text, "nothing: cannot be read: No such file or directory");
  assert_null(profile_read_file(".", &failure));
  assert_string_equal(failure.text, ".: cannot be read: it is a directory");
  put("empty", "");
  assert_null(profile_read_file("empty", &failure));
  assert_string_equal(failure.text, "empty: cannot be read: it is empty");
}

static bool write_then_read(void *context) {
  const profile_t *p = context;
  for (const format_t *format = formats; format->name != NULL; format++)
    if (!format_write_file(p, format, "out", NULL)) return false;
  if (!format_write_file(p, &formats[0], "out", NULL)) return false;
  profile_t *copy = profile_read_file("out", NULL);
  profile_free(copy);
  return copy != NULL;
}

static void running_out_of_memory_is_reported_and_leaves_no_litter(void **state) {
  (void)state;
  profile_t *p = sample_full();
  fail_each_allocation(write_then_read, p);
  assert_int_equal(count_files(), 1);
  profile_free(p);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, folder_enter, folder_leave)

static const struct CMUnitTest tests[] = {
    TEST(a_new_file_is_private_and_alone),
    TEST(when_writing_fails_the_old_file_stays),
    TEST(a_link_is_replaced_and_its_target_left_alone),
    TEST(devices_directories_and_pipes_are_refused),
    TEST(a_missing_directory_is_named),
    TEST(every_format_is_written_to_a_file_and_told_by_its_name),
    TEST(a_profile_that_ran_out_of_memory_is_not_written),
    TEST(what_cannot_be_read_is_named),
    TEST(running_out_of_memory_is_reported_and_leaves_no_litter),
};
UNIT_MAIN(tests)
