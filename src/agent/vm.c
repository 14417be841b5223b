/* SPDX-License-Identifier: MIT */
/* Finding and making the profiler's state of a VM; see vm.h. */
#include "agent/vm.h"

#include <sched.h>
#include <string.h>
#include <unistd.h>

#include "agent/budget.h"
#include "agent/heap.h"
#include "agent/luajit.h"
#include "agent/session.h"

static const char registry_key = 'v'; /* its address is the key */

vm_t *vm_find(lua_State *L) {
  lv_get_registry(L, &registry_key);
  vm_t *vm = lua_touserdata(L, -1);
  lua_pop(L, 1);
  return vm;
}

/* lua_close(): finalizers run before memory is freed, so this is where a session that was never stopped ends.
 */
static int on_close(lua_State *L) {
  vm_t *vm = lua_touserdata(L, 1);
  if (vm->active) session_abandon(vm, L);
  heap_forget(vm, L);
  /* Finalizers that run after this one find no VM, hence make no samples; nor can they start a session, whose
   * userdata would be freed without its finalizer. A userdata that never got into the registry, because memory
   * ran out on the way, must not throw out the one that did. */
  if (vm_find(L) == vm) {
    lua_pushboolean(L, 0);
    lv_set_registry(L, &registry_key);
  }
  return 0;
}

void vm_push(lua_State *L) {
  lv_get_registry(L, &registry_key);
  if (!lua_isnil(L, -1)) return; /* there, or closed */
  lua_pop(L, 1);
  vm_t *vm = lv_newuserdata(L, sizeof *vm);
  memset(vm, 0, sizeof *vm);
  vm->luajit = luajit_detect(L);
  lua_newtable(L);
  lua_pushcfunction(L, on_close);
  lua_setfield(L, -2, "__gc");
  lua_setmetatable(L, -2);
  lv_get_registry(L, &registry_key);
  if (lua_isnil(L, -1)) { /* else a finalizer that ran meanwhile has made one */
    lua_pop(L, 1);
    lua_pushvalue(L, -1);
    lv_set_registry(L, &registry_key);
    return;
  }
  lua_replace(L, -2);
}

vm_t *vm_get(lua_State *L) {
  vm_push(L);
  vm_t *vm = lua_touserdata(L, -1);
  lua_pop(L, 1);
  return vm;
}

void vm_keep_out(vm_t *vm) {
  while (!vm_try_keep_out(vm)) sched_yield();
  atomic_store_explicit(&vm->inside, true, memory_order_relaxed);
}

bool vm_charge(void *context, size_t bytes) {
  vm_t *vm = context;
  if (!budget_take(bytes, vm->options.max_process_memory_bytes)) return false;
  vm->charged += bytes;
  return true;
}

bool vm_profiled(const vm_t *vm) {
  return vm != NULL && vm->active && vm->pid == getpid();
}
