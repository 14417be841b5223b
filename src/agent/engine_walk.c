/* SPDX-License-Identifier: MIT */
/* cpu and wall clock: at a tick the stack is walked in the signal handler, at the exact point of interruption. No hook, nothing
 * armed, nothing asked of Lua; see walker.h. */
#include "agent/engine.h"
#include "agent/time.h"
#include "agent/walker.h"

static bool start(vm_t *vm, lua_State *L, failure_t *failure) {
  (void)L;
  walker_count_from_now(vm);
  vm->wall = vm->options.cpu_clock == LUAPULSE_CLOCK_WALL;
  vm->wall_last = time_monotonic();
  atomic_store(&vm->wall_due, 0);
  vm->wait_thread = 0;
  vm->watched_samples = vm->watched_activity = 0;
  return walker_join(vm, vm->options.cpu_hz, failure);
}

static void stop(vm_t *vm, lua_State *L) {
  (void)L;
  walker_leave(vm);
}

static void pause_changed(vm_t *vm, lua_State *L) {
  (void)L;
  walker_pause(vm, vm->paused != 0);
  atomic_store(&vm->wall_due, 0);
}

const engine_t engine_walk = {
    .name = "walk",
    .start = start,
    .stop = stop,
    .pause_changed = pause_changed,
};
