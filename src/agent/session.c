/* SPDX-License-Identifier: MIT */
/* A profiling session; see session.h. */
#include "agent/session.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "agent/budget.h"
#include "agent/coroutine.h"
#include "agent/debug_library.h"
#include "agent/engine.h"
#include "agent/fork_guard.h"
#include "agent/heap.h"
#include "agent/label.h"
#include "agent/luajit.h"
#include "agent/mapping.h"
#include "agent/name.h"
#include "agent/stopwatch.h"
#include "agent/time.h"
#include "agent/walk_setup.h"
#include "agent/walker.h"
#include "name/source.h"
#include "profile/heap_types.h"
#include "profile/live_heap.h"
#include "profile/mem.h"
#include "profile/trace_values.h"

/* Opening and reading files are cancellation points: a thread that is cancelled in the middle would leave locks behind. */
static int hold_cancellation(void) {
  int state;
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
  return state;
}

static const char NOT_RUNNING[] = "this VM is not being profiled; call start first";
static const char IN_TRANSITION[] =
    "start, stop or snapshot of this VM is under way; a finalizer cannot call them meanwhile";

/* -- what can be asked for ------------------------------------------------------------------------------- */

enum { MOST_MEAN_BITS = 50 };
#define MOST_MEAN_BYTES ((size_t)1 << MOST_MEAN_BITS)

static bool has_cpu(const luapulse_profile_options_t *o) {
  return (o->features & LUAPULSE_FEATURE_CPU) != 0;
}

static bool has_heap(const luapulse_profile_options_t *o) {
  return (o->features & LUAPULSE_FEATURE_HEAP) != 0;
}

static bool check_options(const luapulse_profile_options_t *o, failure_t *failure) {
  if (o->features == 0 || (o->features & ~(LUAPULSE_FEATURE_CPU | LUAPULSE_FEATURE_HEAP)))
    return failure_set(failure, "nothing to profile: ask for cpu, heap or both");
  if (o->heap_mode != LUAPULSE_COLLECTION_SAMPLING && o->heap_mode != LUAPULSE_COLLECTION_TRACING)
    return failure_set(failure, "heap_mode %d is not known", (int)o->heap_mode);
  if (o->heap_gc != LUAPULSE_GC_NOW && o->heap_gc != LUAPULSE_GC_COMPLETED &&
      o->heap_gc != LUAPULSE_GC_FORCED)
    return failure_set(failure, "heap_gc %d is not known", (int)o->heap_gc);
  if (!has_heap(o) && o->heap_gc != LUAPULSE_GC_NOW)
    return failure_set(failure, "gc is for the heap, which is not to be profiled");
  if (o->heap_sample_mean_bytes > MOST_MEAN_BYTES)
    return failure_set(failure, "heap_sample_mean_bytes must be at most 2^50, got %zu",
                       o->heap_sample_mean_bytes);
  if (o->cpu_mode != LUAPULSE_COLLECTION_SAMPLING && o->cpu_mode != LUAPULSE_COLLECTION_TRACING)
    return failure_set(failure, "cpu_mode %d is not known", (int)o->cpu_mode);
  if (o->cpu_mode == LUAPULSE_COLLECTION_TRACING && o->cpu_clock != LUAPULSE_CLOCK_CPU)
    return failure_set(failure, "cpu_clock is for sampling; tracing has a clock of its own");
  if (o->cpu_clock != LUAPULSE_CLOCK_CPU && o->cpu_clock != LUAPULSE_CLOCK_INSTRUCTIONS &&
      o->cpu_clock != LUAPULSE_CLOCK_WALL)
    return failure_set(failure, "cpu_clock %d is not known", (int)o->cpu_clock);
  if (o->cpu_hz < 1 || o->cpu_hz > 10000)
    return failure_set(failure, "cpu_hz must be from 1 to 10000, got %u", o->cpu_hz);
  if (o->cpu_sample_mean_instr < 1 || o->cpu_sample_mean_instr > 1000000000)
    return failure_set(failure, "cpu_sample_mean_instr must be from 1 to 1000000000, got %u",
                       o->cpu_sample_mean_instr);
  if (o->max_memory_bytes < LIVE_MIN_BYTES)
    return failure_set(failure, "max_memory_bytes must be at least %zu, got %zu", LIVE_MIN_BYTES,
                       o->max_memory_bytes);
  return true;
}

