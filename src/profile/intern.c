/* SPDX-License-Identifier: MIT */
/* Open addressing with linear probing, at most three quarters full. */
#include "profile/intern.h"

#include <string.h>

#include "profile/mem.h"

enum { FIRST_ROOM = 64 };

uint32_t hash_bytes(const void *data, size_t len, uint32_t seed) {
  const unsigned char *bytes = data; /* FNV-1a, then mixed: the low bits choose the slot */
  uint32_t hash = 2166136261u ^ seed;
  for (size_t i = 0; i < len; i++) hash = (hash ^ bytes[i]) * 16777619u;
  hash ^= hash >> 15;
  hash *= 0x2c1b3c6du;
  return hash ^ (hash >> 13);
}

intern_t *intern_new(void) {
  return mem_alloc(sizeof(intern_t));
}

void intern_free(intern_t *index) {
  if (index == NULL) return;
  mem_free(index->slots);
  mem_free(index->hashes);
  mem_free(index);
}

void intern_clear(intern_t *index) {
  if (index->room > 0) memset(index->slots, 0, index->room * sizeof *index->slots);
  index->used = 0;
}

uint32_t intern_find(const intern_t *index, uint32_t hash, intern_equal_t *equal, const void *owner,
                     const void *wanted) {
  if (index->room == 0) return UINT32_MAX;
  size_t mask = index->room - 1;
  for (size_t i = hash & mask; index->slots[i] != 0; i = (i + 1) & mask)
    if (index->hashes[i] == hash && equal(owner, wanted, index->slots[i] - 1)) return index->slots[i] - 1;
  return UINT32_MAX;
}

static void put(intern_t *index, uint32_t hash, uint32_t slot) {
  size_t mask = index->room - 1;
  size_t i = hash & mask;
  while (index->slots[i] != 0) i = (i + 1) & mask;
  index->slots[i] = slot;
  index->hashes[i] = hash;
}

static bool grow(intern_t *index) {
  intern_t bigger = {.room = index->room == 0 ? FIRST_ROOM : index->room * 2, .used = index->used};
  bigger.slots = mem_alloc(bigger.room * sizeof *bigger.slots);
  bigger.hashes = mem_alloc(bigger.room * sizeof *bigger.hashes);
  if (bigger.slots == NULL || bigger.hashes == NULL) {
    mem_free(bigger.slots);
    mem_free(bigger.hashes);
    return false;
  }
  for (size_t i = 0; i < index->room; i++)
    if (index->slots[i] != 0) put(&bigger, index->hashes[i], index->slots[i]);
  mem_free(index->slots);
  mem_free(index->hashes);
  *index = bigger;
  return true;
}

bool intern_add(intern_t *index, uint32_t hash, uint32_t position) {
  if ((index->used + 1) * 4 > index->room * 3 && !grow(index)) return false;
  put(index, hash, position + 1);
  index->used++;
  return true;
}
