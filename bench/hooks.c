/* SPDX-License-Identifier: MIT */
/* The floor under every tracer: set(1) puts hooks on calls and returns that do nothing, set(2) hooks that read the clock, set(0)
 * takes them off. For bench/tracing.lua. */
#include <lauxlib.h>
#include <lua.h>
#include <time.h>

static volatile unsigned long long sink;

static void do_nothing(lua_State *L, lua_Debug *ar) {
  (void)L;
  (void)ar;
}

static void read_clock(lua_State *L, lua_Debug *ar) {
  (void)L;
  (void)ar;
#if defined __x86_64__
  sink += __builtin_ia32_rdtsc();
#else
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  sink += (unsigned long long)now.tv_nsec;
#endif
}

static int set(lua_State *L) {
  int which = (int)lua_tonumber(L, 1);
  lua_sethook(L,
              which == 1   ? do_nothing
              : which == 2 ? read_clock
                           : NULL,
              which != 0 ? LUA_MASKCALL | LUA_MASKRET : 0, 0);
  return 0;
}

__attribute__((visibility("default"))) int luaopen_hooks(lua_State *L) {
  lua_pushcfunction(L, set);
  return 1;
}
