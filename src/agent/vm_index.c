/* SPDX-License-Identifier: MIT */
/* Profiled VMs by global_State; see vm_index.h. Open addressing; a removed entry keeps its key until it is reused, so that
 * a lookup under way never misses what lies behind it. */
#include "agent/vm_index.h"

enum { SLOTS = VM_INDEX_SLOTS };

vm_index_t walked_vms = {.lock = PTHREAD_MUTEX_INITIALIZER}, traced_vms = {.lock = PTHREAD_MUTEX_INITIALIZER};

bool vm_index_add(vm_index_t *index, uint64_t global, struct vm *vm) {
  bool added = false;
  pthread_mutex_lock(&index->lock);
  if (atomic_load(&index->count) < VM_INDEX_MAX) {
    for (size_t i = 0, at = vm_index_first(global); i < SLOTS && !added; i++, at = (at + 1) % SLOTS) {
      if (atomic_load(&index->slots[at].vm) != NULL) continue;
      atomic_store_explicit(&index->slots[at].global, global, memory_order_release);
      atomic_store_explicit(&index->slots[at].vm, vm, memory_order_release);
      atomic_fetch_add(&index->count, 1);
      added = true;
    }
  }
  pthread_mutex_unlock(&index->lock);
  return added;
}

/* Removed entries at the end of a run of used ones are in nobody's way: free for good. */
static void free_tail(vm_slot_t *slots, size_t at) {
  if (atomic_load(&slots[(at + 1) % SLOTS].global) != 0) return;
  while (atomic_load(&slots[at].global) != 0 && atomic_load(&slots[at].vm) == NULL) {
    atomic_store_explicit(&slots[at].global, 0, memory_order_release);
    at = (at + SLOTS - 1) % SLOTS;
  }
}

void vm_index_remove(vm_index_t *index, uint64_t global) {
  pthread_mutex_lock(&index->lock);
  for (size_t i = 0, at = vm_index_first(global); i < SLOTS; i++, at = (at + 1) % SLOTS) {
    uint64_t key = atomic_load(&index->slots[at].global);
    if (key == 0) break;
    if (key != global || atomic_load(&index->slots[at].vm) == NULL) continue;
    atomic_store_explicit(&index->slots[at].vm, NULL, memory_order_release);
    atomic_fetch_sub(&index->count, 1);
    free_tail(index->slots, at);
    break;
  }
  pthread_mutex_unlock(&index->lock);
}

size_t vm_index_count(vm_index_t *index) {
  return atomic_load_explicit(&index->count, memory_order_relaxed);
}

void vm_index_each(vm_index_t *index, void (*visit)(struct vm *vm, void *context), void *context) {
  pthread_mutex_lock(&index->lock);
  size_t left = atomic_load(&index->count);
  for (size_t at = 0; at < SLOTS && left > 0; at++) {
    struct vm *vm = atomic_load(&index->slots[at].vm);
    if (vm == NULL) continue;
    left--;
    visit(vm, context);
  }
  pthread_mutex_unlock(&index->lock);
}

void vm_index_forget_all(vm_index_t *index) {
  for (size_t at = 0; at < SLOTS; at++) {
    atomic_store(&index->slots[at].vm, NULL);
    atomic_store(&index->slots[at].global, 0);
  }
  atomic_store(&index->count, 0);
}

void vm_index_lock(vm_index_t *index) {
  pthread_mutex_lock(&index->lock);
}

void vm_index_unlock(vm_index_t *index) {
  pthread_mutex_unlock(&index->lock);
}
