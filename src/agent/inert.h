/* SPDX-License-Identifier: MIT */
/* C functions that never run another coroutine but through a Lua call of their own, which then is the topmost frame: most
 * of the standard library. When one of these is at work, its coroutine is the one that runs, and no search is needed. */
#ifndef LUAPULSE_AGENT_INERT_H
#define LUAPULSE_AGENT_INERT_H

#include "agent/lua_version.h"

/* Learns the addresses from the standard library tables of the VM, as far as it has them. May raise a memory error. */
void inert_learn(lua_State *L);
/* Async-signal-safe. */
bool inert_has(uint64_t code);

#endif
