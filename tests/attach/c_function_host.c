/* SPDX-License-Identifier: MIT */
/* A host whose Lua calls a C function, whose name is given when this is compiled, for 0.1 s of processor time. */
#include <lauxlib.h>
#include <lualib.h>

static int NAME(lua_State *L) {
  for (volatile long i = 0; i < 300000; i++) continue;
  return L == NULL;
}

int main(void) {
  lua_State *L = luaL_newstate();
  luaL_openlibs(L);
  if (luaL_loadstring(L, "local f = ... local e = os.clock() + 0.1 while os.clock() < e do f() end") != 0)
    return 1;
  lua_pushcfunction(L, NAME);
  return lua_pcall(L, 1, 0, 0);
}
