/* SPDX-License-Identifier: MIT */
/* Counting collections; see heap_cycle.h. */
#include "agent/heap_cycle.h"

#include "agent/walk_setup.h"

static const char metatable_key = 'm'; /* its address is the key */

static int make_messenger(lua_State *L) {
  const vm_t *vm = lua_touserdata(L, 1);
  uint64_t *session = lv_newuserdata(L, sizeof *session);
  *session = vm->heap->session;
  lv_get_registry(L, &metatable_key);
  lua_setmetatable(L, -2);
  return 0;
}

/* From 5.4 on there are collections that leave out what is old, as a messenger is that was made before the last. Turning them on is a
 * collection itself, so it is enough to ask in each. */
static bool leaves_out_the_old(const vm_t *vm) {
  const layout_t *layout = walk_setup_layout(); /* without one there is no heap profile */
  if (layout->family != LAYOUT_PUC || layout->language < 54) return false;
  /* It is loaded, and a layout that somebody gave may be wrong: where the main thread is was checked, and what lies before it is there. */
  const layout_puc_t *l = &layout->puc;
  uint16_t checked = l->global_main != LAYOUT_ABSENT ? l->global_main : l->global_main_inside;
  if (checked == LAYOUT_ABSENT || l->global_gc_kind >= checked) return true; /* for all that is known */
  return *(const uint8_t *)(uintptr_t)(vm->global + l->global_gc_kind) != 0;
}

/* From 5.3 on an object is finalized again once it was given its metatable again, which takes no memory. Else there has to be a new one;
 * without memory for it the count stands still. */
static void send_again(lua_State *L, vm_t *vm) {
  if (!leaves_out_the_old(vm) && lv_finalize_again(L, 1)) return;
  bool was_inside =
      atomic_exchange_explicit(&vm->inside, true, memory_order_relaxed); /* what it takes is the profiler's */
  lv_protected_call(L, make_messenger, vm);
  atomic_store_explicit(&vm->inside, was_inside, memory_order_relaxed);
}

/* Runs inside the collector, on whatever coroutine was running: tens of thousands of times a second where the heap is small.
 * Nothing may be raised: up to 5.3 it would go through to the program. */
static int on_collected(lua_State *L) {
  const uint64_t *session = lua_touserdata(L, 1);
  vm_t *vm = vm_find(L);
  heap_t *heap = vm != NULL ? vm->heap : NULL;
  if (heap == NULL || heap->totals == NULL || *session != heap->session) return 0;
  if (atomic_load_explicit(&heap->state, memory_order_relaxed) == HEAP_OFF && vm->active)
    return 0; /* a forked child */
  bool entered = heap_enter(vm);
  live_heap_end_cycle(&vm->live);
  send_again(L, vm);
  heap_leave(vm, entered);
  return 0;
}

void heap_cycle_watch(vm_t *vm, lua_State *L) {
  lv_get_registry(L, &metatable_key);
  bool there = lua_istable(L, -1);
  lua_pop(L, 1);
  if (!there) {
    lua_newtable(L);
    lua_pushcfunction(L, on_collected);
    lua_setfield(L, -2, "__gc");
    lv_set_registry(L, &metatable_key);
  }
  lua_pushcfunction(L, make_messenger);
  lua_pushlightuserdata(L, vm);
  lua_call(L, 1, 0);
}
