/* SPDX-License-Identifier: MIT */
/* How samples are triggered. One engine serves a session; the sampler is what they all call. */
#ifndef LUAPULSE_AGENT_ENGINE_H
#define LUAPULSE_AGENT_ENGINE_H

#include "agent/vm.h"

typedef struct engine {
  const char *name; /* as status shows it */
  bool asks_lua;    /* for stacks, by its interface; else they are walked or followed */
  lua_Hook hook;    /* that stays set while it runs; NULL: none does */
  bool (*start)(vm_t *vm, lua_State *L, failure_t *failure);
  /* L is any coroutine of the VM; also called while the VM closes. Leaves no hook of ours on any coroutine it
   * can reach. */
  void (*stop)(vm_t *vm, lua_State *L);
  /* vm->paused has just changed. May be NULL. */
  void (*pause_changed)(vm_t *vm, lua_State *L);
  /* A tracked coroutine was made / is about to run / has stopped running. May be NULL. */
  void (*created)(vm_t *vm, lua_State *co);
  void (*entering)(vm_t *vm, lua_State *co);
  void (*leaving)(vm_t *vm, lua_State *co);
  /* The labels of L have changed. May be NULL. */
  void (*labels_changed)(vm_t *vm, lua_State *L);
} engine_t;

extern const engine_t engine_none; /* no cpu: the heap alone is profiled */
extern const engine_t engine_walk; /* cpu clock: the stack is read from memory in the tick's signal handler */
extern const engine_t engine_hook; /* cpu clock: a CPU timer's tick arms a one-shot hook */
extern const engine_t engine_luajit; /* cpu clock: LuaJIT's own profiler, so that compiled code is seen */
extern const engine_t engine_trace;  /* tracing: hooks on every call and return */
extern const engine_t engine_count;  /* instructions clock: a count hook with exponential gaps */

#endif
