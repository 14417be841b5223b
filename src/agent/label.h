/* SPDX-License-Identifier: MIT */
/* Labels of coroutines: a weak table from the coroutine to its label set in the live tables. */
#ifndef LUAPULSE_AGENT_LABEL_H
#define LUAPULSE_AGENT_LABEL_H

#include "agent/vm.h"

enum { LABEL_MAX_COUNT = 32 };

/* Sets the labels of the coroutine L: `text` is key NUL value NUL …; len 0 takes them off. May raise a memory
 * error. */
bool label_set(vm_t *vm, lua_State *L, const char *text, size_t len, failure_t *failure);
/* The label set of the coroutine L, 0 when none. No allocation. */
live_ref_t label_get(vm_t *vm, lua_State *L);

/* What the wall clock tells of a sample's thread. */
typedef enum { LABEL_NO_STATE, LABEL_RUNNING, LABEL_WAITING } label_state_t;

/* What the allocator is told of a block. */
typedef enum {
  LABEL_NO_TYPE,
  LABEL_STRING,
  LABEL_TABLE,
  LABEL_FUNCTION,
  LABEL_USERDATA,
  LABEL_THREAD,
  LABEL_PROTOTYPE,
  LABEL_UPVALUE
} label_type_t;

/* The label set of a walked sample: those of its coroutine, and vmstate, trace, state and type where there are such. Runs in
 * signal handlers and in the allocator. */
live_ref_t label_of_walk(vm_t *vm, walk_t *walk, label_state_t state, label_type_t type);

#endif
