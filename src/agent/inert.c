/* SPDX-License-Identifier: MIT */
/* Inert C functions; see inert.h. A fixed hash set that only grows. */
#include "agent/inert.h"

#include <stdatomic.h>
#include <string.h>

enum { SLOTS = 1024, MAX_COUNT = 512 };

static _Atomic uint64_t slots[SLOTS];
static _Atomic int count;

static size_t first_slot(uint64_t code) {
  return (size_t)((code >> 4) * 0x9e3779b97f4a7c15u >> 54) % SLOTS;
}

bool inert_has(uint64_t code) {
  for (size_t at = first_slot(code);; at = (at + 1) % SLOTS) { /* at most half full */
    uint64_t there = atomic_load_explicit(&slots[at], memory_order_relaxed);
    if (there == code) return true;
    if (there == 0) return false;
  }
}

static void add(lua_State *L) {
  uint64_t code = (uint64_t)(uintptr_t)lua_tocfunction(L, -1);
  if (code == 0 || inert_has(code) || atomic_load(&count) >= MAX_COUNT) return;
  for (size_t at = first_slot(code);; at = (at + 1) % SLOTS) {
    uint64_t empty = 0;
    if (!atomic_compare_exchange_strong(&slots[at], &empty, code)) continue; /* another VM's start */
    atomic_fetch_add(&count, 1);
    return;
  }
}

static bool push_loaded(lua_State *L, const char *module) {
  lua_getfield(L, LUA_REGISTRYINDEX, LUA_LOADED_TABLE);
  if (lua_istable(L, -1)) {
    lua_pushstring(L, module);
    lua_rawget(L, -2);
    lua_remove(L, -2);
    if (lua_istable(L, -1)) return true;
  }
  lua_pop(L, 1);
  return false;
}

/* Only what stands there under a name of the standard library: a program may have added functions of its own. */
static void add_named(lua_State *L, const char *const *names) {
  for (; *names != NULL; names++) {
    lua_pushstring(L, *names);
    lua_rawget(L, -2);
    add(L);
    lua_pop(L, 1);
  }
}

/* Iterators that only the functions which return them know. */
static void add_result(lua_State *L, const char *name, int arguments) {
  lua_pushstring(L, name);
  lua_rawget(L, -2);
  if (lua_iscfunction(L, -1)) {
    for (int i = 0; i < arguments; i++) arguments == 1 ? lua_newtable(L) : (void)lua_pushliteral(L, "");
    if (lua_pcall(L, arguments, 1, 0) == 0) add(L);
  }
  lua_pop(L, 1);
}

void inert_learn(lua_State *L) {
  static const char *const base[] = {"assert", "collectgarbage", "error",    "getmetatable", "ipairs",
                                     "load",   "loadstring",     "next",     "pairs",        "pcall",
                                     "print",  "rawequal",       "rawget",   "rawlen",       "rawset",
                                     "select", "setmetatable",   "tonumber", "tostring",     "type",
                                     "unpack", "xpcall",         NULL};
  static const char *const string[] = {"byte", "char",    "dump",  "find",   "format", "gmatch",
                                       "gsub", "len",     "lower", "match",  "pack",   "packsize",
                                       "rep",  "reverse", "sub",   "unpack", "upper",  NULL};
  static const char *const table[] = {"concat", "insert", "maxn",   "move", "pack",
                                      "remove", "sort",   "unpack", NULL};
  static const char *const math[] = {
      "abs",        "acos",  "asin",  "atan", "atan2", "ceil", "cos",       "cosh", "deg", "exp", "floor",
      "fmod",       "frexp", "ldexp", "log",  "log10", "max",  "min",       "modf", "pow", "rad", "random",
      "randomseed", "sin",   "sinh",  "sqrt", "tan",   "tanh", "tointeger", "type", "ult", NULL};
  static const char *const os[] = {"clock",   "date",   "difftime", "getenv", "time",
                                   "execute", "remove", "rename",   NULL};
  static const char *const io[] = {"close", "lines", "open", "output", "input",
                                   "popen", "read",  "type", "write",  NULL};
  static const char *const utf8[] = {"char", "codepoint", "codes", "len", "offset", NULL};
  static const struct {
    const char *module;
    const char *const *names;
  } all[] = {{"_G", base}, {"string", string}, {"table", table}, {"math", math},
             {"os", os},   {"io", io},         {"utf8", utf8}};
  for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
    if (!push_loaded(L, all[i].module)) continue;
    add_named(L, all[i].names);
    if (all[i].names == base) add_result(L, "ipairs", 1);
    if (all[i].names == string) add_result(L, "gmatch", 2);
    lua_pop(L, 1);
  }
}
