/* SPDX-License-Identifier: MIT */
/* debug.gethook and debug.sethook beside a hook of ours; see debug_library.h. */
#include "agent/debug_library.h"

#include <unistd.h>

#include "agent/engine.h"
#include "agent/host_hook.h"
#include "agent/library.h"

enum { UP_VM = 1, UP_ORIGINAL = 2 }; /* upvalues of the replacements */

static vm_t *upvalue_vm(lua_State *L) {
  return lua_touserdata(L, lua_upvalueindex(UP_VM));
}

/* In this very call, with its arguments: errors are word for word those of the original, and no call is seen but one. */
static int call_original(lua_State *L) {
  return lua_tocfunction(L, lua_upvalueindex(UP_ORIGINAL))(L);
}

/* The coroutine that the arguments are about. */
static lua_State *subject(lua_State *L) {
  return lua_isthread(L, 1) ? lua_tothread(L, 1) : L;
}

static bool has_ours(lua_State *L) {
  lua_Hook hook = lua_gethook(L);
  return hook != NULL && (hook == engine_trace.hook || hook == engine_count.hook);
}

/* False in a coroutine that slept through the end of the session, and in a forked child: ours is on its way out there. */
static bool is_on(const vm_t *vm) {
  return vm->active && vm->pid == getpid();
}

static int gethook(lua_State *L) {
  vm_t *vm = upvalue_vm(L);
  lua_State *of = subject(L);
  if (!has_ours(of)) return call_original(L);
  const host_hook_t none = {NULL, 0, 0, 0};
  host_hook_t ours = host_hook_save(of, vm->hook_count_offset);
  host_hook_restore(of, is_on(vm) ? &vm->host : &none, vm->hook_count_offset);
  int results =
      call_original(L); /* where it has no memory for them ours is gone: the program has other worries then */
  host_hook_restore(of, &ours, vm->hook_count_offset);
  return results;
}

static int sethook(lua_State *L) {
  vm_t *vm = upvalue_vm(L);
  lua_State *of = subject(L);
  if (!has_ours(of) || !is_on(vm) || vm->host.function != NULL) return call_original(L);
  host_hook_t ours = host_hook_save(of, vm->hook_count_offset);
  int results = call_original(L);
  if (lua_gethook(of) == NULL) host_hook_restore(of, &ours, vm->hook_count_offset);
  return results;
}

/* -- putting them in and taking them out ------------------------------------------------------------------------- */

static const struct {
  const char *name;
  lua_CFunction function;
} replacements[] = {{"gethook", gethook}, {"sethook", sethook}};

enum { REPLACEMENTS = sizeof replacements / sizeof replacements[0] };

/* The function on top is one that can be called in the stead of another: of C, with nothing of its own. */
static bool is_plain(lua_State *L, lua_CFunction ours) {
  lua_CFunction function = lua_tocfunction(L, -1);
  if (function == NULL || function == ours) return false;
  if (lua_getupvalue(L, -1, 1) == NULL) return true;
  lua_pop(L, 1);
  return false;
}

void debug_library_watch(lua_State *L) {
  if (!library_push(L, LUA_DBLIBNAME)) return;
  for (int i = 0; i < REPLACEMENTS; i++) {
    lua_pushstring(L, replacements[i].name);
    lua_pushvalue(L, -1);
    lua_rawget(L, -3);
    if (!is_plain(L, replacements[i].function)) {
      lua_pop(L, 2);
      continue;
    }
    vm_push(L);
    lua_insert(L, -2);
    lua_pushcclosure(L, replacements[i].function, 2);
    lua_rawset(L, -3);
  }
  lua_pop(L, 1);
}

void debug_library_unwatch(lua_State *L) {
  if (!library_push(L, LUA_DBLIBNAME)) return;
  for (int i = 0; i < REPLACEMENTS; i++) {
    lua_pushstring(L, replacements[i].name);
    lua_pushvalue(L, -1);
    lua_rawget(L, -3);
    if (lua_tocfunction(L, -1) != replacements[i].function || lua_getupvalue(L, -1, UP_ORIGINAL) == NULL) {
      lua_pop(L, 2);
      continue;
    }
    lua_remove(L, -2);
    lua_rawset(L, -3);
  }
  lua_pop(L, 1);
}
