/* SPDX-License-Identifier: MIT */
/* Files of strangers: what is no regular file is told, and never opened. */
#include "name/regular_file.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "unit.h"

#include "folder.h"

/* Gives whether anybody opened it meanwhile. */
static int ask(const char *path, bool *opened) {
  struct pollfd events = {inotify_init1(IN_CLOEXEC), POLLIN, 0};
  assert_true(events.fd >= 0 && inotify_add_watch(events.fd, path, IN_OPEN) >= 0);
  int fd = regular_file_open(path);
  *opened = poll(&events, 1, 0) > 0;
  close(events.fd);
  return fd;
}

static void regular_files_are_opened(void **state) {
  (void)state;
  bool opened;
  char text[8];
  int fd = open("file", O_WRONLY | O_CREAT, 0600);
  assert_int_equal(write(fd, "text", 4), 4);
  close(fd);
  assert_int_equal(symlink("file", "link"), 0);
  for (int i = 0; i < 2; i++) {
    fd = ask(i == 0 ? "file" : "link", &opened);
    assert_true(fd >= 0 && opened);
    assert_int_equal(read(fd, text, sizeof text), 4);
    assert_int_equal(fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    close(fd);
  }
}

static void others_are_not(void **state) {
  (void)state;
  bool opened;
  assert_int_equal(mkfifo("pipe", 0600), 0);
  assert_int_equal(ask("pipe", &opened), REGULAR_FILE_OTHER);
  assert_false(opened);
  assert_int_equal(symlink("pipe", "link"), 0);
  assert_int_equal(ask("link", &opened), REGULAR_FILE_OTHER);
  assert_false(opened);
  assert_int_equal(ask(".", &opened), REGULAR_FILE_OTHER);
  assert_false(opened);
  if (mknod("device", S_IFCHR | 0600, makedev(1, 3)) != 0)
    return; /* who may not make one has seen the pipe */
  assert_int_equal(ask("device", &opened), REGULAR_FILE_OTHER);
  assert_false(opened);
}

static void what_is_not_there_says_why(void **state) {
  (void)state;
  assert_int_equal(regular_file_open("file"), REGULAR_FILE_NONE);
  assert_int_equal(errno, ENOENT);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test_setup_teardown(regular_files_are_opened, folder_enter, folder_leave),
    cmocka_unit_test_setup_teardown(others_are_not, folder_enter, folder_leave),
    cmocka_unit_test_setup_teardown(what_is_not_there_says_why, folder_enter, folder_leave),
};
UNIT_MAIN(tests)
