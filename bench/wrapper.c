/* SPDX-License-Identifier: MIT */
/* A Lua module for the benchmark of heap profiling: wrapper(true) puts an allocator around the VM's that does nothing but hand on,
 * wrapper(false) takes it out. What it costs no heap profiler that sees every allocation can go below. */
#include <lauxlib.h>
#include <lua.h>

static lua_Alloc host;
static void *host_ud;

static void *hand_on(void *ud, void *block, size_t old_size, size_t new_size) {
  (void)ud;
  return host(host_ud, block, old_size, new_size);
}

static int wrapper(lua_State *L) {
  if (lua_toboolean(L, 1) && host == NULL) {
    host = lua_getallocf(L, &host_ud);
    lua_setallocf(L, hand_on, &host);
  } else if (!lua_toboolean(L, 1) && host != NULL) {
    lua_setallocf(L, host, host_ud);
    host = NULL;
  }
  return 0;
}

int luaopen_wrapper(lua_State *L) {
  lua_pushcfunction(L, wrapper);
  return 1;
}