static bool is_tracing(const vm_t *vm) {
  return has_cpu(&vm->options) && vm->options.cpu_mode == LUAPULSE_COLLECTION_TRACING;
}

/* Memory is walked where that works; else Lua is asked. */
static const engine_t *choose_engine(vm_t *vm, lua_State *L) {
  if (!has_cpu(&vm->options)) return &engine_none;
  if (is_tracing(vm)) {
    if (vm->options.cpu_engine != LUAPULSE_ENGINE_INTERFACE) walk_setup(vm, L, vm->options.layout_file);
    return &engine_trace;
  }
  if (vm->options.cpu_clock == LUAPULSE_CLOCK_INSTRUCTIONS) return &engine_count;
  if (vm->options.cpu_engine != LUAPULSE_ENGINE_INTERFACE && walk_setup(vm, L, vm->options.layout_file))
    return &engine_walk;
  return vm->luajit ? &engine_luajit : &engine_hook;
}

/* A layout was given to be used, the walk asked for by name. */
static bool may_do_without_walk(const vm_t *vm, failure_t *failure) {
  bool asked = vm->options.cpu_engine == LUAPULSE_ENGINE_WALK || vm->options.layout_file != NULL;
  if (vm->options.cpu_clock == LUAPULSE_CLOCK_INSTRUCTIONS) return true;
  if (vm->options.cpu_clock == LUAPULSE_CLOCK_WALL)
    return failure_set(failure, "the wall clock walks stacks out of memory, which cannot be done here: %s",
                       vm->note[0] != '\0' ? vm->note : "cpu_engine = \"interface\" was asked for");
  if (!asked) return true;
  return failure_set(failure, "stacks cannot be walked here: %s",
                     vm->note[0] != '\0' ? vm->note : "cpu_engine = \"interface\" was asked for");
}

/* -- memory ---------------------------------------------------------------------------------------------- */

static live_setup_t live_setup(const luapulse_profile_options_t *o) {
  live_setup_t setup = {.types = {{"samples", "count"}, {"cpu", "nanoseconds"}}, .default_type = 1};
  setup.time_nanos = (int64_t)time_unix();
  if (has_heap(o))
    setup.heap = o->heap_mode == LUAPULSE_COLLECTION_TRACING ? LIVE_HEAP_TRACED : LIVE_HEAP_SAMPLED;
  if (!has_cpu(o)) {
    setup.types[0] = setup.types[1] = (live_type_t){"", ""};
    setup.default_type = HEAP_INUSE_SPACE;
    setup.period_type = (live_type_t){"space", "bytes"};
    setup.period = setup.heap == LIVE_HEAP_TRACED ? 1 : (int64_t)o->heap_sample_mean_bytes;
    return setup;
  }
  if (o->cpu_mode == LUAPULSE_COLLECTION_TRACING) {
    for (int i = 0; i < TRACE_VALUES; i++)
      snprintf(setup.types[i].type, sizeof setup.types[i].type, "%s", trace_value_names[i]),
          snprintf(setup.types[i].unit, sizeof setup.types[i].unit, "%s", trace_value_unit(i));
    setup.default_type = TRACE_EXCLUSIVE;
    setup.period_type = setup.types[TRACE_CALLS];
    setup.period = 1;
    return setup;
  }
  setup.period = 1000000000 / (int64_t)o->cpu_hz;
  if (o->cpu_clock == LUAPULSE_CLOCK_INSTRUCTIONS) {
    setup.types[1] = (live_type_t){"vm_instructions", "count"};
    setup.period = o->cpu_sample_mean_instr;
  }
  if (o->cpu_clock == LUAPULSE_CLOCK_WALL) setup.types[1] = (live_type_t){"wall", "nanoseconds"};
  setup.period_type = setup.types[1];
  return setup;
}

