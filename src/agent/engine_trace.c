/* SPDX-License-Identifier: MIT */
/* cpu tracing: hooks on every call and return; see trace.h. Memory, start, stop and pause. */
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#include "agent/budget.h"
#include "agent/engine.h"
#include "agent/luajit.h"
#include "agent/mapping.h"
#include "agent/stopwatch.h"
#include "agent/trace.h"
#include "agent/vm_index.h"
#include "agent/walk_setup.h"

static size_t aligned(size_t bytes) {
  return (bytes + 63) & ~(size_t)63;
}

/* One mapping for all. */
static trace_t *map_trace(vm_t *vm) {
  size_t wanted = vm->options.max_memory_bytes / 256;
  uint32_t node_max = wanted < 1u << 22 ? (uint32_t)wanted : 1u << 22, buckets = 1024;
  while (buckets < node_max) buckets *= 2;
  size_t chunk_max = (size_t)16 << 20;
  size_t fixed = aligned(sizeof(trace_t)) + aligned(sizeof(trace_coroutine_t) * TRACE_COROUTINES) +
                 aligned(sizeof(uint32_t) * TRACE_COROUTINES) + aligned(sizeof(uint32_t) * buckets);
  size_t size = fixed + aligned(sizeof(trace_node_t) * node_max) + chunk_max;
  char *at = mapping_new(size);
  if (at == NULL) return NULL;
  trace_t *t = (trace_t *)(void *)at;
  t->vm = vm;
  t->memory = at;
  t->memory_size = size;
  at += aligned(sizeof(trace_t));
  t->coroutines = (trace_coroutine_t *)(void *)at;
  at += aligned(sizeof(trace_coroutine_t) * TRACE_COROUTINES);
  t->coroutine_buckets = (uint32_t *)(void *)at;
  at += aligned(sizeof(uint32_t) * TRACE_COROUTINES);
  t->buckets = (uint32_t *)(void *)at;
  t->bucket_mask = buckets - 1;
  at += aligned(sizeof(uint32_t) * buckets);
  t->nodes = (trace_node_t *)(void *)at;
  t->node_max = node_max;
  t->chunks = at + aligned(sizeof(trace_node_t) * node_max);
  t->chunk_max = chunk_max;
  if (!vm_charge(vm, fixed)) {
    mapping_end(t->memory, size);
    return NULL;
  }
  return t;
}

/* Which C functions resume and yield; a program without the library has none. */
static void learn_coroutine_functions(trace_t *t, lua_State *L) {
  static const char *const names[] = {"resume", "wrap", "yield"};
  int top = lua_gettop(L);
  lua_getfield(L, LUA_REGISTRYINDEX, LUA_LOADED_TABLE);
  lua_pushliteral(L, "coroutine");
  lua_rawget(L, -2);
  for (int i = 0; i < 3 && lua_istable(L, top + 2); i++) {
    lua_pushstring(L, names[i]);
    lua_rawget(L, top + 2);
    if (!lua_iscfunction(L, -1)) continue;
    if (i == 1) {                                /* wrap returns the one that resumes */
      if (luaL_loadstring(L, "") != 0) continue; /* 5.1 wraps functions of Lua alone */
      if (lua_pcall(L, 1, 1, 0) != 0 || !lua_iscfunction(L, -1)) continue;
    }
    lua_Debug ar;
    memset(&ar, 0, sizeof ar);
    site_t site;
    if (t->site == SITE_BY_INTERFACE) continue; /* keys are not addresses there */
    site_of_function(t->vm, t->site, &t->layout, L, &ar, 0, &site);
    t->coroutine_keys[i] = site.key;
  }
  lua_settop(L, top);
}

/* LuaJIT: which one is the library's error; it never returns to its caller. */
static void learn_error(trace_t *t, lua_State *L) {
  lv_push_globals(L);
  lua_pushliteral(L, "error");
  lua_rawget(L, -2);
  if (t->site == SITE_BY_LUAJIT && lua_iscfunction(L, -1)) {
    site_t site;
    site_set_luajit(&t->layout.luajit, (uint64_t)(uintptr_t)lua_topointer(L, -1), &site);
    t->error_key = site.key;
  }
  lua_pop(L, 2);
}

/* In protection: what start has made so far must be undone if Lua has no memory for this. */
static int learn(lua_State *L) {
  trace_t *t = lua_touserdata(L, 1);
  learn_coroutine_functions(t, L);
  learn_error(t, L);
  return trace_calibrate(t, L, trace_on_event) ? 0 : luaL_error(L, "out of memory");
}

static void after_fork_child(void) {
  trace_withdraw_all();
  vm_index_unlock(&traced_vms);
}

static void before_fork(void) {
  vm_index_lock(&traced_vms);
}

static void after_fork_parent(void) {
  vm_index_unlock(&traced_vms);
}

int trace_guard_forks(void) {
  return pthread_atfork(before_fork, after_fork_parent, after_fork_child);
}

static void discard(vm_t *vm) {
  trace_t *t = vm->trace;
  trace_withdraw(t);
  vm->trace = NULL;
  mapping_end(t->memory, t->memory_size);
}

static bool begin(vm_t *vm, lua_State *L, failure_t *failure);

static bool start(vm_t *vm, lua_State *L, failure_t *failure) {
  stopwatch_prepare();
  trace_t *t = map_trace(vm);
  if (t == NULL)
    return failure_set(failure, "no memory for tracing within max_process_memory_bytes (%zu)",
                       vm->options.max_process_memory_bytes);
  vm->trace = t;
  if (begin(vm, L, failure)) return true;
  if (vm->luajit)
    host_hook_restore(L, &vm->host, 0); /* all coroutines share one, and it was used to measure costs */
  if (vm->jit_was_on) luajit_turn_on(L);
  vm->jit_was_on = false;
  discard(vm);
  return false;
}

