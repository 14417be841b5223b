/* SPDX-License-Identifier: MIT */
/* Taking a sample: the stack as the Lua interface tells it, into the live tables. Runs in hooks and in
 * LuaJIT's profiler callback, where the interface may be used: no allocation, nothing raised. */
#ifndef LUAPULSE_AGENT_SAMPLER_H
#define LUAPULSE_AGENT_SAMPLER_H

#include "agent/vm.h"

/* Counts a sample of `weight` for the stack of L from `level` (0 is the running function) to the root,
 * continued by the coroutines that resumed L. When L has no such level, no Lua function was running: the
 * sample is unattributed. */
void sampler_take(vm_t *vm, lua_State *L, int level, uint64_t weight);

#endif
