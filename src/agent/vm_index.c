/* SPDX-License-Identifier: MIT */
/* Profiled VMs by global_State; see vm_index.h. Open addressing; a removed entry keeps its key until it is reused, so that
 * a lookup under way never misses what lies behind it. */
#include "agent/vm_index.h"

#include <pthread.h>
#include <stdatomic.h>

enum { SLOTS = 4096 };

typedef struct {
  _Atomic uint64_t global; /* 0: never used */
  _Atomic(struct vm *) vm; /* NULL: removed */
} slot_t;

static slot_t slots[SLOTS];
static _Atomic size_t count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static size_t first_slot(uint64_t global) {
  return (size_t)((global >> 4) * 0x9e3779b97f4a7c15u >> 52) % SLOTS;
}

struct vm *vm_index_find(uint64_t global) {
  for (size_t i = 0, at = first_slot(global); i < SLOTS; i++, at = (at + 1) % SLOTS) {
    uint64_t key = atomic_load_explicit(&slots[at].global, memory_order_acquire);
    if (key == 0) return NULL;
    if (key != global) continue;
    struct vm *vm = atomic_load_explicit(&slots[at].vm, memory_order_acquire);
    if (vm != NULL) return vm;
  }
  return NULL;
}

bool vm_index_add(uint64_t global, struct vm *vm) {
  bool added = false;
  pthread_mutex_lock(&lock);
  if (atomic_load(&count) < VM_INDEX_MAX) {
    for (size_t i = 0, at = first_slot(global); i < SLOTS && !added; i++, at = (at + 1) % SLOTS) {
      if (atomic_load(&slots[at].vm) != NULL) continue;
      atomic_store_explicit(&slots[at].global, global, memory_order_release);
      atomic_store_explicit(&slots[at].vm, vm, memory_order_release);
      atomic_fetch_add(&count, 1);
      added = true;
    }
  }
  pthread_mutex_unlock(&lock);
  return added;
}

/* Removed entries at the end of a run of used ones are in nobody's way: free for good. */
static void free_tail(size_t at) {
  if (atomic_load(&slots[(at + 1) % SLOTS].global) != 0) return;
  while (atomic_load(&slots[at].global) != 0 && atomic_load(&slots[at].vm) == NULL) {
    atomic_store_explicit(&slots[at].global, 0, memory_order_release);
    at = (at + SLOTS - 1) % SLOTS;
  }
}

void vm_index_remove(uint64_t global) {
  pthread_mutex_lock(&lock);
  for (size_t i = 0, at = first_slot(global); i < SLOTS; i++, at = (at + 1) % SLOTS) {
    uint64_t key = atomic_load(&slots[at].global);
    if (key == 0) break;
    if (key != global || atomic_load(&slots[at].vm) == NULL) continue;
    atomic_store_explicit(&slots[at].vm, NULL, memory_order_release);
    atomic_fetch_sub(&count, 1);
    free_tail(at);
    break;
  }
  pthread_mutex_unlock(&lock);
}

size_t vm_index_count(void) {
  return atomic_load_explicit(&count, memory_order_relaxed);
}

void vm_index_each(void (*visit)(struct vm *vm, void *context), void *context) {
  pthread_mutex_lock(&lock);
  size_t left = atomic_load(&count);
  for (size_t at = 0; at < SLOTS && left > 0; at++) {
    struct vm *vm = atomic_load(&slots[at].vm);
    if (vm == NULL) continue;
    left--;
    visit(vm, context);
  }
  pthread_mutex_unlock(&lock);
}

void vm_index_forget_all(void) {
  for (size_t at = 0; at < SLOTS; at++) {
    atomic_store(&slots[at].vm, NULL);
    atomic_store(&slots[at].global, 0);
  }
  atomic_store(&count, 0);
}

void vm_index_lock(void) {
  pthread_mutex_lock(&lock);
}

void vm_index_unlock(void) {
  pthread_mutex_unlock(&lock);
}