static bool make_tables(vm_t *vm, session_region_t region, failure_t *failure) {
  if (region.memory == NULL) {
    region.size = vm->options.max_memory_bytes;
    region.memory = mapping_new(region.size); /* each step into it is charged to the process's budget */
    if (region.memory == NULL)
      return failure_set(failure, "no memory for tables of %zu bytes (max_memory_bytes): %s", region.size,
                         strerror(errno));
  } else {
    vm->region_is_shared = true;
  }
  vm->region = region.memory;
  vm->region_size = region.size;
  vm->live.charge = vm_charge;
  vm->live.charge_context = vm;
  live_setup_t setup = live_setup(&vm->options);
  vm->scratch = vm_charge(vm, sizeof *vm->scratch) ? mem_alloc(sizeof *vm->scratch) : NULL;
  if (vm->scratch == NULL || !live_init(&vm->live, vm->region, vm->region_size, &setup))
    return failure_set(failure, "no memory for the profile tables within max_process_memory_bytes (%zu)",
                       vm->options.max_process_memory_bytes);
  vm->truncated_function = live_pseudo(&vm->live, "[truncated]");
  vm->outside_node = live_child(&vm->live, LIVE_ROOT, live_pseudo(&vm->live, "[outside Lua]"), 0);
  vm->unreadable_node = live_child(&vm->live, LIVE_ROOT, live_pseudo(&vm->live, "[unreadable stack]"), 0);
  return vm->truncated_function != 0 && vm->outside_node != 0 && vm->unreadable_node != 0;
}

/* -- start ----------------------------------------------------------------------------------------------- */

static int drop_references(lua_State *L) {
  const vm_t *vm = lua_touserdata(L, 1);
  luaL_unref(L, LUA_REGISTRYINDEX, vm->anchor_ref);
  luaL_unref(L, LUA_REGISTRYINDEX, vm->loaded_ref);
  luaL_unref(L, LUA_REGISTRYINDEX, vm->labels_ref);
  return 0;
}

/* Gives back whatever a session, whole or half made, holds. */
static void release(vm_t *vm, lua_State *L) {
  vm->active = 0;
  heap_stop(vm, L);
  lv_protected_call(L, drop_references, vm); /* up to 5.3 the first unref makes a key, which takes memory */
  vm->anchor_ref = vm->loaded_ref = vm->labels_ref = LUA_NOREF;
  mapping_end(vm->region, vm->region_size);
  vm->region = NULL;
  vm->live = (live_t){0};
  mem_free(vm->scratch);
  vm->scratch = NULL;
  budget_give_back(vm->charged);
  vm->charged = 0;
  vm->engine = NULL;
}

static void describe_heap(vm_t *vm) {
  char text[160];
  const char *lua = vm->luajit ? "LuaJIT" : lv_name;
  if (vm->options.heap_mode == LUAPULSE_COLLECTION_TRACING)
    snprintf(text, sizeof text, "luapulse %s, %s, heap, every allocation", LUAPULSE_VERSION, lua);
  else
    snprintf(text, sizeof text, "luapulse %s, %s, heap, one sample in %zu bytes", LUAPULSE_VERSION, lua,
             vm->options.heap_sample_mean_bytes);
  live_comment(&vm->live, text);
  bool traced = vm->options.heap_mode == LUAPULSE_COLLECTION_TRACING;
  snprintf(text, sizeof text, HEAP_MEAN ": %zu", traced ? 1 : vm->options.heap_sample_mean_bytes);
  live_comment(&vm->live, text);
}

