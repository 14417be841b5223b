/* SPDX-License-Identifier: MIT */
/* Which coroutine is running, on PUC Lua, where hooks belong to coroutines: found in the registers and on the native stack.
 *
 * A word is a running lua_State of the VM if the memory it points to says so: it names the VM's global state, and the
 * innermost protected call of that coroutine (errorJmp) lies on this native stack, above the stack pointer. The innermost
 * running one is the one whose protected call lies lowest; it is alive, whoever resumed it. Suspended and dead coroutines
 * have no protected call. Where the two fields are in lua_State is learned by content at start, not known by version.
 *
 * Memory at words that are only guesses is read through the kernel (process_vm_readv), which fails where a load would
 * fault. Async-signal-safe: no malloc, no locks. */
#ifndef LUAPULSE_AGENT_DISCOVER_H
#define LUAPULSE_AGENT_DISCOVER_H

#include <stdint.h>
#include <sys/types.h>

#include "agent/lua_version.h"

typedef struct {
  bool works;           /* learned, and reading is allowed */
  pid_t pid;            /* of this process */
  uintptr_t global;     /* the VM's global state */
  size_t global_offset; /* of the pointer to it in lua_State */
  size_t jump_offset;   /* of errorJmp */
  uintptr_t low, high;  /* the native stack of the thread that runs the VM */
} discover_t;

/* L is running, in a protected call. Needs room for a few values; may raise a memory error. */
void discover_learn(discover_t *d, lua_State *L);

/* The running coroutine when the signal came, or NULL: no Lua is running here, or none was found. */
lua_State *discover_running(const discover_t *d, const void *context);
/* True when L is a running (or resuming) coroutine of the VM: alive. L may point anywhere. */
bool discover_is_running(const discover_t *d, const lua_State *L);
/* The coroutine that resumed the running coroutine `co`, or NULL. */
lua_State *discover_resumer(const discover_t *d, const lua_State *co);

#endif
