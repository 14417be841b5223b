/* SPDX-License-Identifier: MIT */
/* The host's own debug hook: kept aside while ours is armed for a moment, put back exactly, its instruction
 * count included.
 *
 * lua_sethook restarts the count, so a host that counts instructions (as a time-out) could be starved by a
 * profiler that arms often. The interface has no way to read or set the counter inside lua_State; its place
 * is therefore found once, by content, on a scratch coroutine. Where it is not found, samples that would
 * disturb such a host are dropped. */
#ifndef LUAPULSE_AGENT_HOST_HOOK_H
#define LUAPULSE_AGENT_HOST_HOOK_H

#include "agent/lua_version.h"

typedef struct {
  lua_Hook function; /* NULL: none */
  int mask;
  int count;
  int left; /* instructions until the next count event */
} host_hook_t;

typedef struct {
  lua_State *L; /* NULL: not armed */
  host_hook_t host;
} armed_hook_t;

/* Offset of the instruction counter in lua_State, or 0. Needs room for a few values on L; may raise a memory
 * error. */
int host_hook_find_counter(lua_State *L);

/* Async-signal-safe on the thread that runs the VM, as lua_sethook is. */
host_hook_t host_hook_save(lua_State *L, int counter_offset);
void host_hook_restore(lua_State *L, const host_hook_t *host, int counter_offset);

/* Instructions until the next count event; needs the offset. */
int host_hook_left(const lua_State *L, int counter_offset);
void host_hook_set_left(lua_State *L, int counter_offset, int left);

/* The mask bit of a hook event. */
int host_hook_mask_of(int event);

#endif
