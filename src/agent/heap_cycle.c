/* SPDX-License-Identifier: MIT */
/* Counting collections; see heap_cycle.h. */
#include "agent/heap_cycle.h"

#include <unistd.h>

static const char metatable_key = 'm', witness_key = 'w'; /* their addresses are the keys */

/* The messenger is referred to by nobody and dies with each collection. Its witness is in the registry, and dies only when the VM
 * closes: then all finalizers are called, the newest object's first, hence the witness's before the messenger's. */
typedef struct {
  uint64_t session;
  enum { MESSENGER, WITNESS, RETIRED } kind;
} mark_t;

static mark_t *make_mark(lua_State *L, const vm_t *vm, int kind) {
  mark_t *mark = lv_newuserdata(L, sizeof *mark);
  *mark = (mark_t){vm->heap->session, kind};
  lv_get_registry(L, &metatable_key);
  lua_setmetatable(L, -2);
  return mark;
}

static int make_next(lua_State *L) {
  const vm_t *vm = lua_touserdata(L, 1);
  make_mark(L, vm, MESSENGER);
  make_mark(L, vm, WITNESS);
  lv_get_registry(L, &witness_key);
  mark_t *before = lua_touserdata(L, -1);
  lua_pop(L, 1);
  lv_set_registry(L, &witness_key);
  if (before != NULL) before->kind = RETIRED;
  return 0;
}

/* Runs inside the collector, on whatever coroutine was running. Nothing may be raised: up to 5.3 it would go through to the
 * program. Without memory for the next one the count stands still. */
static int on_finalized(lua_State *L) {
  const mark_t *mark = lua_touserdata(L, 1);
  vm_t *vm = vm_find(L);
  if (vm == NULL || vm->pid != getpid() || vm->heap == NULL || vm->heap->totals == NULL ||
      mark->session != vm->heap->session)
    return 0;
  if (mark->kind == WITNESS) vm->heap->closing = true;
  if (mark->kind != MESSENGER || vm->heap->closing) return 0;
  bool entered = heap_enter(vm);
  live_heap_end_cycle(&vm->live);
  /* what is allocated here is the profiler's */
  bool was_inside = atomic_exchange_explicit(&vm->inside, true, memory_order_relaxed);
  lv_protected_call(L, make_next, vm);
  atomic_store_explicit(&vm->inside, was_inside, memory_order_relaxed);
  heap_leave(vm, entered);
  return 0;
}

void heap_cycle_watch(vm_t *vm, lua_State *L) {
  lv_get_registry(L, &metatable_key);
  bool there = lua_istable(L, -1);
  lua_pop(L, 1);
  if (!there) {
    lua_newtable(L);
    lua_pushcfunction(L, on_finalized);
    lua_setfield(L, -2, "__gc");
    lv_set_registry(L, &metatable_key);
  }
  lua_pushcfunction(L, make_next);
  lua_pushlightuserdata(L, vm);
  lua_call(L, 1, 0);
}
