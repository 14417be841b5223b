/* SPDX-License-Identifier: MIT */
/* A Lua module for the benchmark of heap profiling: aside(true) puts the allocator back that the VM had when the module was loaded, aside(false) the
 * one that has come in its place since. So one process has both kinds of slices, with the same memory. What is freed while it is put aside
 * the profiler is not told: it takes it to be in use until it is stopped. */
#include <lauxlib.h>
#include <lua.h>

static lua_Alloc first, later;
static void *first_ud, *later_ud;

static int aside(lua_State *L) {
  void *ud;
  lua_Alloc now = lua_getallocf(L, &ud);
  if (lua_toboolean(L, 1) && later == NULL) {
    later = now;
    later_ud = ud;
    lua_setallocf(L, first, first_ud);
  } else if (!lua_toboolean(L, 1) && later != NULL) {
    lua_setallocf(L, later, later_ud);
    later = NULL;
  }
  return 0;
}

int luaopen_aside(lua_State *L) {
  first = lua_getallocf(L, &first_ud);
  lua_pushcfunction(L, aside);
  return 1;
}
