/* SPDX-License-Identifier: MIT */
/* How many collections has the VM completed? Lua does not say; a userdata that nobody refers to is collected in each, and its
 * finalizer, which runs when the sweep is over, counts and sends it again. When the VM closes it is called once more, for
 * nothing: that is taken back.
 *
 * From 5.4 on there are collections of the young, which leave out what is old, as the messenger soon is: tens of thousands a second where
 * the heap is small, too many to send a new one for each. Each is made in one go, and turns over the white that the VM gives to new objects:
 * what is allocated next shows it. Those that follow each other with no allocation between are not told apart. */
#ifndef LUAPULSE_AGENT_HEAP_CYCLE_H
#define LUAPULSE_AGENT_HEAP_CYCLE_H

#include "agent/heap.h"

/* Begins to count, for the session that is being started. May raise a Lua memory error. */
void heap_cycle_watch(vm_t *vm, lua_State *L);

/* What is allocated shows that the white is another. In the allocator. */
void heap_cycle_turned(heap_t *heap);

static inline bool heap_cycle_has_turned(const heap_t *heap) {
  return lv_collects_young() && *heap->white != heap->last_white;
}

#endif
