/* SPDX-License-Identifier: MIT */
/* What an event costs, measured on the VM that is to be traced; see trace.h.
 *
 * A loop calls an empty function, without hooks and with. What the hooks add is the cost of a call and a return together. Of it
 * the part that falls between the call's event and the return's is what the function seems to take, less what it takes
 * unhooked: half of what calling it adds to an empty loop. */
#include <stdlib.h>

#include "agent/stopwatch.h"
#include "agent/trace.h"

enum { CALLS = 1000, RUNS = 9 };

typedef struct {
  trace_t *t;
  lua_Hook hook;
} calibration_t;

static int empty_function(lua_State *L) {
  (void)L;
  return 0;
}

/* One run of a loop on `co`; both functions by their index. */
static int64_t run(lua_State *co, int loop, int callee) {
  lua_pushvalue(co, loop);
  lua_pushvalue(co, callee);
  lua_pushinteger(co, CALLS);
  uint64_t start = stopwatch_now();
  lua_call(co, 2, 0);
  return (int64_t)(stopwatch_now() - start);
}

static int smaller(const void *a, const void *b) {
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x > y) - (x < y);
}

/* Of a few: whatever else the machine did is not among the middle ones. */
static int64_t median(int64_t *values) {
  qsort(values, RUNS, sizeof values[0], smaller);
  return values[RUNS / 2];
}

/* LuaJIT: it does not do what was expected of it, though all looked well. */
static void forgo_dispatch(trace_t *t) {
  *t->dispatch.mask = (uint8_t)(*t->dispatch.mask & ~LUA_MASKCOUNT);
  luajit_dispatch_release(&t->dispatch);
  t->dispatch.opcodes = 0;
}

/* LuaJIT: what lua_sethook costs that fills the dispatch table, or empties it, where that is not part of the usual cost of a C function. */
static void measure_sethook(trace_t *t, lua_State *co, lua_Hook hook) {
  const int64_t pairs = 50;
  const int mask = LUA_MASKCALL | LUA_MASKRET;
  int64_t taken[RUNS];
  if (t->dispatch.opcodes == 0) return;
  for (int i = 0; i < RUNS; i++) {
    uint64_t start = stopwatch_now();
    for (int pair = 0; pair < pairs; pair++) {
      lua_sethook(co, hook, mask | LUA_MASKCOUNT, 1);
      lua_sethook(co, hook, mask, 1);
    }
    taken[i] = (int64_t)(stopwatch_now() - start);
    lua_sethook(co, NULL, 0, 0);
  }
  t->costs.sethook = (median(taken) << TRACE_COST_SHIFT) / (2 * pairs);
}

static void measure(trace_t *t, lua_State *co, lua_Hook hook, int callee, site_kind_t kind) {
  int64_t empty[RUNS], plain[RUNS], traced[RUNS], seen[RUNS];
  for (int i = 0; i < RUNS; i++) {
    empty[i] = run(co, 2, callee);
    plain[i] = run(co, 1, callee);
    trace_tree_clear(t);
    trace_stack_start(t);
    trace_unload(t);
    for (int node = 0; node < TRACE_CALIBRATION_NODES; node++)
      for (int value = 0; value < TRACE_VALUES; value++) t->calibration[node][value] = 0;
    lua_sethook(co, hook, LUA_MASKCALL | LUA_MASKRET, trace_hook_count(t->vm));
    traced[i] = run(co, 1, callee);
    if (luajit_dispatch_is_armed(&t->dispatch)) forgo_dispatch(t); /* the event did not come */
    lua_sethook(co, NULL, 0, 0);
    t->counted = false;
    uint32_t callee_node =
        (t->node_count - 1) % TRACE_CALIBRATION_NODES; /* the last that was seen for the first time */
    seen[i] = (int64_t)t->calibration[callee_node][TRACE_EXCLUSIVE_RAW];
  }
  int64_t both = median(traced) - median(plain), own = (median(plain) - median(empty)) / 2;
  int64_t call = median(seen) - (own > 0 ? own : 0);
  if (both < 0) both = 0;
  if (call < 0) call = 0;
  if (call > both) call = both;
  t->costs.call[kind] = (call << TRACE_COST_SHIFT) / CALLS;
  t->costs.leave[kind] = ((both - call) << TRACE_COST_SHIFT) / CALLS;
}

/* Index 1 and 2 are the loops, 3 and 4 the empty functions. */
static int measure_both(lua_State *co) {
  calibration_t c = *(calibration_t *)lua_touserdata(co, 1);
  lua_settop(co, 0);
  if (luaL_loadstring(co, "local f, n = ... for i = 1, n do f() end") != 0 ||
      luaL_loadstring(co, "local f, n = ... for i = 1, n do end") != 0 ||
      luaL_loadstring(co, "return function() end") != 0)
    return lua_error(co);
  lua_call(co, 0, 1);
  lua_pushcfunction(co, empty_function);
  measure(c.t, co, c.hook, 3, SITE_LUA);
  measure(c.t, co, c.hook, 4, SITE_C);
  measure_sethook(c.t, co, c.hook);
  return 0;
}

bool trace_calibrate(trace_t *t, lua_State *L, lua_Hook hook) {
  calibration_t c = {t, hook};
  lua_State *co = lua_newthread(L);
  lua_sethook(co, NULL, 0, 0); /* a hook of the host's is not to see this */
  t->costs = (trace_costs_t){0};
  t->calibrating = true;
  int status = lv_protected_call(co, measure_both, &c); /* on the coroutine nothing else protects */
  luajit_dispatch_release(&t->dispatch);
  lua_sethook(co, NULL, 0, 0);
  t->calibrating = t->counted = false;
  lua_pop(L, 1);
  return status == 0;
}
