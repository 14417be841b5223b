/* SPDX-License-Identifier: MIT */
/* What a program is told of its debug hook while ours is set: as if ours were not there.
 *
 * Programs hand their hook on to coroutines they make, debug.sethook(co, debug.gethook()), or look whether there is one. The hook of tracing
 * and of the instructions clock is a resident one. debug.gethook would call it an "external hook", which debug.sethook does not take, and
 * taking "no hook" on would take ours off. So while such a session is on both functions are replaced: gethook tells of the program's own hook,
 * and ours outlives that hooks are turned off. A hook that the program sets for itself still takes the place of ours. What it kept in locals
 * before start it calls as it was. */
#ifndef LUAPULSE_AGENT_DEBUG_LIBRARY_H
#define LUAPULSE_AGENT_DEBUG_LIBRARY_H

#include "agent/vm.h"

void debug_library_watch(lua_State *L);   /* may raise a memory error */
void debug_library_unwatch(lua_State *L); /* puts back what is still ours */

#endif
