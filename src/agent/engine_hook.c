/* SPDX-License-Identifier: MIT */
/* cpu clock on PUC Lua: the tick of the thread's CPU timer arms a hook that fires once, at the next
 * instruction, call or return of the running coroutine, and takes the sample there.
 *
 * lua_sethook is async-signal-safe by design (the stock interpreter calls it on Ctrl-C). Between samples
 * nothing is armed, so nothing costs. A tick in a C function is seen when that function returns (RET: it is
 * on top) or calls back (CALL: the callee is on top, the time was its caller's). A CALL with no caller means
 * that no Lua ran at the tick. */
#include <string.h>

#include "agent/engine.h"
#include "agent/sampler.h"
#include "agent/time.h"

enum { ARMED_MASK = LUA_MASKCALL | LUA_MASKRET | LUA_MASKCOUNT };

static void on_hook(lua_State *L, lua_Debug *ar);

static int armed_mask(const host_hook_t *host) {
  return ARMED_MASK | (host->mask & LUA_MASKLINE); /* line events of this very instruction stay the host's */
}

/* -- in the signal handler, or with vm->busy set
 * ------------------------------------------------------------------ */

static void disarm(vm_t *vm, armed_hook_t *armed) {
  /* armed states are alive: they are on the chain of running coroutines, or anchored */
  if (armed->L != NULL && lua_gethook(armed->L) == on_hook)
    host_hook_restore(armed->L, &armed->host, vm->hook_count_offset);
  armed->L = NULL;
}

static void arm(vm_t *vm, armed_hook_t *armed, lua_State *L) {
  if (armed->L == L && lua_gethook(L) == on_hook) return; /* the last tick's hook still waits */
  disarm(vm, armed);
  host_hook_t host = host_hook_save(L, vm->hook_count_offset);
  if (host.function == on_hook) host = vm->last_host_hook; /* inherited from a creator that was armed */
  if ((host.mask & LUA_MASKCOUNT) && vm->hook_count_offset == 0) {
    live_lose(&vm->live, LOSS_DROPPED, 1); /* arming would restart the host's count */
    return;
  }
  armed->host = host;
  armed->L = L;
  lua_sethook(L, on_hook, armed_mask(&host), 1);
}

static void on_tick(tick_listener_t *listener) {
  vm_t *vm = (vm_t *)listener; /* its first member */
  if (!vm->active || vm->paused || vm->busy || vm->left_thread) return;
  lua_State *L = vm->running;
  arm(vm, &vm->armed[0], L);
  /* the coroutine that called start may have yielded to one we know nothing of: the main thread tells when it
   * is back */
  if (L == vm->base && vm->main != NULL && vm->main != L)
    arm(vm, &vm->armed[1], vm->main);
  else
    disarm(vm, &vm->armed[1]);
}

/* -- the hook
 * ----------------------------------------------------------------------------------------------------- */

/* Puts the host's hook back on L. Returns it, with *due telling whether this event was one it asked for. */
static host_hook_t unhook(vm_t *vm, lua_State *L, int event, bool *due) {
  host_hook_t host = vm->last_host_hook; /* for a coroutine that inherited our hook from its creator */
  for (int i = 0; i < 2; i++) {
    if (vm->armed[i].L != L) continue;
    host = vm->armed[i].host;
    if (lua_gethookmask(L) !=
        armed_mask(&host)) { /* the host was inside lua_sethook when the tick came: its words hold */
      host.mask = lua_gethookmask(L);
      host.count = host.left = lua_gethookcount(L);
    }
  }
  *due = host.function != NULL && (host.mask & host_hook_mask_of(event)) != 0;
  if (event == LUA_HOOKCOUNT && (host.mask & LUA_MASKCOUNT)) {
    host.left--; /* our one instruction is one of its count */
    *due = host.left <= 0;
    if (*due) host.left = host.count;
  }
  host_hook_restore(L, &host, vm->hook_count_offset);
  vm->last_host_hook = host;
  for (int i = 0; i < 2; i++)
    disarm(vm, &vm->armed[i]); /* one tick, one sample: the other one is not needed */
  return host;
}

static void take(vm_t *vm, lua_State *L, int event) {
  uint64_t weight;
  switch (ticker_take(vm->listener.ticker, vm->not_before, &weight)) {
    case TICK_TAKEN: {
      uint64_t start = time_monotonic();
      sampler_take(vm, L, event == LUA_HOOKCALL ? 1 : 0, weight);
      ticker_cost(vm->listener.ticker, time_monotonic() - start);
      break;
    }
    case TICK_OTHER_THREAD:
      vm->left_thread = 1; /* arming from one thread what another runs is not safe */
      live_lose(&vm->live, LOSS_DROPPED, 1);
      break;
    case TICK_NONE:
      break;
  }
}

static void on_hook(lua_State *L, lua_Debug *ar) {
  vm_t *vm = vm_find(L);
  if (vm == NULL) {
    lua_sethook(L, NULL, 0, 0);
    return;
  }
  bool due;
  vm->busy = 1; /* a tick now must not arm again what is being undone */
  host_hook_t host = unhook(vm, L, ar->event, &due);
  if (vm_profiled(vm) && !vm->paused && vm->engine == &engine_hook) take(vm, L, ar->event);
  vm->busy = 0;
  if (due) host.function(L, ar); /* last: it may raise an error */
}

/* -- the engine
 * --------------------------------------------------------------------------------------------------- */

static bool start(vm_t *vm, lua_State *L, failure_t *failure) {
  vm->hook_count_offset = host_hook_find_counter(L);
  memset(vm->armed, 0, sizeof vm->armed);
  memset(&vm->last_host_hook, 0, sizeof vm->last_host_hook);
  vm->left_thread = 0;
  vm->not_before = time_thread_cpu();
  vm->listener.on_tick = on_tick;
  return ticker_join(&vm->listener, vm->options.cpu_hz, random_next(&vm->random), failure);
}

static void stop(vm_t *vm, lua_State *L) {
  (void)L;
  ticker_leave(&vm->listener);
  vm->busy = 1;
  for (int i = 0; i < 2; i++) disarm(vm, &vm->armed[i]);
  vm->busy = 0;
}

static void pause_changed(vm_t *vm, lua_State *L) {
  (void)L;
  vm->not_before = time_thread_cpu();
}

static void created(vm_t *vm, lua_State *co) {
  vm->busy = 1;
  if (lua_gethook(co) == on_hook) host_hook_restore(co, &vm->armed[0].host, vm->hook_count_offset);
  vm->busy = 0;
}

static void leaving(vm_t *vm, lua_State *co) {
  if (vm->armed[0].L != co && vm->armed[1].L != co) return;
  vm->busy = 1;
  for (int i = 0; i < 2; i++)
    if (vm->armed[i].L == co) disarm(vm, &vm->armed[i]);
  vm->busy = 0;
}

const engine_t engine_hook = {
    .name = "hook",
    .start = start,
    .stop = stop,
    .pause_changed = pause_changed,
    .created = created,
    .leaving = leaving,
};
