/* SPDX-License-Identifier: MIT */
/* Labels of coroutines; see label.h. */
#include "agent/label.h"

bool label_set(vm_t *vm, lua_State *L, const char *text, size_t len, failure_t *failure) {
  live_ref_t set = 0;
  if (len > 0) {
    vm_keep_out(vm);
    set = live_string(&vm->live, text, len);
    vm_let_in(vm);
    if (set == 0)
      return failure_set(failure, "no room for new labels: the profile tables are full (max_memory_bytes)");
  }
  lua_rawgeti(L, LUA_REGISTRYINDEX, vm->labels_ref);
  lua_pushthread(L);
  if (set != 0)
    lua_pushinteger(L, (lua_Integer)set);
  else
    lua_pushnil(L);
  lua_rawset(L, -3);
  lua_pop(L, 1);
  if (set != 0) vm->has_labels = true;
  return true;
}

live_ref_t label_get(vm_t *vm, lua_State *L) {
  if (!vm->has_labels) return 0;
  lua_rawgeti(L, LUA_REGISTRYINDEX, vm->labels_ref);
  lua_pushthread(L);
  lua_rawget(L, -2);
  live_ref_t set = (live_ref_t)lua_tointeger(L, -1);
  lua_pop(L, 2);
  return set;
}
