/* SPDX-License-Identifier: MIT */
/* Another VM that allocates by our wrapper: whoever made it gave lua_newstate what lua_getallocf had told of the profiled one, as Lua Lanes
 * does. It may run on another thread, and what the wrapper counts and walks is for one VM on one thread at a time.
 *
 * Mental model. The first block that a VM asks for has a size that no other of its blocks has by design. From 5.2 on the allocator is told
 * that it is for a thread, which settles it. Else a block of that size is doubted until the next call: by then a VM has put into it where
 * its global_State lies, within the block. Once another VM was found the wrapper hands on for good: it is put in place never again, and its
 * memory, less than 1 KiB, is never given back, for nobody tells when the last such VM is gone.
 *
 * Runs inside the allocator, on any thread: no Lua, no allocation, no locks. */
#ifndef LUAPULSE_AGENT_HEAP_FOREIGN_H
#define LUAPULSE_AGENT_HEAP_FOREIGN_H

#include "agent/heap.h"

/* Learns the size of that first block. Ordinary context. */
void heap_foreign_learn(heap_t *heap);
/* A block of that size is asked for: true when it is another VM's, from when on the wrapper hands on. */
bool heap_foreign_begins(heap_t *heap, size_t type);
/* It was made, and nothing told what it is for. */
void heap_foreign_doubt(heap_t *heap, const void *block);
/* The next call: HEAP_DOUBTED becomes what it was before, or HEAP_OFF. */
void heap_foreign_settle(heap_t *heap);

#endif
