/* SPDX-License-Identifier: MIT */
/* Checking call-site names; see call_site.h. */
#include "agent/call_site.h"

#include <string.h>

enum { MAX_STEPS = 2000, MAX_CLASSES_DEEP = 4 };

typedef struct {
  lua_State *L;
  int function; /* stack index */
  const char *name;
  int steps;
} search_t;

static bool table_holds(search_t *s, int deep);

/* The class of the object on top: its metatable, which often is the class, and the __index in it. */
static bool class_holds(search_t *s, int deep) {
  if (deep == 0 || !lua_getmetatable(s->L, -1)) return false;
  bool found = table_holds(s, deep - 1);
  lua_pop(s->L, 1);
  return found;
}

/* The table on top, or the tables its __index leads to, hold the function under the name. */
static bool table_holds(search_t *s, int deep) {
  lua_State *L = s->L;
  lua_pushnil(L);
  while (lua_next(L, -2)) {
    bool found = false;
    if (lua_type(L, -2) == LUA_TSTRING) {
      const char *key = lua_tostring(L, -2);
      if (lua_rawequal(L, -1, s->function))
        found = strcmp(key, s->name) == 0;
      else if (deep > 0 && lua_istable(L, -1) && strcmp(key, "__index") == 0 && !lua_rawequal(L, -1, -3))
        found = table_holds(s, deep - 1);
    }
    if (found || s->steps-- <= 0) {
      lua_pop(L, 2);
      return found;
    }
    lua_pop(L, 1);
  }
  return class_holds(s, deep);
}

/* The variable on top. */
static bool variable_holds(search_t *s, const char *variable) {
  lua_State *L = s->L;
  if (lua_rawequal(L, -1, s->function)) return strcmp(variable, s->name) == 0;
  if (lua_istable(L, -1)) return table_holds(s, MAX_CLASSES_DEEP);
  return lua_isuserdata(L, -1) && class_holds(s, MAX_CLASSES_DEEP);
}

bool call_site_confirms(lua_State *L, int level, const char *name) {
  lua_Debug caller;
  search_t s = {L, lua_gettop(L), name, MAX_STEPS};
  bool found = false;
  const char *variable;
  if (!lua_getstack(L, level + 1, &caller) || !lua_checkstack(L, 3 + 3 * MAX_CLASSES_DEEP)) return false;
  for (int n = 1; !found && (variable = lua_getlocal(L, &caller, n)) != NULL; n++) {
    found = variable_holds(&s, variable);
    lua_pop(L, 1);
  }
  if (!found && lua_getinfo(L, "f", &caller)) {
    for (int n = 1; !found && (variable = lua_getupvalue(L, -1, n)) != NULL; n++) {
      found = variable_holds(&s, variable);
      lua_pop(L, 1);
    }
    lua_pop(L, 1);
  }
  return found;
}
