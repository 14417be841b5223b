/* SPDX-License-Identifier: MIT */
/* Which coroutine is running, on PUC Lua, where hooks belong to coroutines: found in the registers and on the native stack.
 *
 * A word is a running lua_State of the VM if the memory it points to says so: it names the VM's global state, and the
 * innermost protected call of that coroutine (errorJmp) lies on this native stack, above the stack pointer. The innermost
 * running one is the one whose protected call lies lowest; it is alive, whoever resumed it. Suspended and dead coroutines
 * have no protected call. Where the two fields are in lua_State is learned by content at start, not known by version.
 *
 * Memory at words that are only guesses is read through the kernel (process_vm_readv), which fails where a load would
 * fault. Async-signal-safe: no malloc, no locks; one search at a time. */
#ifndef LUAPULSE_AGENT_DISCOVER_H
#define LUAPULSE_AGENT_DISCOVER_H

#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "agent/lua_version.h"

enum {
  DISCOVER_BATCH = 64,        /* guesses checked by one system call */
  DISCOVER_STATE_BYTES = 176, /* no lua_State of 5.1 to 5.5 is smaller */
  DISCOVER_IMAGES = 64
};

typedef struct {
  uintptr_t start, end;
} discover_image_t;

/* Working memory, outside the stack: a host's signal stack may be small. */
typedef struct {
  uintptr_t guesses[DISCOVER_BATCH];
  struct iovec remote[DISCOVER_BATCH];
  char copies[DISCOVER_BATCH * DISCOVER_STATE_BYTES];
} discover_scratch_t;

typedef struct {
  bool works;               /* learned, and reading is allowed */
  pid_t pid;                /* of this process */
  uintptr_t global;         /* the VM's global state */
  size_t global_offset;     /* of the pointer to it in lua_State */
  size_t jump_offset;       /* of errorJmp */
  size_t span_offset, span; /* the part of lua_State that holds both */
  discover_scratch_t *scratch;
  uintptr_t alignment, remainder;           /* of the address of a lua_State */
  discover_image_t images[DISCOVER_IMAGES]; /* programs and libraries: no lua_State is there */
  size_t image_count;
  uintptr_t low, high; /* the native stack of the thread that runs the VM */
} discover_t;

/* L is running, in a protected call. Needs room for a few values; may raise a memory error. */
void discover_learn(discover_t *d, lua_State *L, discover_scratch_t *scratch);

/* The running coroutine when the signal came, or NULL: no Lua is running here, or none was found. `alive` is one that
 * exists, best the main thread. */
lua_State *discover_running(const discover_t *d, lua_State *alive, const void *context);
/* True when L is a running (or resuming) coroutine of the VM: alive. L may point anywhere. */
bool discover_is_running(const discover_t *d, const lua_State *L);
/* The coroutine that resumed `co`, which is running, or NULL. */
lua_State *discover_resumer(const discover_t *d, const lua_State *co);

#endif
