/* SPDX-License-Identifier: MIT */
/* The main() of a unit test: `prog --list` prints the names of its tests, `prog NAME` runs one, `prog` runs
 * all. The runner gives each test a process of its own. */
#ifndef LUAPULSE_TESTS_UNIT_H
#define LUAPULSE_TESTS_UNIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "../sanitized.h"

static inline int unit_list(const struct CMUnitTest *tests, size_t count) {
  for (size_t i = 0; i < count; i++) puts(tests[i].name);
  return 0;
}

static inline int unit_has(const struct CMUnitTest *tests, size_t count, const char *name) {
  for (size_t i = 0; i < count; i++)
    if (strcmp(tests[i].name, name) == 0) return 1;
  fprintf(stderr, "there is no test '%s'\n", name);
  return 0;
}

#define UNIT_MAIN(tests)                                                            \
  int main(int argc, char **argv) {                                                 \
    size_t count = sizeof(tests) / sizeof(tests)[0];                                \
    if (argc > 1 && strcmp(argv[1], "--list") == 0) return unit_list(tests, count); \
    if (argc > 1) {                                                                 \
      if (!unit_has(tests, count, argv[1])) return 2;                               \
      cmocka_set_test_filter(argv[1]);                                              \
    }                                                                               \
    return cmocka_run_group_tests(tests, NULL, NULL);                               \
  }

#endif
