/* SPDX-License-Identifier: MIT */
/* A host that is not in Lua: its VM has a few functions and, made after them, as many tables as its argument says; it sleeps in C. */
#include <lauxlib.h>
#include <lualib.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv) {
  lua_State *L = luaL_newstate();
  luaL_openlibs(L);
  lua_gc(L, LUA_GCSTOP, 0); /* it is to be ready soon */
  lua_pushinteger(L, argc > 1 ? atoi(argv[1]) : 1);
  lua_setglobal(L, "count");
  if (luaL_dostring(L,
                    "function one() return 1 end function two() return 2 end tables = {} "
                    "for i = 1, count do tables[i] = {} end"))
    return 1;
  puts("ready");
  fflush(stdout);
  for (;;) pause();
}
