/* SPDX-License-Identifier: MIT */
/* The memory of the own process, read in a signal handler or by another thread of it.
 *
 * Guesses are read through the kernel (process_vm_readv), which fails where a load would fault: no fault handler, so the
 * host's is its own. Several that are foreseen take one call. Where the VM leads, the kernel is asked once for each page whether it can be read. What live objects lead to is
 * loaded directly. Unless `strict`: then the VM may run on meanwhile, and everything goes through the kernel. Async-signal-safe; one user at a time. */
#ifndef LUAPULSE_WALK_MEMORY_OWN_H
#define LUAPULSE_WALK_MEMORY_OWN_H

#include <sys/types.h>

#include "walk/memory.h"

enum {
  MEMORY_WINDOW = 16384,
  MEMORY_PAGES = 64,
  MEMORY_CLOSE = 128, /* bytes between guesses that are read in one piece */
  MEMORY_FORESEEN = WALK_FORESEEN * (192 + MEMORY_CLOSE) /* of structures that a walk reads */
};

typedef struct {
  uint64_t low, high; /* where reads are expected */
  uint64_t start;     /* what is in its bytes now: [start, start + len) */
  uint32_t len;       /* 0: nothing */
} memory_window_t;

/* A piece of one page, or what goes on in the next. */
typedef struct {
  uint64_t start;
  uint32_t len, offset; /* in bytes[] */
  bool is_readable;
} memory_span_t;

typedef struct {
  uint32_t count, used;
  memory_span_t spans[WALK_FORESEEN]; /* by address */
  uint8_t bytes[MEMORY_FORESEEN];
} memory_foreseen_t;

typedef struct {
  walk_memory_t memory; /* first */
  pid_t pid;            /* of this process */
  bool strict;
  bool may_ask; /* the kernel tells of a page whether it can be read */
  bool
      calm; /* the walk is called by the VM's own thread, from its allocator: its stacks are whole and mapped … */
  uint64_t vm_low, vm_high;       /* … and so is this */
  uint64_t stack_low, stack_high; /* the native stack of the thread that is walked: mapped */
  memory_window_t windows[WALK_REGIONS];
  uint64_t walks; /* so far: what is known of pages is of one walk */
  uint64_t pages
      [MEMORY_PAGES]; /* known to be mapped, with the number of the walk: the thread that would unmap is this one */
  memory_foreseen_t foreseen; /* by guesses */
  uint8_t window_bytes[WALK_REGIONS][MEMORY_WINDOW];
} memory_own_t;

void memory_own_init(memory_own_t *own, pid_t pid);
/* Before each walk: forgets what was fetched. */
void memory_own_begin(memory_own_t *own, bool strict, uint64_t stack_low, uint64_t stack_high);
/* The same for a calm walk of a VM whose global_State lies in [vm_low, vm_high). */
void memory_own_begin_calm(memory_own_t *own, uint64_t stack_low, uint64_t stack_high, uint64_t vm_low,
                           uint64_t vm_high);

#endif
