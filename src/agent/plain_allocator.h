/* SPDX-License-Identifier: MIT */
/* Is the host's allocator nothing but realloc and free?
 *
 * Mental model. That of luaL_newstate, which most hosts have, only chooses between the two of the C library. Calling it from our
 * wrapper costs as much as all that the wrapper does itself: one more indirect call for everything Lua allocates. Where it is
 * known to do no more, the wrapper does the same in its stead. Known it is from its code alone, which is followed instruction by
 * instruction, with names in place of values: once for a block that is freed, once for one that is new. Its own calls must be
 * calls of this process's `free` and `realloc`, with nothing else seen or done on the way. Whatever is not understood, on other
 * processors all of it, is an allocator like any other, and is called. */
#ifndef LUAPULSE_AGENT_PLAIN_ALLOCATOR_H
#define LUAPULSE_AGENT_PLAIN_ALLOCATOR_H

#include <lua.h>
#include <stdbool.h>
#include <stdlib.h>

/* True: `allocate` frees by free(block), and returns NULL then; and what it returns for a new block is realloc(NULL, size). It tells
 * nothing of blocks that change their size. It is not called, but should have been, to make a block and to free one: calls that the
 * linker binds when they are first made lead nowhere before that. Ordinary context. */
bool plain_allocator_is(lua_Alloc allocate);

/* Called by the addresses that the linker has put down, not by way of its code: tens of millions of times a second a jump counts. */
extern __typeof__(malloc) malloc __attribute__((noplt));
extern __typeof__(free) free __attribute__((noplt));

/* What a plain one does. The only memory that the agent takes so is Lua's own. */
static inline void *plain_allocator_make(size_t size) {
  return malloc(size);
}

static inline void plain_allocator_free(void *block) {
  free(block);
}

#endif