static void describe_cpu(vm_t *vm) {
  char text[160];
  const char *engine = vm->engine->name;
  if (is_tracing(vm))
    snprintf(text, sizeof text, "luapulse %s, %s, every call, engine %s", LUAPULSE_VERSION,
             vm->luajit ? "LuaJIT" : lv_name, engine);
  else if (vm->options.cpu_clock != LUAPULSE_CLOCK_INSTRUCTIONS)
    snprintf(text, sizeof text, "luapulse %s, %s, %s clock at %u Hz, engine %s", LUAPULSE_VERSION,
             vm->luajit ? "LuaJIT" : lv_name, vm->options.cpu_clock == LUAPULSE_CLOCK_WALL ? "wall" : "cpu",
             vm->options.cpu_hz, engine);
  else
    snprintf(text, sizeof text,
             "luapulse %s, %s, instructions clock, one in %u, at most %u samples a second, engine %s",
             LUAPULSE_VERSION, vm->luajit ? "LuaJIT" : lv_name, vm->options.cpu_sample_mean_instr,
             vm->options.cpu_max_samples_per_sec, engine);
  live_comment(&vm->live, text);
}

static void describe(vm_t *vm, lua_State *L) {
  if (has_cpu(&vm->options)) describe_cpu(vm);
  if (has_heap(&vm->options)) describe_heap(vm);
  lv_push_globals(L);
  lua_pushliteral(L, "arg"); /* the stock interpreters' script name */
  lua_rawget(L, -2);
  if (lua_istable(L, -1)) {
    lua_rawgeti(L, -1, 0);
    if (lua_type(L, -1) == LUA_TSTRING) live_set_program(&vm->live, lua_tostring(L, -1));
    lua_pop(L, 1);
  }
  lua_pop(L, 2);
}

static void make_references(vm_t *vm, lua_State *L) {
  lua_pushthread(L);
  vm->anchor_ref = luaL_ref(L, LUA_REGISTRYINDEX);
  lua_getfield(L, LUA_REGISTRYINDEX, LUA_LOADED_TABLE);
  vm->loaded_ref = luaL_ref(L, LUA_REGISTRYINDEX);
  lua_newtable(L);
  lua_newtable(L);
  lua_pushliteral(L, "k");
  lua_setfield(L, -2, "__mode");
  lua_setmetatable(L, -2);
  vm->labels_ref = luaL_ref(L, LUA_REGISTRYINDEX);
}

static uint64_t system_seed(void) {
  uint64_t seed;
  if (getrandom(&seed, sizeof seed, GRND_NONBLOCK) == (ssize_t)sizeof seed) return seed;
  return time_monotonic() ^ (time_unix() << 20) ^ (uint64_t)getpid();
}

typedef struct {
  const luapulse_profile_options_t *options;
  session_region_t region;
  failure_t *failure;
  vm_t *vm; /* set once something has to be undone */
  bool watched, ok;
} start_t;

/* Outside of hooks: the last search may lie too far back for what was seen since, and here it disturbs nobody. */
static void search_names_now(vm_t *vm, lua_State *L) {
  vm_keep_out(vm);
  vm->names_due = 0;
  name_search(vm, L);
  vm_let_in(vm);
}

static void unwatch(lua_State *L) {
  coroutine_unwatch(L);
  debug_library_unwatch(L);
}

/* A forked child finds its parent's session: it is not the child's, which may start its own. */
static void forget_parents_session(vm_t *vm, lua_State *L) {
  vm->engine->stop(vm, L);
  unwatch(L);
  release(vm, L);
}

