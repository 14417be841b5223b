/* SPDX-License-Identifier: MIT */
/* The VMs being profiled, found by their global_State: one index of those that are walked, from any thread's signal handler,
 * one of those that are traced, from their hooks.
 *
 * A tick learns from memory which VM runs on its thread; that VM cannot close meanwhile, because closing runs on the thread
 * that runs it. Lookups take no lock and may run in handlers; adding and removing take one, in ordinary context. */
#ifndef LUAPULSE_AGENT_VM_INDEX_H
#define LUAPULSE_AGENT_VM_INDEX_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct vm;

enum { VM_INDEX_SLOTS = 4096, VM_INDEX_MAX = 3072 };

typedef struct {
  _Atomic uint64_t global; /* 0: never used */
  _Atomic(struct vm *) vm; /* NULL: removed */
} vm_slot_t;

typedef struct {
  vm_slot_t slots[VM_INDEX_SLOTS];
  _Atomic size_t count;
  pthread_mutex_t lock;
} vm_index_t;

extern vm_index_t walked_vms, traced_vms;

static inline size_t vm_index_first(uint64_t global) {
  return (size_t)((global >> 4) * 0x9e3779b97f4a7c15u >> 52) % VM_INDEX_SLOTS;
}

static inline struct vm *vm_index_find(vm_index_t *index, uint64_t global) {
  for (size_t i = 0, at = vm_index_first(global); i < VM_INDEX_SLOTS; i++, at = (at + 1) % VM_INDEX_SLOTS) {
    uint64_t key = atomic_load_explicit(&index->slots[at].global, memory_order_acquire);
    if (key == 0) return NULL;
    if (key != global) continue;
    struct vm *vm = atomic_load_explicit(&index->slots[at].vm, memory_order_acquire);
    if (vm != NULL) return vm;
  }
  return NULL;
}

bool vm_index_add(vm_index_t *index, uint64_t global, struct vm *vm); /* false when full */
void vm_index_remove(vm_index_t *index, uint64_t global);
size_t vm_index_count(vm_index_t *index);

/* Calls visit for each VM; none is added or removed meanwhile. Not from a handler. */
void vm_index_each(vm_index_t *index, void (*visit)(struct vm *vm, void *context), void *context);
/* A forked child profiles nothing of its parent's. Called by the only thread there is. */
void vm_index_forget_all(vm_index_t *index);
/* Around fork, so that the child does not find the lock taken. */
void vm_index_lock(vm_index_t *index);
void vm_index_unlock(vm_index_t *index);

#endif
