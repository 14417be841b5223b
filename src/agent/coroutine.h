/* SPDX-License-Identifier: MIT */
/* Which coroutine is running, on PUC Lua, told by the coroutine library: for the instructions clock, which gives each
 * coroutine a gap of its own, and where discover.h does not work. While a session is on, coroutine.create, resume and wrap
 * are replaced by functions that do the same and keep vm->running and vm->links. Functions the program kept in locals
 * before start, and lua_resume called by C code, are not seen: their time stays with the resumer. */
#ifndef LUAPULSE_AGENT_COROUTINE_H
#define LUAPULSE_AGENT_COROUTINE_H

#include "agent/vm.h"

void coroutine_watch(lua_State *L);   /* may raise a memory error */
void coroutine_unwatch(lua_State *L); /* puts back what is still ours */

#endif
