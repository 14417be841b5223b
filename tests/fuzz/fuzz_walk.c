/* SPDX-License-Identifier: MIT */
/* libFuzzer over the walker; see walk_one.h. */
#include "walk_one.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  return walk_one(data, size);
}
