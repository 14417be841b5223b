/* SPDX-License-Identifier: MIT */
/* What LuaJIT adds to the 5.1 interface. The module built for 5.1 serves it too; which one it runs in shows
 * at run time. */
#ifndef LUAPULSE_AGENT_LUAJIT_H
#define LUAPULSE_AGENT_LUAJIT_H

#include "agent/lua_version.h"
#include "profile/failure.h"

typedef void luajit_profile_callback_t(void *data, lua_State *L, int samples, int vmstate);

bool luajit_detect(lua_State *L);
bool luajit_has_profiler(void);
/* True when a signal handler may be that of LuaJIT's profiler: it is part of the same program or library. */
bool luajit_is_profiler_handler(void (*handler)(int));
void luajit_profile_begin(lua_State *L, const char *mode, luajit_profile_callback_t *callback, void *data);
void luajit_profile_end(lua_State *L);

/* Turns compilation off and drops all compiled code, if it was on. */
bool luajit_turn_off(lua_State *L, bool *was_on, failure_t *failure);
void luajit_turn_on(lua_State *L);

/* Finds out where this build keeps the sizes of a function's code; called once at start, may run a little
 * Lua. */
void luajit_learn_layout(lua_State *L);
/* A fingerprint of the code of the Lua function on top: sizes only, because the JIT rewrites instructions in
 * place. */
uint32_t luajit_code_fingerprint(lua_State *L);

#endif