static int start_protected(lua_State *L) {
  start_t *s = lua_touserdata(L, 1);
  vm_t *vm = vm_get(L);
  if (vm == NULL) {
    failure_set(s->failure, "this VM is being closed");
    return 0;
  }
  if (vm->in_transition) {
    failure_set(s->failure, "%s", IN_TRANSITION);
    return 0;
  }
  if (vm->active && vm->pid == getpid()) {
    failure_set(s->failure, "this VM is being profiled already; call stop first");
    return 0;
  }
  vm->in_transition = true;
  s->vm = vm;
  if (vm->active) forget_parents_session(vm, L);
  vm->options = *s->options;
  vm->anchor_ref = vm->loaded_ref = vm->labels_ref = LUA_NOREF;
  vm->has_labels = vm->region_is_shared = false;
  vm->names_wanted = true; /* C functions are named before they are seen: a signal handler cannot ask */
  vm->raw_label_count = vm->raw_labels_set = 0;
  for (int i = 0; i < WALK_REASONS; i++) vm->rejects[i] = 0;
  vm->paused = vm->busy = 0;
  vm->samples = 0;
  vm->names_due = 0;
  vm->pid = getpid();
  vm->random.state = vm->options.seed != 0 ? vm->options.seed : system_seed();
  vm->base = L;
  vm->main = lv_main_thread(L);
  if (vm->main == NULL && lua_pushthread(L)) vm->main = L; /* 5.1 tells at least whether this is the one */
  vm->global = 0;
  vm->note[0] = '\0';
  vm->engine = choose_engine(vm, L);
  if (has_heap(&vm->options) && vm->global == 0) walk_setup(vm, L, vm->options.layout_file);
  bool unwalked = has_cpu(&vm->options) && (vm->global == 0 || vm->engine->asks_lua);
  if (has_heap(&vm->options) && vm->global == 0) {
    failure_set(s->failure, "heap profiling walks stacks out of memory, which cannot be done here: %s",
                vm->note);
    return 0;
  }
  if (unwalked && !may_do_without_walk(vm, s->failure)) return 0;
  vm->started = vm->now = time_monotonic();
  if (!make_tables(vm, s->region, s->failure)) return 0;
  make_references(vm, L);
  describe(vm, L);
  vm->discover.works = false;
  if (vm->global != 0) {
    search_names_now(vm, L);
    name_announce_hidden(vm, L);
  }
  if (vm->luajit && (vm->global == 0 || vm->engine->asks_lua))
    luajit_learn_layout(L);
  else if (vm->engine == &engine_hook)
    discover_learn(&vm->discover, L, &vm->scratch->discover);
  vm->following = !vm->luajit && !vm->discover.works && vm->engine->asks_lua;
  if (vm->following) {
    vm->running = L;
    s->watched = true;
    coroutine_watch(L);
  }
  if (vm->engine->hook != NULL) {
    s->watched = true;
    debug_library_watch(L);
  }
  if (has_heap(&vm->options) && !heap_start(vm, L, s->failure)) return 0;
  if (!vm->engine->start(vm, L, s->failure)) return 0;
  if (has_heap(&vm->options)) heap_begin(vm, L);
  vm->started = time_monotonic(); /* what went before was preparation */
  live_set_state(&vm->live, LIVE_RUNNING);
  vm->active = 1;
  s->ok = true;
  return 0;
}

static int unwatch_protected(lua_State *L) {
  unwatch(L);
  return 0;
}

static bool do_start(lua_State *L, const luapulse_profile_options_t *options, session_region_t region,
                     failure_t *failure) {
  if (!check_options(options, failure)) return false;
  int error = fork_guard_prepare();
  if (error != 0) return failure_set(failure, "the C library cannot guard against fork: %s", strerror(error));
  if (!lv_check_stack(L, LUA_MINSTACK)) return failure_set(failure, "no room on the Lua stack");
  start_t s = {.options = options, .region = region, .failure = failure};
  failure_t reason = {{0}};
  s.failure = &reason;
  int status = lv_protected_call(L, start_protected, &s);
  if (!s.ok && s.watched) lv_protected_call(L, unwatch_protected, NULL);
  if (!s.ok && s.vm != NULL) {
    if (s.vm->region_is_shared) s.vm->region = NULL; /* its owner wants to read why */
    release(s.vm, L);
  }
  if (s.vm != NULL) s.vm->in_transition = false;
  if (s.ok) return true;
  if (status == LUA_ERRMEM)
    failure_set(&reason, "out of memory");
  else if (status != 0 && reason.text[0] == '\0') /* a stack or C-stack overflow; tables are read raw */
    failure_set(&reason, "Lua had no room to start profiling in; start at a lower depth of calls");
  return failure_set(failure, "%s",
                     reason.text[0] != '\0' ? reason.text : "no memory for the profile tables");
}

