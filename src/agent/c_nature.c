/* SPDX-License-Identifier: MIT */
/* What C functions do with coroutines; see c_nature.h. A fixed hash table that only grows. */
#include "agent/c_nature.h"

#include <stdatomic.h>
#include <string.h>

#include "agent/library.h"

enum { SLOTS = 1024, MAX_COUNT = 512, NATURE_SHIFT = 56 };

static _Atomic uint64_t slots[SLOTS]; /* an address, which has 48 bits at most, and above it the nature */
static _Atomic int count;

static size_t first_slot(uint64_t code) {
  return (size_t)((code >> 4) * 0x9e3779b97f4a7c15u >> 54) % SLOTS;
}

walk_nature_t c_nature_of(uint64_t code) {
  const uint64_t address = ((uint64_t)1 << NATURE_SHIFT) - 1;
  for (size_t at = first_slot(code);; at = (at + 1) % SLOTS) { /* at most half full */
    uint64_t there = atomic_load_explicit(&slots[at], memory_order_relaxed);
    if ((there & address) == code) return (walk_nature_t)(there >> NATURE_SHIFT);
    if (there == 0) return WALK_C_ANY;
  }
}

static void add(lua_State *L, walk_nature_t nature) {
  uint64_t code = (uint64_t)(uintptr_t)lua_tocfunction(L, -1);
  if (code == 0 || c_nature_of(code) != WALK_C_ANY || atomic_load(&count) >= MAX_COUNT) return;
  for (size_t at = first_slot(code);; at = (at + 1) % SLOTS) {
    uint64_t empty = 0, filled = code | (uint64_t)nature << NATURE_SHIFT;
    if (!atomic_compare_exchange_strong(&slots[at], &empty, filled)) continue; /* another VM's start */
    atomic_fetch_add(&count, 1);
    return;
  }
}

/* What the library itself has put there has none, but for pairs and ipairs of 5.1. With upvalues one C function is many: all that a
 * binding makes, or coroutine.wrap. */
static bool has_upvalues(lua_State *L) {
  bool has = lua_getupvalue(L, -1, 1) != NULL;
  if (has) lua_pop(L, 1);
  return has;
}

/* Only what stands there under a name of the standard library: a program may have added functions of its own, or replaced some. */
static void add_named(lua_State *L, const char *const *names) {
  for (; *names != NULL; names++) {
    lua_pushstring(L, *names);
    lua_rawget(L, -2);
    if (lua_iscfunction(L, -1) && !has_upvalues(L)) add(L, WALK_C_INERT);
    lua_pop(L, 1);
  }
}

/* Iterators that only the functions which return them know. */
static void add_result(lua_State *L, const char *name, int arguments) {
  lua_pushstring(L, name);
  lua_rawget(L, -2);
  if (lua_iscfunction(L, -1)) {
    for (int i = 0; i < arguments; i++) arguments == 1 ? lua_newtable(L) : (void)lua_pushliteral(L, "");
    if (lua_pcall(L, arguments, 1, 0) == 0) add(L, WALK_C_INERT);
  }
  lua_pop(L, 1);
}

/* coroutine.resume, and the function that coroutine.wrap makes. */
static void add_resumers(lua_State *L) {
  int top = lua_gettop(L);
  if (!library_push(L, "coroutine")) return;
  lua_pushliteral(L, "resume");
  lua_rawget(L, -2);
  if (lua_iscfunction(L, -1) && !has_upvalues(L)) add(L, WALK_C_RESUMES_ARGUMENT);
  lua_pop(L, 1);
  lua_pushliteral(L, "wrap");
  lua_rawget(L, -2);
  if (lua_iscfunction(L, -1) && luaL_loadstring(L, "") == 0 && lua_pcall(L, 1, 1, 0) == 0)
    add(L, WALK_C_RESUMES_UPVALUE);
  lua_settop(L, top);
}

void c_nature_learn(lua_State *L) {
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
  static const char *const coroutine[] = {"create", "isyieldable", "running", "status",
                                          "wrap",   "yield",       NULL};
  static const struct {
    const char *module;
    const char *const *names;
  } all[] = {{"_G", base}, {"string", string}, {"table", table}, {"math", math},
             {"os", os},   {"io", io},         {"utf8", utf8},   {"coroutine", coroutine}};
  for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
    if (!library_push(L, all[i].module)) continue;
    add_named(L, all[i].names);
    if (all[i].names == base) add_result(L, "ipairs", 1);
    if (all[i].names == string) add_result(L, "gmatch", 2);
    lua_pop(L, 1);
  }
  add_resumers(L);
}
