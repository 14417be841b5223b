/* SPDX-License-Identifier: MIT */
/* LuaJIT by weak references: present when the process runs LuaJIT, NULL elsewhere. */
#include "agent/luajit.h"

#include "agent/loader.h"

#include <signal.h>
#include <string.h>

#include "profile/intern.h"

/* LuaJIT's public interface (luajit.h), declared here so that building needs only Lua 5.1's headers. */
extern int luaJIT_setmode(lua_State *L, int index, int mode) __attribute__((weak));
extern void luaJIT_profile_start(lua_State *L, const char *mode, luajit_profile_callback_t *callback,
                                 void *data) __attribute__((weak));
extern void luaJIT_profile_stop(lua_State *L) __attribute__((weak));

enum { MODE_ENGINE = 0, MODE_OFF = 0x0000, MODE_ON = 0x0100, MODE_FLUSH = 0x0200 };

/* Leaves package.loaded.jit on the stack, or nothing and false. */
static bool push_jit(lua_State *L) {
  lua_getfield(L, LUA_REGISTRYINDEX, LUA_LOADED_TABLE);
  if (lua_istable(L, -1)) {
    lua_getfield(L, -1, "jit");
    lua_remove(L, -2);
  }
  if (lua_istable(L, -1)) return true;
  lua_pop(L, 1);
  return false;
}

bool luajit_detect(lua_State *L) {
  if (luaJIT_setmode == NULL || !push_jit(L)) return false;
  lua_getfield(L, -1, "version");
  const char *version = lua_tostring(L, -1);
  bool yes = version != NULL && strncmp(version, "LuaJIT", 6) == 0;
  lua_pop(L, 2);
  return yes;
}

bool luajit_has_profiler(void) {
  return luaJIT_profile_start != NULL && luaJIT_profile_stop != NULL;
}

/* It has no name to ask for, but lies in the same program or library as luaJIT_profile_start. */
bool luajit_is_profiler_handler(void (*handler)(int)) {
  Dl_info theirs, its;
  return handler != SIG_DFL && handler != SIG_IGN && loader_find((void *)handler, &theirs) &&
         loader_find((void *)luaJIT_profile_start, &its) && theirs.dli_fbase == its.dli_fbase;
}

void luajit_profile_begin(lua_State *L, const char *mode, luajit_profile_callback_t *callback, void *data) {
  luaJIT_profile_start(L, mode, callback, data);
}

void luajit_profile_end(lua_State *L) {
  luaJIT_profile_stop(L);
}

static bool is_on(lua_State *L) {
  bool on = false;
  if (!push_jit(L)) return false;
  lua_getfield(L, -1, "status");
  if (lua_isfunction(L, -1) && lua_pcall(L, 0, 1, 0) == 0) on = lua_toboolean(L, -1) != 0;
  lua_pop(L, 2);
  return on;
}

static int turn_off(lua_State *L) {
  luaJIT_setmode(L, 0, MODE_ENGINE | MODE_OFF);
  luaJIT_setmode(L, 0, MODE_ENGINE | MODE_FLUSH);
  return 0;
}

/* In protection: within a finalizer it raises an error. */
bool luajit_turn_off(lua_State *L, bool *was_on, failure_t *failure) {
  *was_on = false;
  if (!is_on(L)) return true;
  if (lv_protected_call(L, turn_off, NULL) != 0)
    return failure_set(failure,
                       "LuaJIT does not let its compiler be turned off in a finalizer: call start elsewhere");
  *was_on = true;
  return true;
}

static int turn_on(lua_State *L) {
  luaJIT_setmode(L, 0, MODE_ENGINE | MODE_ON);
  return 0;
}

/* Likewise. When the VM closes it does not matter; a finalizer that calls stop leaves it off. */
void luajit_turn_on(lua_State *L) {
  lv_protected_call(L, turn_on, NULL);
}

/* -- code ------------------------------------------------------------------------------------------------ */

/* Where a GCproto keeps its sizes, counted back from the first instruction, to which a Lua closure points. */
typedef struct {
  size_t closure_pc; /* offset of that pointer in the closure */
  size_t pc_bytes;   /* 8 with GC64, 4 without */
  size_t sizebc, sizept, sizekgc;
} proto_layout_t;

static const proto_layout_t layouts[] = {
    {32, 8, 104 - 12, 104 - 56, 104 - 48}, /* GC64 */
    {16, 4, 64 - 8, 64 - 32, 64 - 24},     /* GC32 */
};

static const proto_layout_t *known_layout; /* NULL until one was checked, or when none fits */

static uint32_t read_size(const char *pc, size_t back) {
  uint32_t value;
  memcpy(&value, pc - back, sizeof value);
  return value;
}

static const char *first_instruction(lua_State *L, const proto_layout_t *layout) {
  const char *closure = lua_topointer(L, -1);
  if (layout->pc_bytes == 4) {
    uint32_t pc;
    memcpy(&pc, closure + layout->closure_pc, sizeof pc);
    return (const char *)(uintptr_t)pc;
  }
  const char *pc;
  memcpy(&pc, closure + layout->closure_pc, sizeof pc);
  return pc;
}

/* The layout is believed only after jit.util.funcinfo has named the same number of instructions for two
 * functions. */
static bool agrees(lua_State *L, const proto_layout_t *layout, const char *source) {
  bool same = false;
  int top = lua_gettop(L);
  lv_push_globals(L);
  lua_pushliteral(L, "require");
  lua_rawget(L, -2);
  lua_pushliteral(L, "jit.util");
  if (lua_pcall(L, 1, 1, 0) == 0 && lua_istable(L, -1)) {
    lua_getfield(L, -1, "funcinfo");
    if (luaL_loadstring(L, source) == 0) {
      const char *pc = first_instruction(L, layout);
      uint32_t sizebc = (uintptr_t)pc > 4096 ? read_size(pc, layout->sizebc) : 0;
      if (lua_pcall(L, 1, 1, 0) == 0 && lua_istable(L, -1)) {
        lua_getfield(L, -1, "bytecodes");
        same = lua_tointeger(L, -1) == (lua_Integer)sizebc;
      }
    }
  }
  lua_settop(L, top);
  return same;
}

void luajit_learn_layout(lua_State *L) {
  static const char one[] = "return 1",
                    two[] = "local a, b = ... for i = 1, a do b = b * i + 7 end return b, a";
  if (known_layout != NULL) return;
  size_t count = sizeof layouts / sizeof layouts[0];
  /* GC64 puts objects anywhere in 47 bits, GC32 in the low 4 GiB: the address of a closure says which to try
   */
  const void *closure = NULL;
  if (luaL_loadstring(L, one) == 0) closure = lua_topointer(L, -1);
  lua_pop(L, 1);
  for (size_t i = 0; i < count && closure != NULL; i++) {
    bool narrow = layouts[i].pc_bytes == 4;
    if (narrow == ((uintptr_t)closure >> 32 == 0) && agrees(L, &layouts[i], one) &&
        agrees(L, &layouts[i], two))
      known_layout = &layouts[i];
  }
}

uint32_t luajit_code_fingerprint(lua_State *L) {
  if (known_layout == NULL) return 0;
  const char *pc = first_instruction(L, known_layout);
  uint32_t sizes[3] = {read_size(pc, known_layout->sizebc), read_size(pc, known_layout->sizept),
                       read_size(pc, known_layout->sizekgc)};
  return hash_bytes(sizes, sizeof sizes, 0);
}
