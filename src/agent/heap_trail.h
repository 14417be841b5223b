/* SPDX-License-Identifier: MIT */
/* The stack of a VM that stands in its allocator, against the one it had when it last stood there: most of it is the same, and
 * what is need not be looked up again. For tracing, where a stack is wanted at every allocation.
 *
 * Mental model. A trail is the last stack, root first, as memory had it: call record, function, pc. heap_trail_follow() goes
 * along the call records of the running coroutine, and of those that resumed it, from the leaf to the root and compares. It
 * answers only where nothing can be in doubt: PUC Lua, the same coroutines, on top a Lua function or one that never runs
 * other coroutines. Anything else is for a full walk, after which heap_trail_learn() takes the stack down.
 *
 * Every read is a plain load of what is alive: the VM stands still, and its trail is dropped when one of the coroutines or a
 * function's prototype on it is freed (heap_trail_drop). */
#ifndef LUAPULSE_AGENT_HEAP_TRAIL_H
#define LUAPULSE_AGENT_HEAP_TRAIL_H

#include "walk/walk.h"

typedef struct {
  uint64_t call;     /* its record */
  uint64_t function; /* what its slot holds: an object, or the address of a C function */
  uint64_t pc;       /* what the record says; 0: not a Lua function */
} heap_step_t;

typedef struct {
  heap_step_t steps[WALK_MAX_FRAMES]; /* root first */
  uint32_t count;                     /* 0: no trail */
  uint32_t begins[WALK_MAX_STATES];   /* the first step of each of walk->states */
} heap_trail_t;

/* True: the stack is known again. The first *kept of its frames are the last stack's; walk->frames has the others, leaf first. */
bool heap_trail_follow(heap_trail_t *trail, walk_t *walk, uint32_t *kept);
/* Takes down the stack just walked. */
void heap_trail_learn(heap_trail_t *trail, const walk_t *walk);
static inline void heap_trail_drop(heap_trail_t *trail) {
  trail->count = 0;
}

#endif
