/* SPDX-License-Identifier: MIT */
/* Heap memory of the profiler; see mem.h. */
#include "profile/mem.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

void *(*mem_realloc)(void *old, size_t size) = realloc;

void *mem_alloc(size_t size) {
  if (mem_realloc == realloc) return calloc(1, size);
  void *block = mem_realloc(NULL, size);
  if (block != NULL) memset(block, 0, size);
  return block;
}

void mem_free(void *block) {
  free(block);
}

bool mem_reserve(void **array, size_t *capacity, size_t need, size_t size) {
  if (need <= *capacity) return true;
  size_t grown = *capacity < 8 ? 8 : *capacity;
  while (grown < need) {
    if (grown > SIZE_MAX / 2 / size) return false;
    grown *= 2;
  }
  void *bigger = mem_realloc(*array, grown * size);
  if (bigger == NULL) return false;
  *array = bigger;
  *capacity = grown;
  return true;
}
