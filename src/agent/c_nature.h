/* SPDX-License-Identifier: MIT */
/* What C functions of the standard library do with coroutines; see walk_nature_t. While one that is inert is at work, its coroutine is
 * the one that runs; one that resumes leads to the coroutine it resumes. Neither needs a search. */
#ifndef LUAPULSE_AGENT_C_NATURE_H
#define LUAPULSE_AGENT_C_NATURE_H

#include "agent/lua_version.h"
#include "walk/walk.h"

/* Learns the addresses from the standard library tables of the VM, as far as it has them. May raise a memory error. */
void c_nature_learn(lua_State *L);
/* Async-signal-safe. */
walk_nature_t c_nature_of(uint64_t code);

#endif
