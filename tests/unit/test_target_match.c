/* SPDX-License-Identifier: MIT */
/* Paths by patterns, as configuration files have them, and patterns that would go through all there is. */
#include "attach/target_match.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "unit.h"

#include "folder.h"

static const char *const folders[] = {"conf.d",       "home",     "home/ann",
                                      "home/ann/web", "home/bob", "home/bob/web"};
static const char *const files[] = {"nginx.conf",          "conf.d/a.conf", "conf.d/b.conf",
                                    "conf.d/.hidden.conf", "conf.d/c.text", "home/ann/web/x.conf",
                                    "home/bob/web/y.conf"};
enum { FOLDERS = sizeof folders / sizeof folders[0], FILES = sizeof files / sizeof files[0] };

static int set_up(void **state) {
  assert_int_equal(folder_enter(state), 0);
  for (int i = 0; i < FOLDERS; i++) assert_int_equal(mkdir(folders[i], 0700), 0);
  for (int i = 0; i < FILES; i++) close(open(files[i], O_CREAT | O_WRONLY, 0600));
  return 0;
}

typedef struct {
  char paths[8][128];
  size_t count, wanted; /* how many until it is done */
} found_t;

static bool add(void *context, const char *path) {
  found_t *found = context;
  assert_true(found->count < 8);
  snprintf(found->paths[found->count++], 128, "%s", path);
  return found->count == found->wanted;
}

static int by_text(const void *a, const void *b) {
  return strcmp(a, b);
}

static void expect(const char *pattern, const char *first, const char *second) {
  found_t found = {.wanted = 9};
  unsigned left = 1000;
  assert_false(target_match(getpid(), pattern, &left, add, &found));
  qsort(found.paths, found.count, sizeof found.paths[0], by_text);
  assert_int_equal(found.count, (first != NULL) + (second != NULL));
  if (first != NULL) assert_string_equal(found.paths[0], first);
  if (second != NULL) assert_string_equal(found.paths[1], second);
}

static void patterns_of_real_configurations(void **state) {
  (void)state;
  char whole[64], first[64], second[64];
  expect("conf.d/*.conf", "conf.d/a.conf", "conf.d/b.conf");
  expect("home/*/web/[xy].conf", "home/ann/web/x.conf", "home/bob/web/y.conf");
  expect("home/*/*/?.conf", "home/ann/web/x.conf", "home/bob/web/y.conf");
  expect("conf.d/*.none", NULL, NULL);
  expect("none/*", NULL, NULL);
  expect("ng*", "nginx.conf", NULL);
  expect("none.conf", "none.conf", NULL); /* who opens it will see */
  snprintf(whole, sizeof whole, "%s/conf.d/*.conf", folder_path);
  snprintf(first, sizeof first, "%s/conf.d/a.conf", folder_path);
  snprintf(second, sizeof second, "%s/conf.d/b.conf", folder_path);
  expect(whole, first, second);
}

static void the_first_is_enough(void **state) {
  (void)state;
  found_t found = {.wanted = 1};
  unsigned left = 1000;
  assert_true(target_match(getpid(), "conf.d/*.conf", &left, add, &found));
  assert_int_equal(found.count, 1);
}

static bool ignore(void *context, const char *path) {
  ++*(unsigned *)context;
  (void)path;
  return false;
}

static void patterns_without_end_have_one(void **state) {
  (void)state;
  unsigned left = 4096, count = 0;
  assert_false(target_match(getpid(), "/*/*/*/*/*/*/*/*/x", &left, ignore, &count));
  assert_int_equal(count, 0);
  assert_int_equal(left, 4096);
  left = 50;
  assert_false(target_match(getpid(), "/proc/*/*/*", &left, ignore, &count));
  assert_int_equal(left, 0);
  assert_true(count <= 50);
  assert_false(target_match(getpid(), "conf.d/*", &left, ignore, &count));
  assert_true(count <= 50);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test_setup_teardown(patterns_of_real_configurations, set_up, folder_leave),
    cmocka_unit_test_setup_teardown(the_first_is_enough, set_up, folder_leave),
    cmocka_unit_test_setup_teardown(patterns_without_end_have_one, set_up, folder_leave),
};
UNIT_MAIN(tests)
