/* SPDX-License-Identifier: MIT */
/* instructions clock: a resident count hook whose gaps are exponential, drawn anew at each sample.
 * Reproducible and without signals, but a resident hook slows every instruction (20-100 % on 5.4).
 *
 * Gaps are memoryless, which makes two things simple. Each coroutine may have its own gap: the rate over all
 * stays 1 in mean. And when the host counts instructions too, our hook serves both: the nearer count is
 * armed; at an event that is the host's alone a fresh gap is drawn, except that with the chance of 1 in mean
 * this very instruction was ours as well. */
#include <limits.h>

#include "agent/engine.h"
#include "agent/luajit.h"
#include "agent/sampler.h"
#include "agent/time.h"

static void on_count(lua_State *L, lua_Debug *ar);

static bool host_counts(const vm_t *vm) {
  return vm->host.function != NULL && (vm->host.mask & LUA_MASKCOUNT);
}

static void arm(vm_t *vm, lua_State *L) {
  uint64_t gap = random_exponential(&vm->random, (double)vm->options.cpu_sample_mean_instr);
  if (gap > INT_MAX) gap = INT_MAX;
  if (host_counts(vm) && vm->host_left > 0 && (uint64_t)vm->host_left < gap) gap = (uint64_t)vm->host_left;
  lua_sethook(L, on_count, LUA_MASKCOUNT | (vm->host.function != NULL ? vm->host.mask : 0), (int)gap);
}

static void unhook(vm_t *vm, lua_State *L) {
  if (lua_gethook(L) != on_count) return;
  host_hook_t ours = host_hook_save(L, vm->hook_count_offset), host = vm->host;
  int64_t left = vm->host_left - (ours.count - ours.left); /* what this coroutine has used up of its gap */
  host.left = left > 0 ? (int)left : 1;
  host_hook_restore(L, &host, vm->hook_count_offset);
}

/* -- the rate limit: a token a sample, refilled with time ------------------------------------------------ */

static bool within_rate(vm_t *vm) {
  double rate = (double)vm->options.cpu_max_samples_per_sec;
  if (rate == 0) return true;
  double burst = rate / 20 > 1 ? rate / 20 : 1; /* 50 ms worth */
  uint64_t now = time_monotonic();
  vm->tokens += (double)(now - vm->tokens_at) * 1e-9 * rate;
  vm->tokens_at = now;
  if (vm->tokens > burst) vm->tokens = burst;
  if (vm->tokens < 1) return false;
  vm->tokens -= 1;
  return true;
}

/* -- the hook -------------------------------------------------------------------------------------------- */

/* The host's count goes on by `gap` instructions. True when it ran out; then it starts anew. */
static bool count_for_host(vm_t *vm, int gap) {
  vm->host_left -= gap;
  if (vm->host_left > 0) return false;
  vm->host_left = vm->host.count;
  return true;
}

/* An instruction count ran out. True when the host's did. */
static bool count_event(vm_t *vm, lua_State *L) {
  int gap = lua_gethookcount(L);
  bool host_due = false, ours = true;
  vm->instructions += (uint64_t)gap;
  if (host_counts(vm)) {
    host_due = count_for_host(vm, gap);
    if (host_due) ours = random_unit(&vm->random) * (double)vm->options.cpu_sample_mean_instr <= 1.0;
  }
  arm(vm, L);
  if (ours && within_rate(vm)) {
    sampler_take(vm, L, 0, vm->instructions);
    vm->instructions = 0;
  } else if (ours) {
    live_lose(&vm->live, LOSS_RATE_LIMITED, 1); /* the next sample carries these instructions */
  }
  return host_due;
}

static void on_count(lua_State *L, lua_Debug *ar) {
  vm_t *vm = vm_find(L);
  if (vm == NULL) {
    lua_sethook(L, NULL, 0, 0);
    return;
  }
  bool due = vm->host.function != NULL && (vm->host.mask & host_hook_mask_of(ar->event)) != 0;
  if (!vm_profiled(vm) || vm->engine != &engine_count || vm->paused) {
    if (ar->event == LUA_HOOKCOUNT) due = host_counts(vm) && count_for_host(vm, lua_gethookcount(L));
    unhook(vm, L); /* a coroutine that slept through the end of the session */
  } else if (ar->event == LUA_HOOKCOUNT) {
    vm_keep_out(vm);
    due = count_event(vm, L);
    vm_let_in(vm);
  }
  if (due) vm->host.function(L, ar); /* last: it may raise an error */
}

/* -- the engine ------------------------------------------------------------------------------------------ */

static bool start(vm_t *vm, lua_State *L, failure_t *failure) {
  (void)failure;
  vm->hook_count_offset = vm->luajit ? 0 : host_hook_find_counter(L);
  vm->host = host_hook_save(L, vm->hook_count_offset);
  vm->host_left = vm->host.left;
  vm->instructions = 0;
  vm->tokens = 1;
  vm->tokens_at = time_monotonic();
  if (vm->luajit) {
    vm->jit_was_on = luajit_turn_off(L);
    if (vm->jit_was_on)
      live_comment(&vm->live,
                   "the JIT compiler was turned off while profiling: compiled code counts no instructions");
  }
  arm(vm, L);
  if (vm->main != NULL && vm->main != L && lua_gethook(vm->main) == vm->host.function) arm(vm, vm->main);
  return true;
}

static void stop(vm_t *vm, lua_State *L) {
  bool replaced = lua_gethook(L) != on_count && !vm->paused;
  if (replaced)
    live_comment(&vm->live, "the program set a debug hook of its own, which ended sampling where it was set");
  unhook(vm, L);
  unhook(vm, vm->base);
  if (vm->main != NULL) unhook(vm, vm->main);
  for (resume_link_t *link = vm->links; link != NULL; link = link->outer) unhook(vm, link->from);
  if (vm->jit_was_on) luajit_turn_on(L);
  vm->jit_was_on = false;
}

static void arm_if_free(vm_t *vm, lua_State *L) {
  lua_Hook hook = lua_gethook(L);
  if (hook == NULL || hook == vm->host.function)
    arm(vm, L); /* another hook is that coroutine's own: left alone */
}

static void pause_changed(vm_t *vm, lua_State *L) {
  if (vm->paused) {
    unhook(vm, L); /* others take theirs off when they next fire */
  } else {
    host_hook_t host = host_hook_save(L, vm->hook_count_offset); /* it counted on in the meantime */
    if (host.function == vm->host.function) {
      vm->host = host;
      vm->host_left = host.left;
    }
    vm->instructions = 0;
    arm_if_free(vm, L);
  }
}

static void created(vm_t *vm, lua_State *co) {
  /* inherited: the creator's count, which says nothing of this coroutine; it gets a gap of its own */
  if (lua_gethook(co) == on_count) arm(vm, co);
}

static void entering(vm_t *vm, lua_State *co) {
  if (!vm->paused && lua_gethook(co) != on_count) arm_if_free(vm, co);
}

const engine_t engine_count = {
    .name = "count",
    .start = start,
    .stop = stop,
    .pause_changed = pause_changed,
    .created = created,
    .entering = entering,
};
