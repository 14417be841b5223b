/* SPDX-License-Identifier: MIT */
/* What an event costs, measured on the VM that is to be traced; see trace.h.
 *
 * A loop calls a short function, without hooks and with. What the hooks add is the cost of a call and a return together. Of it
 * the part that falls between the call's event and the return's is what the function seems to take, less what it takes
 * unhooked: half of what calling an empty one adds to an empty loop, and what the short one takes longer than the empty one.
 * Why a Lua function that does something: the processor begins with its body before it is done with the hook. With an empty
 * one nothing overlaps, and functions of 200 ns were corrected by 10 too much. */
#include <stdlib.h>

#include "agent/stopwatch.h"
#include "agent/trace.h"

enum { CALLS = 1000, RUNS = 9 };

/* Where on the stack of the coroutine that measures. */
enum { CALLING_LOOP = 1, IDLE_LOOP, EMPTY_FUNCTION, SHORT_FUNCTION, EMPTY_C_FUNCTION };

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

/* By the index of functions: `callee` is the one measured, `empty` one of its kind that does nothing. */
static void measure(trace_t *t, lua_State *co, lua_Hook hook, int callee, int empty, site_kind_t kind) {
  int64_t idle[RUNS], bare[RUNS], plain[RUNS], traced[RUNS], seen[RUNS];
  for (int i = 0; i < RUNS; i++) {
    idle[i] = run(co, IDLE_LOOP, empty);
    bare[i] = run(co, CALLING_LOOP, empty);
    plain[i] = run(co, CALLING_LOOP, callee);
    trace_tree_clear(t);
    trace_stack_start(t);
    trace_unload(t);
    for (int node = 0; node < TRACE_CALIBRATION_NODES; node++)
      for (int value = 0; value < TRACE_VALUES; value++) t->calibration[node][value] = 0;
    lua_sethook(co, hook, LUA_MASKCALL | LUA_MASKRET, trace_hook_count(t->vm));
    traced[i] = run(co, CALLING_LOOP, callee);
    if (luajit_dispatch_is_armed(&t->dispatch)) forgo_dispatch(t); /* the event did not come */
    lua_sethook(co, NULL, 0, 0);
    t->counted = false;
    uint32_t callee_node =
        (t->node_count - 1) % TRACE_CALIBRATION_NODES; /* the last that was seen for the first time */
    seen[i] = (int64_t)t->calibration[callee_node][TRACE_EXCLUSIVE_RAW];
  }
  int64_t both = median(traced) - median(plain);
  int64_t own = (median(bare) - median(idle)) / 2 + median(plain) - median(bare);
  int64_t call = median(seen) - (own > 0 ? own : 0);
  if (both < 0) both = 0;
  if (call < 0) call = 0;
  if (call > both) call = both;
  t->costs.call[kind] = (call << TRACE_COST_SHIFT) / CALLS;
  t->costs.leave[kind] = ((both - call) << TRACE_COST_SHIFT) / CALLS;
}

static int measure_both(lua_State *co) {
  calibration_t c = *(calibration_t *)lua_touserdata(co, 1);
  lua_settop(co, 0);
  /* functions, not chunks: those have varargs, and with them everything takes longer */
  if (luaL_loadstring(co,
                      "return function(f, n) for i = 1, n do f() end end,"
                      " function(f, n) for i = 1, n do end end,"
                      " function() end,"
                      " function() local x = 0 for i = 1, 10 do x = x * 0.5 + i end return x end") != 0)
    return lua_error(co);
  lua_call(co, 0, 4);
  lua_pushcfunction(co, empty_function);
  measure(c.t, co, c.hook, SHORT_FUNCTION, EMPTY_FUNCTION, SITE_LUA);
  measure(c.t, co, c.hook, EMPTY_C_FUNCTION, EMPTY_C_FUNCTION, SITE_C);
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
