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

/* -- the hook -------------------------------------------------------------------------------------------- */

/* The host's count goes on by `gap` instructions. True when it ran out; then it starts anew. */
static bool count_for_host(vm_t *vm, int gap) {
  vm->host_left -= gap;
  if (vm->host_left > 0) return false;
  vm->host_left = vm->host.count;
  return true;
}

/* A sample stands for the mean of the gaps, not for its own gap: short-lived coroutines end inside theirs, and only the
 * chance of being hit is in proportion to what they ran. */
static void sample(vm_t *vm, lua_State *L) {
  double rate = (double)vm->options.cpu_max_samples_per_sec;
  double events = rate_limit_weigh(&vm->rate_limit, rate, rate == 0 ? 0 : time_monotonic(), &vm->random);
  if (events > 0)
    sampler_take(vm, L, 0, (uint64_t)(events * (double)vm->options.cpu_sample_mean_instr + 0.5));
  else
    live_lose(&vm->live, LOSS_RATE_LIMITED, 1); /* those that are kept carry its weight */
}

/* An instruction count ran out. True when the host's did. */
static bool count_event(vm_t *vm, lua_State *L) {
  int gap = lua_gethookcount(L);
  bool host_due = false, ours = true;
  if (host_counts(vm)) {
    host_due = count_for_host(vm, gap);
    if (host_due) ours = random_unit(&vm->random) * (double)vm->options.cpu_sample_mean_instr <= 1.0;
  }
  arm(vm, L);
  if (ours) sample(vm, L);
  return host_due;
}

/* PUC Lua counts the instructions of a hook written in Lua too, and swallows the event when the count ends in
 * one: our gap would start over, time and again in step with the program. So our count rests meanwhile; that of
 * the host goes on, as it does without us. Should the hook raise an error, the next event comes within
 * HOOK_ROOM. */
static void call_host(vm_t *vm, lua_State *L, lua_Debug *ar) {
  enum { HOOK_ROOM = 65536 };
  int offset = lua_gethook(L) == on_count ? vm->hook_count_offset : 0;
  if (offset == 0) {
    vm->host.function(L, ar);
    return;
  }
  int gap = lua_gethookcount(L), left = host_hook_left(L, offset);
  host_hook_set_left(L, offset, HOOK_ROOM);
  vm->host.function(L, ar);
  if (lua_gethook(L) != on_count) return;
  if (vm->host.mask & LUA_MASKCOUNT) {
    int inside = HOOK_ROOM - host_hook_left(L, offset);
    vm->host_left -= gap - left + inside;
    if (vm->host_left <= 0) vm->host_left += vm->host.count; /* swallowed, as without us */
    arm(vm, L);
  } else {
    host_hook_set_left(L, offset, left);
  }
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
  if (due) call_host(vm, L, ar); /* last: it may raise an error */
}

/* -- the engine ------------------------------------------------------------------------------------------ */

static bool start(vm_t *vm, lua_State *L, failure_t *failure) {
  vm->hook_count_offset = vm->luajit ? 0 : host_hook_find_counter(L);
  vm->host = host_hook_save(L, vm->hook_count_offset);
  vm->host_left = vm->host.left;
  rate_limit_start(&vm->rate_limit, time_monotonic());
  if (vm->luajit) {
    if (!luajit_turn_off(L, &vm->jit_was_on, failure)) return false;
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
    .asks_lua = true,
    .hook = on_count,
    .start = start,
    .stop = stop,
    .pause_changed = pause_changed,
    .created = created,
    .entering = entering,
};
