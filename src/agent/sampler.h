/* SPDX-License-Identifier: MIT */
/* Taking a sample: a stack, as the Lua interface tells it or as it was walked, into the live tables. The interface may be
 * used in hooks and in LuaJIT's profiler callback: no allocation, nothing raised. */
#ifndef LUAPULSE_AGENT_SAMPLER_H
#define LUAPULSE_AGENT_SAMPLER_H

#include "agent/label.h"
#include "agent/vm.h"

/* Counts a sample of `weight` for the stack of L from `level` (0 is the running function) to the root,
 * continued by the coroutines that resumed L. When L has no such level, no Lua function was running: the
 * sample is unattributed. */
void sampler_take(vm_t *vm, lua_State *L, int level, uint64_t weight);

/* The same for a stack that was walked: `reason` tells how the walk went. Runs in signal handlers, and in the profiler's own
 * thread; the VM is kept out of. */
void sampler_take_walk(vm_t *vm, walk_t *walk, walk_reason_t reason, uint64_t weight, label_state_t state);
/* The node of a walked stack, 0 when the tables are full. `path` is that of the last such stack of the same kind; its first
 * `begin` frames are this one's too, and the walk has those above. */
live_ref_t sampler_walked_node(vm_t *vm, walk_t *walk, path_t *path, size_t begin);
/* One more of the last walked sample: nothing has moved since. */
void sampler_take_again(vm_t *vm, uint64_t weight);

#endif