static trace_usual_t usual_way(const trace_t *t) {
  switch (t->site) {
    case SITE_BY_LIST:
    case SITE_BY_ARRAY:
      return TRACE_USUAL_PUC;
    case SITE_BY_LUAJIT:
      return TRACE_USUAL_LUAJIT;
    case SITE_BY_INTERFACE:
      break;
  }
  return TRACE_NONE_USUAL;
}

static void choose_way(trace_t *t) {
  t->usual = t->vm->paused ? TRACE_NONE_USUAL : usual_way(t);
  t->quick = t->vm->host.function == NULL ? t->usual : TRACE_NONE_USUAL;
}

static bool begin(vm_t *vm, lua_State *L, failure_t *failure) {
  trace_t *t = vm->trace;
  vm->host = host_hook_save(L, 0);
  t->layout = *walk_setup_layout();
  t->site = site_reader(vm->global != 0, &t->layout);
  t->rules = vm->luajit ? TRACE_BY_PLACE : lv_calls_are_numbered() ? TRACE_BY_NUMBER : TRACE_BY_RECORD;
  choose_way(t);
  t->may_count = vm->luajit && !(vm->host.function != NULL && vm->host.mask & LUA_MASKCOUNT);
  t->dispatch.armed = LUAJIT_DISPATCH_NONE;
  t->walk.memory = &t->own.memory;
  memory_own_init(&t->own, vm->pid);
  walk_setup_apply(&t->walk);
  t->walk.layout = &t->layout;
  if (vm->luajit) {
    if (!luajit_turn_off(L, &vm->jit_was_on, failure)) return false;
    if (vm->jit_was_on)
      live_comment(&vm->live, "the JIT compiler was turned off while tracing: compiled code calls no hooks");
    if (t->site == SITE_BY_LUAJIT && vm->host.function == NULL)
      luajit_dispatch_learn(&t->dispatch, &t->layout.luajit, L, vm->global);
  }
  if (!trace_stack_start(t) || !trace_tree_start(t))
    return failure_set(failure, "no memory for tracing within max_process_memory_bytes (%zu)",
                       vm->options.max_process_memory_bytes);
  if (!trace_announce(t))
    return failure_set(failure, "%d VMs are being traced already, which is the limit", VM_INDEX_MAX);
  if (vm->options.trace_events > 0) {
    if (!live_keep_events(&vm->live, vm->options.trace_events))
      return failure_set(failure,
                         "no room for a timeline of %u calls: raise max_memory_bytes, or lower trace_events",
                         vm->options.trace_events);
  }
  if (vm->options.trace_filter != NULL) snprintf(t->filter, sizeof t->filter, "%s", vm->options.trace_filter);
  vm->options.trace_filter = NULL; /* the caller's string */
  if (lv_protected_call(L, learn, t) != 0) return failure_set(failure, "out of memory");
  trace_stack_start(t);
  trace_tree_clear(t);
  t->timeline = vm->options.trace_events > 0;
  t->begun = t->last = stopwatch_now();
  t->cost = 0;
  t->last_corrected = (int64_t)(t->last << TRACE_COST_SHIFT);
  trace_unload(t);
  trace_resume(t, L, TRACE_ROOT);
  if (t->current == NULL) return failure_set(failure, "no memory for tracing");
  trace_take_up(t, L, 1); /* level 0 is the start of the session itself, in protection */
  trace_arm(vm, L);
  if (vm->luajit) trace_await_end(t, L); /* of the function that called start */
  if (vm->main != NULL && vm->main != L) trace_arm_if_free(vm, vm->main);
  return true;
}

static void stop(vm_t *vm, lua_State *L) {
  trace_t *t = vm->trace;
  if (t == NULL) return;
  bool own = vm->active && vm->pid == getpid(); /* a forked child's tables may be its parent's, shared */
  if (own && !vm->paused && t->current != NULL) trace_charge(t, stopwatch_now());
  if (own) trace_show_open(t);
  if (own && lua_gethook(L) != trace_on_event && !vm->paused)
    live_comment(&vm->live, "the program set a debug hook of its own, which ended tracing where it was set");
  trace_unhook(vm, L);
  trace_unhook(vm, vm->base);
  if (vm->main != NULL) trace_unhook(vm, vm->main);
  if (vm->jit_was_on) luajit_turn_on(L);
  vm->jit_was_on = false;
  discard(vm);
}

static void pause_changed(vm_t *vm, lua_State *L) {
  trace_t *t = vm->trace;
  uint64_t now = stopwatch_now();
  choose_way(t);
  if (vm->paused) { /* other coroutines keep their hooks, which then do nothing */
    if (t->current != NULL) trace_charge(t, now);
    trace_unhook(vm, L);
    return;
  }
  trace_skip(t, now);
  trace_store(t);
  while (t->chain_length > 0) trace_leave_innermost(t);
  trace_unload(t);
  trace_resume(t, L, TRACE_ROOT);
  trace_take_up(t, L, 0);
  t->counted = false;
  trace_arm_if_free(vm, L);
  if (vm->main != NULL && vm->main != L) trace_arm_if_free(vm, vm->main);
  if (vm->luajit) trace_await_end(t, L);
}

const engine_t engine_trace = {
    .name = "trace",
    .hook = trace_on_event,
    .start = start,
    .stop = stop,
    .pause_changed = pause_changed,
    .labels_changed = trace_labels_changed,
};
