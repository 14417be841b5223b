/* SPDX-License-Identifier: MIT */
/* Profiling a VM from start to stop. These functions run in ordinary context on the VM's thread, raise no Lua
 * error and leave the stack as it was. */
#ifndef LUAPULSE_AGENT_SESSION_H
#define LUAPULSE_AGENT_SESSION_H

#include "agent/vm.h"
#include "profile/profile.h"

/* Tables somebody else owns (the parent of `luapulse run`); all zero: the session maps its own. */
typedef struct {
  void *memory;
  size_t size;
} session_region_t;

bool session_start(lua_State *L, const luapulse_profile_options_t *options, session_region_t region,
                   failure_t *failure);
profile_t *session_stop(lua_State *L, failure_t *failure);
profile_t *session_snapshot(lua_State *L, failure_t *failure);
bool session_pause(lua_State *L, bool pause, failure_t *failure);
/* What inuse is of, from now on; *gc becomes what it was. */
bool session_heap_gc(lua_State *L, luapulse_gc_t *gc, failure_t *failure);
bool session_heap_rate(lua_State *L, size_t mean, failure_t *failure);
bool session_label(lua_State *L, const char *text, size_t len, failure_t *failure);
void session_status(lua_State *L, luapulse_status_t *status);

/* Ends a session whose profile nobody will ask for: the VM closes. */
void session_abandon(vm_t *vm, lua_State *L);

#endif
