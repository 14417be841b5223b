/* SPDX-License-Identifier: MIT */
/* Which blocks may be followed: what every free asks, of which hardly any is of one.
 *
 * Mental model. Addresses are put into classes by a hash; a bit for each says whether a block of it is followed. Few classes are
 * enough for few blocks, and their bits stay in the processor's cache beside what the program keeps there: the filter starts
 * small and doubles, so that at most one class in LEAST_SPARSE has a block. Blocks are counted by the finest classes, from which the
 * bits of any size are made. */
#ifndef LUAPULSE_AGENT_HEAP_FILTER_H
#define LUAPULSE_AGENT_HEAP_FILTER_H

#include <stdbool.h>
#include <stdint.h>

enum { HEAP_FILTER_FIRST = 4096, HEAP_FILTER_MOST = 65536 };

typedef struct {
  _Alignas(64) uint64_t bits[HEAP_FILTER_MOST / 64];
  uint8_t counts[HEAP_FILTER_MOST]; /* blocks of each of the finest classes; 255: so many, or more */
  uint32_t blocks;
} heap_filter_t;

/* The number of classes less one; kept by whoever asks, beside what it needs as often. */
typedef uint32_t heap_filter_mask_t;

/* Of its lower half, which is one instruction less than a good hash of all of it; blocks are not 4 GiB apart by habit. */
static inline uint32_t heap_filter_class(uint64_t address) {
  return (uint32_t)address * 0x9e3779b1u >> 16;
}

static inline bool heap_filter_may_have(const heap_filter_t *filter, heap_filter_mask_t mask,
                                        uint64_t address) {
  uint32_t bit = heap_filter_class(address) & mask;
  return (filter->bits[bit / 64] >> bit % 64 & 1) != 0;
}

void heap_filter_add(heap_filter_t *filter, heap_filter_mask_t *mask, uint64_t address);
void heap_filter_remove(heap_filter_t *filter, heap_filter_mask_t mask, uint64_t address);

#endif
