/* SPDX-License-Identifier: MIT */
/* What the host's allocator does, where its code tells.
 *
 * Mental model. Most allocators only choose: that of luaL_newstate between realloc and free of the C library, that of LuaJIT between three
 * functions of its own. Calling one from our wrapper costs as much as all that the wrapper does itself: one more indirect call, and the
 * choice, for everything Lua allocates. Where it is known to do no more, the wrapper, which has made that choice already, calls what it
 * would have called. Known it is from its code alone (allocator_course.h). Its own calls must be calls of this process's `free` and
 * `realloc`, or jumps to other functions, with nothing else seen or done on the way. Whatever is not understood, on other processors
 * all of it, is an allocator like any other, and is called. */
#ifndef LUAPULSE_AGENT_HOST_ALLOCATOR_H
#define LUAPULSE_AGENT_HOST_ALLOCATOR_H

#include <lua.h>
#include <stdbool.h>
#include <stdlib.h>

/* True: `allocate` frees by free(block), and returns NULL then; and what it returns for a new block is realloc(NULL, size). It is not called,
 * but should have been, to make a block and to free one: calls that the linker binds when they are first made lead nowhere before that.
 * Ordinary context. */
bool host_allocator_is_plain(lua_Alloc allocate);
/* True: what it returns for a block that changes its size is realloc(block, size). That of 5.3 hands back the block itself where realloc
 * fails to make it smaller. */
bool host_allocator_resizes_plainly(lua_Alloc allocate);

/* Called by the addresses that the linker has put down, not by way of its code: tens of millions of times a second a jump counts. */
#if __has_attribute(noplt) /* clang has it for whole files only */
extern __typeof__(malloc) malloc __attribute__((noplt));
extern __typeof__(realloc) realloc __attribute__((noplt));
extern __typeof__(free) free __attribute__((noplt));
#endif

/* What a plain one does. The only memory that the agent takes so is Lua's own. */
static inline void *host_allocator_make_plainly(size_t size) {
  return malloc(size);
}

static inline void *host_allocator_resize_plainly(void *block, size_t size) {
  return realloc(block, size);
}

static inline void host_allocator_free_plainly(void *block) {
  free(block);
}

/* What it ends with, as a function of its own. Whether those take more than two arguments is not known: the registers have what they had,
 * so that the others are given, too. */
typedef struct {
  void *(*make)(void *ud, size_t size, size_t old_size, size_t same_size);
  void *(*release)(void *ud, void *block, size_t size, size_t zero);
} host_allocator_parts_t;

/* True: for a new block it ends with the one, for one that is freed with the other. As before, it should have been called. */
bool host_allocator_parts(lua_Alloc allocate, host_allocator_parts_t *parts);

#endif
