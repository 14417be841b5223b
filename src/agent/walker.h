/* SPDX-License-Identifier: MIT */
/* A thread whose ticks are captured by walking its stack in the signal handler.
 *
 * Timers belong to threads, profiles to VMs: a walker is what a thread has, VMs come and go on it. At a tick it finds out
 * which VM runs, if any, and counts the sample for it, if that VM is profiled. */
#ifndef LUAPULSE_AGENT_WALKER_H
#define LUAPULSE_AGENT_WALKER_H

#include "agent/vm.h"

/* The calling thread gets a walker that ticks at least hz times a second, or keeps the one it has; the VM counts from now
 * on. */
bool walker_join(vm_t *vm, unsigned hz, failure_t *failure);
/* Time before this moment, on this thread, is not the VM's: it starts, or goes on after a pause. */
void walker_count_from_now(vm_t *vm);
/* The VM's pause began or ended: while it is the only one, the clock of its thread stops with it. */
void walker_pause(vm_t *vm, bool pause);
/* The VM does not count any more. Walkers nobody needs end. From any thread. */
void walker_leave(vm_t *vm);

/* For the watcher. Adopts another thread, to see whether a profiled VM has come to it; gives up those where none has;
 * tells whether a thread has a walker, and on whose native stack an address lies (high: its end, 0 when not known). */
bool walker_adopt(pid_t tid, unsigned hz);
void walker_give_up(void (*given_up)(pid_t tid));
bool walker_has_thread(pid_t tid);
bool walker_has_stack(uint64_t address, pid_t *tid, uint64_t *high);

/* What ticks for the VM. On the thread that runs it. */
ticker_facts_t walker_facts(const vm_t *vm);

/* What stands where the coroutine L keeps its first function (walk_body), read by its own thread. */
uint64_t walker_body_of(const lua_State *L);
/* The key under which walked frames of the function on top of L are known; 0 when it is none. */
uint64_t walker_key_of(lua_State *L);

int walker_guard_forks(void); /* errno or 0; see fork_guard.h */

#endif
