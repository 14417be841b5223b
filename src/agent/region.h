/* SPDX-License-Identifier: MIT */
/* pulse.region(name, f, …): calls f so that the name stands on the stack as a function of its own. It is one, a small function of
 * Lua loaded for each name, so every way of reading stacks sees it, sampling and tracing alike. */
#ifndef LUAPULSE_AGENT_REGION_H
#define LUAPULSE_AGENT_REGION_H

#include <stdbool.h>

#include "agent/lua_version.h"

/* Pushes the function. May raise a memory error. */
void region_push(lua_State *L);
/* True when a function's file is the name of a region; then that is what the function is called. */
bool region_is(const char *file, size_t len);

#endif