bool session_start(lua_State *L, const luapulse_profile_options_t *options, session_region_t region,
                   failure_t *failure) {
  int state = hold_cancellation();
  bool result = do_start(L, options, region, failure);
  pthread_setcancelstate(state, NULL);
  return result;
}

/* -- and on ---------------------------------------------------------------------------------------------- */

static vm_t *profiled(lua_State *L, failure_t *failure) {
  if (!lv_check_stack(L, LUA_MINSTACK)) { /* which on 5.1 takes memory */
    failure_set(failure, "no room on the Lua stack");
    return NULL;
  }
  vm_t *vm = vm_find(L);
  if (vm_profiled(vm) && !vm->ending) return vm;
  failure_set(failure, "%s", NOT_RUNNING);
  return NULL;
}

/* For what ends the session or reads all of it. Finalizers run inside, of the collection that gc = true asks for and of any other that
 * falls into it: what they call must not end the session under its feet. */
static vm_t *begin_transition(lua_State *L, failure_t *failure) {
  vm_t *vm = profiled(L, failure);
  if (vm == NULL) return NULL;
  if (vm->in_transition) {
    failure_set(failure, "%s", IN_TRANSITION);
    return NULL;
  }
  vm->in_transition = true;
  return vm;
}

/* What is told of the heap is brought up to date. False in the child of a finalizer that forks: the session is its parent's. */
static bool refresh_heap(vm_t *vm, lua_State *L, failure_t *failure) {
  if (!has_heap(&vm->options)) return true;
  if (vm->options.heap_gc == LUAPULSE_GC_FORCED) heap_collect(L);
  if (!vm_profiled(vm)) return failure_set(failure, "%s", NOT_RUNNING);
  heap_note_memory(vm, L);
  return true;
}

static void end(vm_t *vm, lua_State *L) {
  vm->ending = true;
  vm->engine->stop(vm, L);
  if (vm->heap != NULL && has_heap(&vm->options)) heap_note_memory(vm, L);
  if (heap_given_up(vm) != NULL) live_comment(&vm->live, heap_given_up(vm));
  heap_stop(vm, L);
  live_set_duration(&vm->live, (int64_t)(time_monotonic() - vm->started));
  search_names_now(vm, L);
  vm->active = 0;
  lv_protected_call(L, unwatch_protected, NULL);
  live_set_state(&vm->live, LIVE_ENDED);
  vm->ending = false;
}

/* What the live tables leave out. */
static profile_t *finish(profile_t *profile) {
  if (profile == NULL) return NULL;
  source_name_functions(profile);
  trace_finish(profile);
  return profile;
}

static profile_t *do_stop(lua_State *L, failure_t *failure) {
  vm_t *vm = begin_transition(L, failure);
  if (vm == NULL) return NULL;
  profile_t *profile = NULL;
  if (refresh_heap(vm, L, failure)) {
    end(vm, L);
    profile = finish(live_snapshot(&vm->live, failure));
    release(vm, L);
  }
  vm->in_transition = false;
  return profile;
}

profile_t *session_stop(lua_State *L, failure_t *failure) {
  int state = hold_cancellation();
  profile_t *result = do_stop(L, failure);
  pthread_setcancelstate(state, NULL);
  return result;
}

void session_abandon(vm_t *vm, lua_State *L) {
  int state = hold_cancellation();
  if (vm->pid == getpid()) {
    /* all finalizers are called now, that which counts collections before the one that called us: it was none */
    if (has_heap(&vm->options)) live_heap_take_back_cycle(&vm->live);
    end(vm, L);
  } else {
    vm->engine->stop(
        vm, L); /* a forked child's copy of its parent's session: the shared tables are not its to end */
  }
  release(vm, L);
  pthread_setcancelstate(state, NULL);
}

static profile_t *do_snapshot(lua_State *L, failure_t *failure) {
  vm_t *vm = begin_transition(L, failure);
  if (vm == NULL) return NULL;
  profile_t *profile = NULL;
  if (refresh_heap(vm, L, failure)) {
    search_names_now(vm, L);
    live_set_duration(&vm->live, (int64_t)(time_monotonic() - vm->started));
    profile = finish(live_snapshot(&vm->live, failure));
  }
  vm->in_transition = false;
  return profile;
}

