/* SPDX-License-Identifier: MIT */
/* Counting collections; see heap_cycle.h. */
#include "agent/heap_cycle.h"

#include "agent/walk_setup.h"

static const char metatable_key = 'm'; /* its address is the key */

typedef struct {
  uint64_t session; /* that sent it */
  vm_t *vm;         /* lives as long as the VM, and longer than any finalizer */
} messenger_t;

/* -- collections of the young --------------------------------------------------------------------------------------------- */

/* What is loaded as it lies in the VM. A layout that somebody gave may be wrong: where the main thread is was checked, and what lies
 * before it is there. */
static const uint8_t *byte_of_collector(const vm_t *vm, uint16_t offset) {
  const layout_t *layout = walk_setup_layout(); /* without one there is no heap profile */
  if (layout->family != LAYOUT_PUC || layout->language < 54) return NULL;
  const layout_puc_t *l = &layout->puc;
  uint16_t checked = l->global_main != LAYOUT_ABSENT ? l->global_main : l->global_main_inside;
  if (checked == LAYOUT_ABSENT || offset >= checked) return NULL;
  return (const uint8_t *)(uintptr_t)(vm->global + offset);
}

static void watch_white(heap_t *heap) {
  static const uint8_t never_turns;
  const layout_puc_t *l = &walk_setup_layout()->puc;
  const uint8_t *white = byte_of_collector(heap->vm, l->global_white);
  heap->kind = byte_of_collector(heap->vm, l->global_gc_kind);
  heap->white = white != NULL && heap->kind != NULL ? white : &never_turns;
  heap->last_white = *heap->white;
  heap->sweeps = false;
}

static bool collects_young(const heap_t *heap) {
  enum {
    YOUNG = 1
  }; /* KGC_GEN, KGC_GENMINOR. The whole ones in between, from 5.5 on (KGC_GENMAJOR), go by steps */
  return heap->kind != NULL && *heap->kind == YOUNG;
}

/* The messenger is not called by an emergency collection, nor (from 5.5 on) by one of the young that lets a whole one begin: the next that
 * turns the white shows that it has ended. */
void heap_cycle_turned(heap_t *heap) {
  heap->last_white = *heap->white;
  bool young = collects_young(heap);
  if (young || heap->sweeps) live_heap_end_cycle(&heap->vm->live);
  if (!young) heap->sweeps = true;
}

/* The messenger was called: a collection that goes by steps has ended, by when the next may be of the young again; or that of the young
 * has which finds it, in which case it may have been counted by what finalizers have allocated. */
static void end_cycle(heap_t *heap) {
  bool turned = heap_cycle_has_turned(heap);
  heap->last_white = *heap->white;
  if (!collects_young(heap) || turned || heap->sweeps) live_heap_end_cycle(&heap->vm->live);
  heap->sweeps = false;
}

/* -- the messenger ---------------------------------------------------------------------------------------------------------- */

static void send(lua_State *L, vm_t *vm) {
  messenger_t *messenger = lv_newuserdata(L, sizeof *messenger);
  *messenger = (messenger_t){vm->heap->session, vm};
}

/* Sends a new one, of the same kind as the one that is given. */
static int send_another(lua_State *L) {
  const messenger_t *messenger = lua_touserdata(L, 1);
  send(L, messenger->vm);
  lua_getmetatable(L, 1);
  lua_setmetatable(L, -2);
  return 0;
}

/* From 5.3 on an object is finalized again once it was given its metatable again, which takes no memory. Else there has to be a new one;
 * without memory for it the count stands still. The upvalue is send_another: making a function of it would take memory, too. */
static void send_again(lua_State *L, vm_t *vm) {
  if (lv_finalize_again(L, 1)) return;
  bool was_inside =
      atomic_exchange_explicit(&vm->inside, true, memory_order_relaxed); /* what it takes is the profiler's */
  lua_pushvalue(L, lua_upvalueindex(1));
  lua_pushvalue(L, 1);
  lua_pcall(L, 1, 0, 0);
  atomic_store_explicit(&vm->inside, was_inside, memory_order_relaxed);
}

/* Runs inside the collector, on whatever coroutine was running: thousands of times a second where the heap is small.
 * Nothing may be raised: up to 5.3 it would go through to the program. */
static int on_collected(lua_State *L) {
  const messenger_t *messenger = lua_touserdata(L, 1);
  vm_t *vm = messenger->vm;
  heap_t *heap = vm->heap;
  if (heap == NULL || heap->totals == NULL || messenger->session != heap->session) return 0;
  if (atomic_load_explicit(&heap->state, memory_order_relaxed) == HEAP_OFF && vm->active)
    return 0; /* a forked child */
  bool entered = heap_enter(vm);
  end_cycle(heap);
  send_again(L, vm);
  heap_leave(vm, entered);
  return 0;
}

static void push_metatable(lua_State *L) {
  lv_get_registry(L, &metatable_key);
  if (lua_istable(L, -1)) return;
  lua_pop(L, 1);
  lua_newtable(L);
  lua_pushcfunction(L, send_another);
  lua_pushcclosure(L, on_collected, 1);
  lua_setfield(L, -2, "__gc");
  lua_pushvalue(L, -1);
  lv_set_registry(L, &metatable_key);
}

void heap_cycle_watch(vm_t *vm, lua_State *L) {
  watch_white(vm->heap);
  push_metatable(L);
  send(L, vm);
  lua_insert(L, -2);
  lua_setmetatable(L, -2);
  lua_pop(L, 1);
}
