/* SPDX-License-Identifier: MIT */
/* Telling a second VM that uses our wrapper; see heap_foreign.h. */
#include "agent/heap_foreign.h"

#include "agent/walk_setup.h"

enum { MOST_EXTRA = 64 /* what a build may keep below its lua_States */ };

/* LuaJIT with 32-bit references makes VMs with its own allocator alone, and prints a line when asked for others. */
void heap_foreign_learn(heap_t *heap) {
  const layout_t *l = walk_setup_layout();
  if (l->family == LAYOUT_LUAJIT && l->luajit.pointer == 4) return;
  heap->vm_size = lv_vm_size();
}

static void hand_on_for_good(heap_t *heap) {
  atomic_store(&heap->shared, true);
  atomic_store(&heap->state, HEAP_OFF);
}

bool heap_foreign_begins(heap_t *heap, size_t type) {
  if (!lv_tells_types() || type != LUA_TTHREAD) return false;
  hand_on_for_good(heap);
  return true;
}

void heap_foreign_doubt(heap_t *heap, const void *block) {
  int state = atomic_load(&heap->state);
  if (lv_tells_types() || state == HEAP_DOUBTED || atomic_load(&heap->shared)) return;
  heap->doubted = (uint64_t)(uintptr_t)block;
  heap->state_before = state;
  atomic_compare_exchange_strong(&heap->state, &state, HEAP_DOUBTED);
}

/* Its lua_State comes first, and leads to a global_State in the same block. */
static bool is_vm(const heap_t *heap) {
  const layout_t *l = walk_setup_layout();
  uint64_t offset = l->family == LAYOUT_PUC ? l->puc.state_global : l->luajit.state_global;
  for (uint64_t extra = 0; extra <= MOST_EXTRA; extra += sizeof(uint64_t)) {
    uint64_t at = extra + offset;
    if (at + sizeof(uint64_t) > heap->vm_size) return false;
    uint64_t global = *(const volatile uint64_t *)(uintptr_t)(heap->doubted + at);
    if (global - heap->doubted < heap->vm_size) return true;
  }
  return false;
}

void heap_foreign_settle(heap_t *heap) {
  int doubted = HEAP_DOUBTED;
  if (is_vm(heap))
    hand_on_for_good(heap);
  else
    atomic_compare_exchange_strong(&heap->state, &doubted, heap->state_before);
}
