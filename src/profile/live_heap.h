/* SPDX-License-Identifier: MIT */
/* The heap's part of a live profile: what was allocated where, and what of it is still in use.
 *
 * Mental model. A site is a cell of the live profile: a stack with labels. It counts what was allocated there (alloc_objects,
 * alloc_space) and what of that is in use now (inuse_objects, inuse_space). The set of blocks leads from the address of a
 * block that is in use to its site and to what it counts for there, so that a free takes off exactly what was added. It lies
 * in the region as well: a reader tells from it how many collections each block has survived, also after the writer was
 * killed. The set is bounded by the region; a block it has no room for is counted as allocated, never as in use, and as lost.
 *
 * Writer's calls, one at a time like all of them: no allocation, no lock. */
#ifndef LUAPULSE_PROFILE_LIVE_HEAP_H
#define LUAPULSE_PROFILE_LIVE_HEAP_H

#include "profile/live.h"

/* Exact, of all blocks, seen by the allocator itself: sampling or not. */
#define LIVE_HEAP_TOTALS(F)                                                                                  \
  F(alloc_bytes_total)                                                                                       \
  F(free_bytes_total)                                                                                        \
  F(alloc_objects_total)                                                                                     \
  F(free_objects_total)                                                                                      \
  F(realloc_total) /* each is a free and an alloc, and counted there too */                                  \
  F(realloc_grow_total)                                                                                      \
  F(realloc_shrink_total)                                                                                    \
  F(realloc_move_total)                                                                                      \
  F(failed_total) /* allocations the host's allocator refused */                                             \
  F(peak_bytes)  /* most that was in use at once: of the blocks that are followed, estimated when sampled */ \
  F(live_bytes)  /* in use now, of the same blocks */                                                        \
  F(live_blocks) /* that are followed */                                                                     \
  F(gc_cycles)   /* collections completed */                                                                 \
  F(vm_bytes_start)                                                                                          \
  F(vm_bytes) /* what the VM says it uses: at the start, and when it was last asked */

#define LIVE_HEAP_MEMBER(name) uint64_t name;
typedef struct {
  LIVE_HEAP_TOTALS(LIVE_HEAP_MEMBER)
  uint64_t event, peak_event; /* changes of what is in use are numbered; the one that made the peak */
} live_heap_totals_t;
#undef LIVE_HEAP_MEMBER

/* The values of the heap, in this order, after those of the cpu; the last two only when traced. */
enum {
  HEAP_ALLOC_OBJECTS,
  HEAP_ALLOC_SPACE,
  HEAP_INUSE_OBJECTS,
  HEAP_INUSE_SPACE,
  HEAP_PEAK_OBJECTS,
  HEAP_PEAK_SPACE,
  HEAP_VALUES
};

extern const char *const heap_value_names[HEAP_VALUES];
const char *heap_value_unit(int value);
/* How many of them a profile of that mode has. */
int heap_value_count(live_heap_mode_t mode);

live_heap_totals_t *live_heap_totals(const live_t *live);

/* The site of (node, labels), the one of [overflow] when there is no room. */
live_ref_t live_heap_site(live_t *live, live_ref_t node, live_ref_t labels);
live_ref_t live_heap_overflow_site(const live_t *live);
/* A block was allocated at the site, where it counts for so many objects and bytes. False when there is no room to follow it. One that
 * cannot be followed, or has no site of its own, is told as lost. */
bool live_heap_add(live_t *live, live_ref_t site, uint64_t address, uint32_t objects, uint64_t bytes);
/* It was freed. False when it is not one of those that are followed. */
bool live_heap_remove(live_t *live, uint64_t address);
/* A collection has completed: what it left is what survived it. */
void live_heap_end_cycle(live_t *live);
/* The last one was none. */
void live_heap_take_back_cycle(live_t *live);
/* Readers are shown what was in use when the last collection completed, not what is in use now. */
void live_heap_show_completed(live_t *live, bool completed);

#endif
