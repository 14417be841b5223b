/* SPDX-License-Identifier: MIT */
/* A C library for the tests of names: functions that fail, held by tables alone. There is no luaL_Reg that would name them. Also C++. */
#ifdef __cplusplus
extern "C" {
#endif
#include <lauxlib.h>
#include <lua.h>
#ifdef __cplusplus
}
#define PUBLIC extern "C" __attribute__((visibility("default")))
#else
#define PUBLIC __attribute__((visibility("default")))
#endif

#define FAILS(name)                                   \
  static int name(lua_State *L) {                     \
    return luaL_error(L, "on purpose, in %s", #name); \
  }
FAILS(in_module)
FAILS(in_table)
FAILS(of_object)

#ifdef __cplusplus
namespace shop {
#define SYMBOL shop::price
#else
#define SYMBOL price
#endif
#ifndef HIDDEN
__attribute__((visibility("default")))
#endif
int price(lua_State *L);
int price(lua_State *L) {
  return luaL_error(L, "on purpose, in a function of no table");
}
#ifdef __cplusplus
}
#endif

static int make(lua_State *L) {
  lua_pushcfunction(L, SYMBOL);
  return 1;
}

static void set(lua_State *L, const char *name, lua_CFunction function, int upvalues) {
  for (int i = 0; i < upvalues; i++) lua_pushnil(L);
  lua_pushcclosure(L, function, upvalues);
  lua_setfield(L, -2, name);
}

PUBLIC int luaopen_names_module(lua_State *L);
int luaopen_names_module(lua_State *L) {
  luaL_newmetatable(L, "names.object");
  lua_pushvalue(L, -1);
  lua_setfield(L, -2, "__index");
  set(L, "fail", of_object, 0);
  lua_pop(L, 1);
  lua_newtable(L);
  set(L, "fail", in_module, 0);
  set(L, "make", make, 0);
  lua_newuserdata(L, 8);
  lua_getfield(L, LUA_REGISTRYINDEX, "names.object");
  lua_setmetatable(L, -2);
  lua_setfield(L, -2, "object");
  lua_newtable(L);
  set(L, "fail", in_table, 2); /* a closure */
  lua_setfield(L, -2, "deep");
  return 1;
}
