/* SPDX-License-Identifier: MIT */
/* An empty folder that a test is in: set-up and tear-down for cmocka. */
#ifndef LUAPULSE_TESTS_FOLDER_H
#define LUAPULSE_TESTS_FOLDER_H

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char folder_path[32];

static inline int folder_enter(void **state) {
  (void)state;
  strcpy(folder_path, "/tmp/luapulse-test-XXXXXX");
  return mkdtemp(folder_path) == NULL || chdir(folder_path) != 0 ? -1 : 0;
}

static inline int folder_remove_one(const char *path, const struct stat *status, int kind,
                                    struct FTW *place) {
  (void)status;
  (void)kind;
  (void)place;
  return remove(path);
}

static inline int folder_leave(void **state) {
  (void)state;
  return chdir("/") != 0 ? -1 : nftw(folder_path, folder_remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

#endif
