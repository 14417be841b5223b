/* SPDX-License-Identifier: MIT */
/* Which blocks may be followed; see heap_filter.h. Runs in the allocator. */
#include "agent/heap_filter.h"

#include <string.h>

enum { LEAST_SPARSE = 64 };

static void set_bit(heap_filter_t *filter, uint32_t bit) {
  filter->bits[bit / 64] |= (uint64_t)1 << bit % 64;
}

/* Some microseconds, four times in all. */
static void grow(heap_filter_t *filter, heap_filter_mask_t *mask) {
  *mask = (heap_filter_mask_t)(2 * *mask + 1);
  memset(filter->bits, 0, ((size_t)*mask + 1) / 8);
  for (uint32_t fine = 0; fine < HEAP_FILTER_MOST; fine++)
    if (filter->counts[fine] > 0) set_bit(filter, fine & *mask);
}

void heap_filter_add(heap_filter_t *filter, heap_filter_mask_t *mask, uint64_t address) {
  uint32_t fine = heap_filter_class(address);
  if (filter->counts[fine] < UINT8_MAX) filter->counts[fine]++;
  set_bit(filter, fine & *mask);
  filter->blocks++;
  if (filter->blocks > (*mask + 1u) / LEAST_SPARSE && *mask < HEAP_FILTER_MOST - 1) grow(filter, mask);
}

/* The bit goes with the last block that has it: the address may be the next one to be handed out, again and again. */
void heap_filter_remove(heap_filter_t *filter, heap_filter_mask_t mask, uint64_t address) {
  uint32_t fine = heap_filter_class(address), bit = fine & mask;
  filter->blocks--;
  if (filter->counts[fine] == UINT8_MAX) return; /* so many, or more: not known */
  filter->counts[fine]--;
  for (uint32_t other = bit; other < HEAP_FILTER_MOST; other += mask + 1u)
    if (filter->counts[other] > 0) return;
  filter->bits[bit / 64] &= ~((uint64_t)1 << bit % 64);
}
