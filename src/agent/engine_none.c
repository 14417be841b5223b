/* SPDX-License-Identifier: MIT */
/* No cpu profile: the session is the heap's. */
#include "agent/engine.h"

static bool start(vm_t *vm, lua_State *L, failure_t *failure) {
  (void)vm;
  (void)L;
  (void)failure;
  return true;
}

static void stop(vm_t *vm, lua_State *L) {
  (void)vm;
  (void)L;
}

const engine_t engine_none = {
    .name = "none",
    .start = start,
    .stop = stop,
};
