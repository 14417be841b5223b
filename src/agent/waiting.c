/* SPDX-License-Identifier: MIT */
/* Counting waiting; see waiting.h. Runs on the watcher's thread alone. */
#include "agent/waiting.h"

#include <unistd.h>

#include "agent/mapping.h"
#include "agent/sampler.h"
#include "agent/thread_state.h"
#include "agent/time.h"
#include "agent/vm_index.h"
#include "agent/walk_setup.h"
#include "agent/walker.h"
#include "walk/memory_own.h"

enum { UNKNOWN_STACK = 8 << 20 };

typedef struct {
  walk_t walk;
  memory_own_t memory;
} room_t;

static room_t *room; /* to walk in; made when first needed */

void waiting_end(void) {
  mapping_end(room, sizeof *room);
  room = NULL;
}

static bool is_it(void *context, uint64_t global) {
  return global == *(const uint64_t *)context;
}

static bool make_room(void) {
  if (room != NULL && room->memory.pid == getpid()) return true;
  waiting_end(); /* a forked child's copy of its parent's */
  room = mapping_new(sizeof *room);
  if (room == NULL) return false;
  memory_own_init(&room->memory, getpid());
  room->walk.memory = &room->memory.memory;
  return true;
}

static walk_reason_t walk_waiting(vm_t *vm, const thread_state_t *state) {
  walk_t *walk = &room->walk;
  pid_t thread;
  uint64_t high = 0;
  walk_setup_apply(walk);
  memory_own_begin(&room->memory, true, 0, 0);
  walk->accepts = is_it;
  walk->context = &vm->global;
  walk->registers.count = 0; /* not known; what matters was saved on the stack */
  walk->registers.sp = state->sp;
  walk->registers.pc = state->pc;
  walk->stack_known = walker_has_stack(state->sp, &thread, &high) && high != 0;
  walk->stack_high = walk->stack_known ? high : state->sp + UNKNOWN_STACK;
  walk->likely_main = vm->main_state;
  walk->likely_global = vm->global;
  walk->alone = true; /* only this VM counts */
  walk->state_count = walk->last_count = 0;
  walk_reason_t reason = walk_find(walk);
  return reason == WALK_OK ? walk_frames(walk) : reason;
}

/* False when the thread ran meanwhile: what was read is not of one moment. */
static bool count_wait(vm_t *vm, pid_t tid, const thread_state_t *state, uint64_t gap) {
  if (vm->wait_thread == tid && vm->wait_sp == state->sp && vm->wait_cpu_time == state->cpu_time) {
    sampler_take_again(vm, gap);
    return true;
  }
  walk_reason_t reason = walk_waiting(vm, state);
  if (!thread_state_is(tid, state)) return false;
  sampler_take_walk(vm, &room->walk, reason, gap, LABEL_WAITING);
  vm->wait_thread = tid;
  vm->wait_sp = state->sp;
  vm->wait_cpu_time = state->cpu_time;
  return true;
}

static void count_vm(vm_t *vm, void *context) {
  uint64_t now = *(const uint64_t *)context;
  if (!vm->wall) return;
  uint64_t gap = now > vm->wall_last ? now - vm->wall_last : 0;
  vm->wall_last = now;
  if (!vm->active || vm->paused || vm->pid != getpid()) return;
  pid_t tid = atomic_load(&vm->home);
  thread_state_t state = thread_state(tid);
  bool counted = false;
  if (state.activity != THREAD_RUNNING && make_room() && vm_try_keep_out(vm)) {
    counted = count_wait(vm, tid, &state, gap);
    vm_let_in(vm);
  }
  if (!counted) {
    atomic_fetch_add(&vm->wall_due, gap);
    vm->wait_thread = 0; /* a tick may take a sample in between */
  }
}

void waiting_count_all(void) {
  uint64_t now = time_monotonic();
  vm_index_each(&walked_vms, count_vm, &now);
}
