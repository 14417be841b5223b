/* SPDX-License-Identifier: MIT */
/* Finding the standard libraries: what is called a resumer, and what is replaced while a session is on. */
#ifndef LUAPULSE_AGENT_LIBRARY_H
#define LUAPULSE_AGENT_LIBRARY_H

#include <lauxlib.h>
#include <stdbool.h>

#include "agent/lua_version.h"

/* Pushes the table of the library, or nothing and false. Tables are read raw. May raise a memory error. */
static inline bool library_push(lua_State *L, const char *name) {
  lua_getfield(L, LUA_REGISTRYINDEX, LUA_LOADED_TABLE);
  if (lua_istable(L, -1)) {
    lua_pushstring(L, name);
    lua_rawget(L, -2);
    lua_remove(L, -2);
  }
  if (lua_istable(L, -1)) return true;
  lua_pop(L, 1);
  return false;
}

#endif
