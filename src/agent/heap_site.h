/* SPDX-License-Identifier: MIT */
/* Where is that being allocated? The stack of a VM that stands in its allocator, walked out of memory, as a site of the live
 * profile. No interface of Lua's. */
#ifndef LUAPULSE_AGENT_HEAP_SITE_H
#define LUAPULSE_AGENT_HEAP_SITE_H

#include "agent/heap.h"

typedef struct heap_walk heap_walk_t;

/* What the allocator was asked for. */
typedef struct {
  uint64_t address; /* of the block that is to grow or shrink, 0: a new one */
  size_t old_size;  /* its size; of a new one, the type from 5.2 on */
  size_t new_size;
} heap_request_t;

/* Memory to walk with, NULL when there is none. On the VM's thread. */
heap_walk_t *heap_walk_new(vm_t *vm);
size_t heap_walk_size(void);
heap_filter_t *heap_walk_filter(heap_walk_t *walk); /* empty */
void heap_walk_free(heap_walk_t *walk);

/* The site of an allocation under way. The VM is kept out of. */
live_ref_t heap_site(heap_t *heap, const heap_request_t *request);
/* The site of what the profiler itself makes Lua allocate. */
live_ref_t heap_own_site(heap_t *heap);
/* Tracing: a block was allocated. */
void heap_site_allocated(heap_t *heap, const heap_request_t *request, uint64_t address);
/* Blocks that were allocated before now were not all told by heap_site_allocated(). */
void heap_site_resumed(heap_t *heap);
/* Tracing: a block was freed: what is remembered of it is not true any more. */
void heap_site_freed(heap_t *heap, uint64_t address, size_t size);

#endif
