/* SPDX-License-Identifier: MIT */
/* Is the name a caller has for a function really that function's? LuaJIT looks at the caller's instruction
 * only, which after a tail call names the function that was called first, not the one that runs. */
#ifndef LUAPULSE_AGENT_CALL_SITE_H
#define LUAPULSE_AGENT_CALL_SITE_H

#include "agent/lua_version.h"

/* The function on top of L runs at `level`; true when its caller holds it under that name: in a local, an
 * upvalue, or a table (or the class of an object) in one of these. Runs in hooks: raw reads, no allocation, a
 * bounded number of steps. */
bool call_site_confirms(lua_State *L, int level, const char *name);

#endif
