/* SPDX-License-Identifier: MIT */
/* The file of the test that runs: a whole program to read, and to damage. */
#ifndef LUAPULSE_TESTS_UNIT_OWN_FILE_H
#define LUAPULSE_TESTS_UNIT_OWN_FILE_H

#include <stdlib.h>

#include "unit.h"

/* Its bytes, to be freed. */
static inline uint8_t *own_file(size_t *len) {
  FILE *file = fopen("/proc/self/exe", "rb");
  assert_non_null(file);
  fseek(file, 0, SEEK_END);
  *len = (size_t)ftell(file);
  rewind(file);
  uint8_t *bytes = malloc(*len);
  assert_int_equal(fread(bytes, 1, *len, file), *len);
  fclose(file);
  return bytes;
}

#endif
