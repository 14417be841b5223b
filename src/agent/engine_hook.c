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

/* Our mask and count are like no host's, so that each tells whether the host has stored its own since. */
enum {
  ARMED_MASK = LUA_MASKCALL | LUA_MASKRET | LUA_MASKCOUNT | 0x40, /* the VM minds known bits only */
  ARMED_COUNT = 0x5eed4321
};

static void on_hook(lua_State *L, lua_Debug *ar);

static int armed_mask(const host_hook_t *host) {
  return ARMED_MASK | (host->mask & LUA_MASKLINE); /* line events of this very instruction stay the host's */
}

/* -- in the signal handler, or between vm_keep_out and vm_let_in ----------------------------------------- */

static void set_hook(const vm_t *vm, lua_State *L, const host_hook_t *host) {
  host_hook_t ours = {on_hook, armed_mask(host), vm->hook_count_offset != 0 ? ARMED_COUNT : 1, 1};
  host_hook_restore(L, &ours, vm->hook_count_offset);
}

/* A tick may come while the host is inside lua_sethook, which stores the hook, then mask and count in either
 * order. If it had stored the hook, ours replaced it, and what it stored after is what it wants. True when it
 * did. */
static bool heed_host(const vm_t *vm, lua_State *L, host_hook_t *host) {
  int mask = lua_gethookmask(L), count = lua_gethookcount(L);
  bool new_mask = mask != armed_mask(host),
       new_count = count != (vm->hook_count_offset != 0 ? ARMED_COUNT : 1);
  if (!new_mask && !new_count) return false;
  if (new_mask) host->mask = mask;
  if (new_count) host->count = count;
  host->left = host->count;
  return true;
}

/* The main thread and the anchored one always are; a followed one is disarmed when it stops running; one that was found
 * is asked again, because it may have yielded by a C function, which fires no hook, and died. */
static bool is_alive(const vm_t *vm, const lua_State *L) {
  return L == vm->main || L == vm->base || vm->following || discover_is_running(&vm->discover, L);
}

static void disarm(vm_t *vm, armed_hook_t *armed) {
  if (armed->L != NULL && is_alive(vm, armed->L) && lua_gethook(armed->L) == on_hook) {
    heed_host(vm, armed->L, &armed->host);
    host_hook_restore(armed->L, &armed->host, vm->hook_count_offset);
  }
  armed->L = NULL;
}

static void arm(vm_t *vm, armed_hook_t *armed, lua_State *L) {
  if (armed->L == L && lua_gethook(L) == on_hook) { /* the last tick's hook still waits … */
    if (heed_host(vm, L, &armed->host)) set_hook(vm, L, &armed->host); /* … or would wait for ever */
    return;
  }
  disarm(vm, armed);
  host_hook_t host = host_hook_save(L, vm->hook_count_offset);
  if (host.function == on_hook) { /* inherited from a creator that was armed */
    host = vm->last_host_hook;
    host.left = host.count;
  }
  if ((host.mask & LUA_MASKCOUNT) && vm->hook_count_offset == 0) {
    live_lose(&vm->live, LOSS_DROPPED, 1); /* arming would restart the host's count */
    return;
  }
  armed->host = vm->last_host_hook = host;
  armed->L = L;
  set_hook(vm, L, &host);
}

static lua_State *running(const vm_t *vm, const void *context) {
  if (vm->following) return vm->running;
  lua_State *alive = vm->main != NULL ? vm->main : vm->base;
  lua_State *L = discover_running(&vm->discover, alive, context);
  return L != NULL ? L : alive; /* no Lua runs: this one will be back */
}

static void on_tick(tick_listener_t *listener, const void *context) {
  vm_t *vm = (vm_t *)listener; /* its first member */
  if (!vm->active || vm->paused || vm->busy || vm->left_thread) return;
  lua_State *L = running(vm, context);
  arm(vm, &vm->armed[0], L);
  /* the coroutine that called start may have yielded to one we know nothing of: the main thread tells when it
   * is back */
  if (vm->following && L == vm->base && vm->main != NULL && vm->main != L)
    arm(vm, &vm->armed[1], vm->main);
  else
    disarm(vm, &vm->armed[1]);
}

/* -- the hook -------------------------------------------------------------------------------------------- */

/* Puts the host's hook back on L. Returns it, with *due telling whether this event was one it asked for. */
static host_hook_t unhook(vm_t *vm, lua_State *L, int event, bool *due) {
  host_hook_t host = vm->last_host_hook; /* for a coroutine that inherited our hook from its creator */
  host.left = host.count;
  for (int i = 0; i < 2; i++) {
    if (vm->armed[i].L != L) continue;
    host = vm->armed[i].host;
    heed_host(vm, L, &host);
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
      uint64_t start = time_thread_cpu();
      sampler_take(vm, L, event == LUA_HOOKCALL ? 1 : 0, weight);
      ticker_cost(vm->listener.ticker, time_thread_cpu() - start);
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

static void created(vm_t *vm, lua_State *co) {
  if (lua_gethook(co) != on_hook) return;
  host_hook_t host = vm->last_host_hook;
  host.left = host.count; /* a new coroutine counts from the start */
  host_hook_restore(co, &host, vm->hook_count_offset);
}

/* coroutine.create or wrap returns: the tick may have armed its caller before it made the coroutine, which then inherited
 * our hook. It is the result, or the first upvalue of the function that is. */
static void clean_new_coroutine(vm_t *vm, lua_State *L) {
  if (lua_gettop(L) == 0) return;
  int pushed = lua_isfunction(L, -1) && lua_getupvalue(L, -1, 1) != NULL;
  lua_State *co = lua_tothread(L, -1);
  if (co != NULL && co != L) created(vm, co);
  lua_pop(L, pushed);
}

static void on_hook(lua_State *L, lua_Debug *ar) {
  vm_t *vm = vm_find(L);
  if (vm == NULL) {
    lua_sethook(L, NULL, 0, 0);
    return;
  }
  bool due;
  vm_keep_out(vm); /* a tick now must not arm again what is being undone */
  host_hook_t host = unhook(vm, L, ar->event, &due);
  if (ar->event == LUA_HOOKRET) clean_new_coroutine(vm, L);
  if (vm_profiled(vm) && !vm->paused && vm->engine == &engine_hook) take(vm, L, ar->event);
  vm_let_in(vm);
  if (due) host.function(L, ar); /* last: it may raise an error */
}

/* -- the engine ------------------------------------------------------------------------------------------ */

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
  vm_keep_out(vm);
  for (int i = 0; i < 2; i++) disarm(vm, &vm->armed[i]);
  vm_let_in(vm);
}

static void pause_changed(vm_t *vm, lua_State *L) {
  (void)L;
  vm->not_before = time_thread_cpu();
}

static void followed_creation(vm_t *vm, lua_State *co) {
  vm_keep_out(vm);
  created(vm, co);
  vm_let_in(vm);
}

static void leaving(vm_t *vm, lua_State *co) {
  if (vm->armed[0].L != co && vm->armed[1].L != co) return;
  vm_keep_out(vm);
  for (int i = 0; i < 2; i++)
    if (vm->armed[i].L == co) disarm(vm, &vm->armed[i]);
  vm_let_in(vm);
}

const engine_t engine_hook = {
    .name = "hook",
    .asks_lua = true,
    .start = start,
    .stop = stop,
    .pause_changed = pause_changed,
    .created = followed_creation,
    .leaving = leaving,
};
