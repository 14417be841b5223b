/* SPDX-License-Identifier: MIT */
/* Heap profiling: a wrapper around the VM's allocator.
 *
 * Mental model. Every allocation of a VM goes through one function of its host's; lua_setallocf puts ours before it. Ours
 * counts, and hands on. Sampling: a budget of bytes, drawn from the exponential distribution, is used up by what is
 * allocated; the block that uses it up is a sample, of a weight that makes estimates unbiased whatever the sizes
 * (heap_weight.h). Tracing: every block is one. A sample's stack is walked before the real allocation, while everything the
 * VM has is whole; it then is followed until it is freed (profile/live_heap.h).
 *
 * The wrapper runs on the thread that runs the VM, wherever Lua allocates: it calls nothing of Lua's, raises nothing, and takes
 * no memory of its own. It outlives its session: where the host has put its own allocator around ours meanwhile, ours cannot
 * be taken out; and somebody may have kept what lua_getallocf told, as strings do on 5.5. It only hands on from then. */
#ifndef LUAPULSE_AGENT_HEAP_H
#define LUAPULSE_AGENT_HEAP_H

#include "agent/heap_filter.h"
#include "agent/heap_weight.h"
#include "agent/host_allocator.h"
#include "agent/vm.h"
#include "profile/live_heap.h"

typedef enum {
  HEAP_OFF,     /* hands on */
  HEAP_PROBED,  /* hands on, and tells that it was called */
  HEAP_DOUBTED, /* another VM may use it; see heap_foreign.h */
  HEAP_LAST,    /* hands on until the VM is gone, and ends with it */
  HEAP_PAUSED,  /* and sees what is freed */
  HEAP_SAMPLING,
  HEAP_TRACING
} heap_state_t;

struct heap_walk; /* see heap_site.h */

typedef struct heap {
  /* what every allocation touches, in one cache line (see new_heap) */
  lua_Alloc allocate; /* the host's … */
  void *ud;           /* … with what belongs to it */
  _Atomic int state;  /* heap_state_t; a forked child's is turned off */
  heap_filter_mask_t filter_mask;
  int64_t
      left; /* bytes before that of the next sample; below zero: it is due, as the subtraction itself tells */
  uint64_t alloc_objects, free_objects, free_bytes;
  heap_filter_t *filter; /* of the blocks that are followed */

  size_t requested;             /* by the allocation under way */
  size_t vm_size;               /* of the first block of a VM; 0: not known */
  host_allocator_parts_t parts; /* of `allocate`, where the wrapper calls them itself */
  const uint8_t *white;         /* that the VM gives to new objects, from 5.4 on; see heap_cycle.h */
  const uint8_t *kind;          /* of collections it makes; NULL: not told */
  uint8_t last_white;
  bool resizes_plainly; /* the host's allocator: see host_allocator.h */
  bool traced;
  bool
      interrupted; /* ticks or another thread of the profiler may come at any moment: the VM's lock is needed */
  bool sweeps;     /* the white was turned over by a collection that goes by steps, and has not ended */
  uint64_t granted; /* sum of all gaps: what is not left of it was allocated */
  live_heap_totals_t *totals;
  heap_rate_t rate;
  random_t random;
  lua_Alloc wrapper;      /* what stands in its place */
  vm_t *vm;               /* while state is not HEAP_OFF */
  struct heap_walk *walk; /* likewise */
  bool was_called;        /* while it was probed */
  bool taken_out;         /* by us, at the end of a session: it may be put in place again */
  _Atomic bool shared;    /* another VM uses it: it hands on for good */
  uint64_t doubted;       /* HEAP_DOUBTED: a block, and the state that it is to be again */
  int state_before;
  uint64_t last_block; /* HEAP_LAST: with this one the VM is gone */
  uint64_t session;    /* its number in this process: what was left behind by an earlier one is told apart */
  struct heap *next;   /* of all of them, for forked children */
  void *block;         /* of memory that it lies in */
} heap_t;

/* Puts the wrapper in place, still handing on; L runs. False with a reason. May raise a Lua memory error. */
bool heap_start(vm_t *vm, lua_State *L, failure_t *failure);
/* From now on it counts. */
void heap_begin(vm_t *vm, lua_State *L);
/* Takes it out again, or leaves it to hand on. Also while the VM closes, and in a forked child. */
void heap_stop(vm_t *vm, lua_State *L);
/* The VM closes; L runs. */
void heap_forget(vm_t *vm, lua_State *L);
void heap_pause(vm_t *vm, bool pause);
/* From now on samples are taken once in so many bytes, on average; 1: always, 0: never. */
void heap_set_mean(vm_t *vm, size_t mean);
/* What the inuse values are of from now on; returns what they were of. */
luapulse_gc_t heap_set_gc(vm_t *vm, luapulse_gc_t gc);
/* Why nothing more is profiled, though the session is on; NULL: all is. */
const char *heap_given_up(const vm_t *vm);
/* What the VM says it uses, for the totals. */
void heap_note_memory(vm_t *vm, lua_State *L);
/* Runs a full collection, as gc = true asks for. Errors of finalizers are swallowed, as Lua's own interface would have
 * raised them into whoever asked. */
void heap_collect(lua_State *L);

/* The profiler is at work on the thread that runs the VM, maybe already: false then, and nothing is to be undone. */
bool heap_enter(vm_t *vm);
void heap_leave(vm_t *vm, bool entered);

int heap_guard_forks(void); /* errno or 0; see fork_guard.h */

#endif
