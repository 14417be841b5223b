/* SPDX-License-Identifier: MIT */
/* The VMs being profiled by walking, found by their global_State from any thread's signal handler.
 *
 * A tick learns from memory which VM runs on its thread; that VM cannot close meanwhile, because closing runs on the thread
 * that runs it. Lookups take no lock and may run in handlers; adding and removing take one, in ordinary context. */
#ifndef LUAPULSE_AGENT_VM_INDEX_H
#define LUAPULSE_AGENT_VM_INDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct vm;

enum { VM_INDEX_MAX = 3072 };

bool vm_index_add(uint64_t global, struct vm *vm); /* false when full */
void vm_index_remove(uint64_t global);
struct vm *vm_index_find(uint64_t global);
size_t vm_index_count(void);

/* Calls visit for each VM; none is added or removed meanwhile. Not from a handler. */
void vm_index_each(void (*visit)(struct vm *vm, void *context), void *context);
/* A forked child profiles nothing of its parent's. Called by the only thread there is. */
void vm_index_forget_all(void);
/* Around fork, so that the child does not find the lock taken. */
void vm_index_lock(void);
void vm_index_unlock(void);

#endif