profile_t *session_snapshot(lua_State *L, failure_t *failure) {
  int state = hold_cancellation();
  profile_t *result = do_snapshot(L, failure);
  pthread_setcancelstate(state, NULL);
  return result;
}

bool session_pause(lua_State *L, bool pause, failure_t *failure) {
  vm_t *vm = profiled(L, failure);
  if (vm == NULL) return false;
  if ((vm->paused != 0) == pause) return true;
  vm->paused = pause;
  if (vm->engine->pause_changed != NULL) vm->engine->pause_changed(vm, L);
  heap_pause(vm, pause);
  return true;
}

bool session_heap_gc(lua_State *L, luapulse_gc_t *gc, failure_t *failure) {
  vm_t *vm = profiled(L, failure);
  if (vm == NULL) return false;
  if (!has_heap(&vm->options)) return failure_set(failure, "the heap of this VM is not being profiled");
  *gc = heap_set_gc(vm, *gc);
  return true;
}

bool session_heap_rate(lua_State *L, size_t mean, failure_t *failure) {
  vm_t *vm = profiled(L, failure);
  if (vm == NULL) return false;
  if (!has_heap(&vm->options) || vm->options.heap_mode == LUAPULSE_COLLECTION_TRACING)
    return failure_set(failure, "the heap of this VM is not being sampled");
  if (mean > MOST_MEAN_BYTES) return failure_set(failure, "one sample in 2^50 bytes at most, got %zu", mean);
  heap_set_mean(vm, mean);
  return true;
}

typedef struct {
  vm_t *vm;
  const char *text;
  size_t len;
  failure_t *failure;
  bool ok;
} label_call_t;

static int label_protected(lua_State *L) {
  label_call_t *call = lua_touserdata(L, 1);
  call->ok = label_set(call->vm, L, call->text, call->len, call->failure);
  return 0;
}

bool session_label(lua_State *L, const char *text, size_t len, failure_t *failure) {
  vm_t *vm = profiled(L, failure);
  if (vm == NULL) return false;
  label_call_t call = {.vm = vm, .text = text, .len = len, .failure = failure};
  int status = lv_protected_call(L, label_protected, &call);
  if (status != 0)
    return failure_set(failure, status == LUA_ERRMEM ? "out of memory" : "Lua had no room to set labels in");
  if (call.ok && vm->engine->labels_changed != NULL) vm->engine->labels_changed(vm, L);
  return call.ok;
}

void session_status(lua_State *L, luapulse_status_t *status) {
  *status = (luapulse_status_t){.engine = "", .source = "", .note = ""};
  vm_t *vm = profiled(L, NULL);
  if (vm == NULL) return;
  status->running = 1;
  status->paused = vm->paused != 0;
  status->engine = vm->engine->name;
  status->note = heap_given_up(vm) != NULL ? heap_given_up(vm) : vm->note;
  ticker_facts_t facts = vm->engine == &engine_walk ? walker_facts(vm) : ticker_facts(&vm->listener);
  status->source = facts.source; /* the instructions clock has no ticker */
  if (vm->engine == &engine_trace) status->source = stopwatch_source();
  status->rate = facts.rate;
  status->cost_ns = facts.cost_ns;
  status->samples = vm->samples;
  for (int i = 0; i < WALK_REASONS; i++) status->rejects[i] = vm->rejects[i];
  status->lost_overflow = live_lost(&vm->live, LOSS_OVERFLOW);
  status->lost_truncated = live_lost(&vm->live, LOSS_TRUNCATED);
  status->lost_unattributed = live_lost(&vm->live, LOSS_UNATTRIBUTED);
  status->lost_dropped = live_lost(&vm->live, LOSS_DROPPED);
  status->lost_rate_limited = live_lost(&vm->live, LOSS_RATE_LIMITED);
  status->memory_bytes = vm->charged;
}
