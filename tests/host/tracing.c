/* SPDX-License-Identifier: MIT */
/* Tracing in hosts: many VMs on many threads, VMs that move, close and fork while traced, C code that resumes coroutines, memory that
 * runs out. Counts are exact in all of it. */
#include <pthread.h>

#include <sys/mman.h>

#include "agent/session.h"
#include "agent/stopwatch.h"
#include "host.h"
#include "profile/mem.h"
#include "profile/trace_values.h"

static lua_State *open_kept(void) {
  lua_State *L = host_open();
  host_run(L, host_keep_library);
  return L;
}

static void start_tracing(lua_State *L) {
  luapulse_error_t error = {""};
  luapulse_profile_options_t options = host_options(LUAPULSE_CLOCK_CPU);
  luapulse_status_t status;
  options.cpu_mode = LUAPULSE_COLLECTION_TRACING;
  options.max_memory_bytes = 1 << 20;
  options.max_process_memory_bytes = (size_t)1 << 30;
  if (luapulse_start(L, &options, &error) != 0) FAIL("start: %s", error.text);
  luapulse_get_status(L, &status);
  if (strcmp(status.engine, "trace") != 0 || status.note[0] != '\0')
    FAIL("%s: %s", status.engine, status.note);
}

static int64_t calls_of(const profile_t *profile, const char *name) {
  return host_sum(profile, TRACE_CALLS, name, true);
}

/* -- threads ---------------------------------------------------------------------------------------------------------- */

enum { THREADS = 6, ROUNDS = 40, STEPS = 2000 };

static void *trace_again_and_again(void *unused) {
  (void)unused;
  lua_State *L = host_open();
  for (int i = 0; i < ROUNDS; i++) {
    start_tracing(L);
    host_call(L, "work", STEPS);
    luapulse_profile_t *profile = host_stop(L);
    if (calls_of(profile, "step") != STEPS) FAIL("%d calls", (int)calls_of(profile, "step"));
    luapulse_profile_free(profile);
  }
  lua_close(L);
  return NULL;
}

static void many_vms_on_many_threads(void) {
  pthread_t threads[THREADS];
  for (int i = 0; i < THREADS; i++)
    CHECK(pthread_create(&threads[i], NULL, trace_again_and_again, NULL) == 0);
  for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
}

static void *work_elsewhere(void *L) {
  host_call(L, "work", STEPS);
  return NULL;
}

static void a_vm_moves(void) {
  lua_State *L = host_open();
  start_tracing(L);
  for (int i = 0; i < 10; i++) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, work_elsewhere, L) == 0 && pthread_join(thread, NULL) == 0);
    host_call(L, "work", STEPS);
  }
  luapulse_profile_t *profile = host_stop(L);
  CHECK(calls_of(profile, "step") == 20 * STEPS && calls_of(profile, "work") == 20);
  luapulse_profile_free(profile);
  lua_close(L);
}

/* Several at once on one thread, one inside another's function. */
static int work_inside(lua_State *L) {
  host_call(lua_touserdata(L, lua_upvalueindex(1)), "work", STEPS);
  return 0;
}

static void one_vm_inside_another(void) {
  lua_State *outer = host_open(), *inner = host_open();
  lua_pushlightuserdata(outer, inner);
  lua_pushcclosure(outer, work_inside, 1);
  lua_setglobal(outer, "inside");
  start_tracing(outer);
  start_tracing(inner);
  for (int i = 0; i < 20; i++) host_run(outer, "work(10) inside() work(10)");
  luapulse_profile_t *of_outer = host_stop(outer), *of_inner = host_stop(inner);
  CHECK(calls_of(of_outer, "step") == 400 && calls_of(of_inner, "step") == 20 * STEPS);
  luapulse_profile_free(of_outer);
  luapulse_profile_free(of_inner);
  lua_close(outer);
  lua_close(inner);
}

/* -- ends -------------------------------------------------------------------------------------------------------------- */

static void closing_while_traced(void) {
  for (int i = 0; i < 50; i++) {
    lua_State *L = host_open();
    host_run(L, "kept = coroutine.wrap(function() while true do work(10) coroutine.yield() end end) kept()");
    start_tracing(L);
    host_run(L, "kept() work(10)");
    lua_close(L);
  }
}

/* A coroutine that sleeps through the end of the session has no hook of ours any more when it runs again. */
static void sleeping_through_the_end(void) {
  lua_State *L = open_kept();
  start_tracing(L);
  host_run(
      L,
      "kept = coroutine.create(function() while true do work(10) coroutine.yield(debug.gethook()) end end)\n"
      "coroutine.resume(kept)");
  luapulse_profile_free(host_stop(L));
  host_run(L,
           "local _, hook = coroutine.resume(kept) _, hook = coroutine.resume(kept) assert(hook == nil, "
           "tostring(hook))");
  host_check_untouched(L);
  start_tracing(L); /* and is found again */
  host_run(L, "coroutine.resume(kept)");
  luapulse_profile_t *profile = host_stop(L);
  CHECK(calls_of(profile, "step") == 10);
  luapulse_profile_free(profile);
  lua_close(L);
}

static void a_forked_child_is_not_traced(void) {
  lua_State *L = host_open();
  start_tracing(L);
  host_call(L, "work", STEPS);
  for (int i = 0; i < 10; i++) {
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
      luapulse_status_t status;
      host_call(L, "work", STEPS);
      luapulse_get_status(L, &status);
      CHECK(!status.running && lua_gethook(L) == NULL);
      start_tracing(L); /* it may start its own */
      host_call(L, "work", 10);
      luapulse_profile_t *profile = host_stop(L);
      CHECK(calls_of(profile, "step") == 10);
      luapulse_profile_free(profile);
      lua_close(L);
      _exit(0);
    }
    host_wait(pid);
  }
  luapulse_profile_t *profile = host_stop(L);
  CHECK(calls_of(profile, "step") == STEPS);
  luapulse_profile_free(profile);
  lua_close(L);
}

/* Called by Lua, so that a call is open: its time goes on in the children. */
static int split(lua_State *L) {
  for (int i = 0; i < 5; i++) {
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
      struct timespec nap = {0, 30000000};
      nanosleep(&nap, NULL);
      lua_close(L); /* and never back into it */
      _exit(0);
    }
    host_wait(pid);
  }
  return 0;
}

/* Tables shared with another process, as under `luapulse run`: a child that closes its copy of the VM adds nothing to them. */
static void a_forked_child_leaves_shared_tables_alone(void) {
  lua_State *L = host_open();
  luapulse_profile_options_t options = host_options(LUAPULSE_CLOCK_CPU);
  session_region_t region = {.size = 1 << 20};
  failure_t failure = {""};
  options.cpu_mode = LUAPULSE_COLLECTION_TRACING;
  options.trace_events = 100;
  region.memory = mmap(NULL, region.size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(region.memory != MAP_FAILED && session_start(L, &options, region, &failure));
  uint64_t start = time_monotonic();
  host_call(L, "work", 10);
  lua_register(L, "split", split);
  host_run(L, "local function outer() split() return 1 end outer()");
  host_call(L, "work", 10);
  luapulse_profile_t *profile = host_stop(L);
  CHECK(calls_of(profile, "step") == 20);
  CHECK((uint64_t)host_total(profile, TRACE_EXCLUSIVE_RAW) <= time_monotonic() - start + 20000000);
  CHECK(profile->comment_count == 1);
  luapulse_profile_free(profile);
  lua_close(L);
}

/* -- C code that resumes ---------------------------------------------------------------------------------------------- */

/* A scheduler as servers have it: coroutines resumed from C, in turn, waiting in between. */
static void resumed_by_c(void) {
  enum { COROUTINES = 5, TURNS = 30 };
  lua_State *L = host_open(), *coroutines[COROUTINES];
  host_run(L, "function serve() while true do work(10) coroutine.yield() end end");
  start_tracing(L);
  for (int i = 0; i < COROUTINES; i++) {
    coroutines[i] = lua_newthread(L);
    lua_getglobal(coroutines[i], "serve");
  }
  for (int turn = 0; turn < TURNS; turn++) {
    for (int i = 0; i < COROUTINES; i++) {
      int results;
      CHECK(lv_resume(coroutines[i], L, 0, &results) == LUA_YIELD);
      lua_settop(coroutines[i], 0);
    }
    struct timespec nap = {0, 2000000}; /* as in epoll_wait: nobody's time */
    nanosleep(&nap, NULL);
  }
  luapulse_profile_t *profile = host_stop(L);
  CHECK(calls_of(profile, "serve") == COROUTINES && calls_of(profile, "step") == 10 * COROUTINES * TURNS);
  CHECK(host_sum(profile, TRACE_EXCLUSIVE_RAW, "serve", false) <
        TURNS * 2000000LL); /* of which all was slept */
  luapulse_profile_free(profile);
  lua_close(L);
}

/* The same in a C function that Lua has called: what passes while the coroutine waits is that function's time, and not that of the
 * function that yielded. */
enum { NAPS = 30, NAP = 2000000 };

static int schedule(lua_State *L) {
  lua_State *co = lua_newthread(L);
  lua_getglobal(co, "serve");
  for (int i = 0; i < NAPS; i++) {
    struct timespec nap = {0, NAP};
    int results;
    CHECK(lv_resume(co, L, 0, &results) == LUA_YIELD);
    lua_settop(co, 0);
    nanosleep(&nap, NULL);
  }
  return 0;
}

static void resumed_by_a_c_function(void) {
  lua_State *L = host_open();
  lua_register(L, "schedule", schedule);
  host_run(L,
           "local function waits() coroutine.yield() return 1 end\n"
           "function serve() while true do waits() end end\n"
           "function after() end\n"
           "function drive() schedule() after() end");
  start_tracing(L);
  host_run(L, "drive()");
  luapulse_profile_t *profile = host_stop(L);
  int64_t slept = (int64_t)NAPS * NAP;
  CHECK(calls_of(profile, "waits") == NAPS && calls_of(profile, "after") == 1);
  CHECK(host_sum(profile, TRACE_EXCLUSIVE_RAW, "schedule", true) >= slept);
  CHECK(host_sum(profile, TRACE_EXCLUSIVE_RAW, "serve", false) < slept / 2);
  int64_t shortest = host_sum(profile, TRACE_MIN, "waits", true);
  if (shortest <= 0 || shortest >= NAP) FAIL("%d ns", (int)shortest);
  luapulse_profile_free(profile);
  lua_close(L);
}

/* -- the clock ------------------------------------------------------------------------------------------------------------ */

/* The time a session shows lies between what passed inside and what passed around it. */
static void trace_by(const char *source) {
  lua_State *L = host_open();
  luapulse_status_t status;
  uint64_t before = time_monotonic();
  start_tracing(L);
  uint64_t from = time_monotonic();
  host_run(L, "local function outer() work(1000) return 1 end for i = 1, 10 do outer() end");
  luapulse_get_status(L, &status);
  if (strcmp(status.source, source) != 0) FAIL("the clock is %s", status.source);
  luapulse_profile_t *profile = host_stop(L);
  uint64_t after = time_monotonic();
  CHECK(calls_of(profile, "step") == 10000 && calls_of(profile, "outer") == 10);
  int64_t inside = host_sum(profile, TRACE_EXCLUSIVE_RAW, "outer", false);
  if (inside <= 0 || inside > (int64_t)(after - from)) FAIL("%lld ns", (long long)inside);
  if (host_total(profile, TRACE_EXCLUSIVE_RAW) > (int64_t)(after - before) * 1001 / 1000) FAIL("too long");
  CHECK(host_sum(profile, TRACE_MAX, "outer", true) >= host_sum(profile, TRACE_MIN, "outer", true));
  luapulse_profile_free(profile);
  lua_close(L);
}

/* Where the time-stamp counter does not serve; here it is put aside, as if it had not been calibrated. */
static void by_the_kernels_clock(void) {
  stopwatch_prepare();
  stopwatch_t chosen = stopwatch;
  stopwatch.factor = 0;
  trace_by("vdso");
  stopwatch = chosen;
  trace_by(chosen.factor != 0 ? "tsc" : "vdso");
}

/* -- memory ---------------------------------------------------------------------------------------------------------------- */

static long left, refused;

static void *failing_realloc(void *old, size_t size) {
  if (left-- > 0 || refused++ > 0) return realloc(old, size);
  return NULL;
}

static void every_allocation_fails_once(void) {
  lua_State *L = open_kept();
  int good = 0;
  for (long n = 0; good < 3; n++) {
    luapulse_error_t error = {""};
    luapulse_profile_options_t options = host_options(LUAPULSE_CLOCK_CPU);
    options.cpu_mode = LUAPULSE_COLLECTION_TRACING;
    options.trace_events = 100;
    options.max_memory_bytes = 1 << 20;
    mem_realloc = failing_realloc;
    left = n;
    refused = 0;
    bool started = luapulse_start(L, &options, &error) == 0;
    if (!started) CHECK(error.text[0] != '\0');
    host_call(L, "work", 100);
    luapulse_profile_t *profile = started ? luapulse_stop(L, &error) : NULL;
    mem_realloc = realloc;
    if (started && profile == NULL) CHECK(error.text[0] != '\0');
    if (profile != NULL && refused == 0) {
      CHECK(calls_of(profile, "step") == 100);
      good++;
    }
    luapulse_profile_free(profile);
    host_check_untouched(L);
  }
  lua_close(L);
}

/* The n-th allocation of Lua itself: start fails in words, or works; the host goes on either way. */
static void *failing_allocator(void *unused, void *block, size_t old, size_t size) {
  (void)unused;
  if (size == 0) {
    free(block);
    return NULL;
  }
  if ((block == NULL || size > old) && left-- == 0) {
    refused++;
    return NULL;
  }
  return realloc(block, size);
}

static void every_allocation_of_lua_fails_once(void) {
  for (long n = 0, good = 0; good < 3; n++) {
    luapulse_error_t error = {""};
    luapulse_profile_options_t options = host_options(LUAPULSE_CLOCK_CPU);
    options.cpu_mode = LUAPULSE_COLLECTION_TRACING;
    options.max_memory_bytes = 1 << 20;
    left = -1;
    lua_State *L = host_prepare(host_new_state(failing_allocator, NULL));
    host_run(L, host_keep_library);
    refused = 0;
    left = n;
    bool started = luapulse_start(L, &options, &error) == 0;
    left = -1;
    if (!started) {
      CHECK(error.text[0] != '\0' && refused > 0);
      host_check_untouched(L);
      start_tracing(L);
    }
    host_call(L, "work", 100);
    luapulse_profile_t *profile = host_stop(L);
    CHECK(calls_of(profile, "step") == 100);
    luapulse_profile_free(profile);
    host_check_untouched(L);
    lua_close(L);
    good += refused == 0;
  }
}

static void too_little_memory_for_tracing(void) {
  lua_State *L = open_kept();
  luapulse_error_t error = {""};
  luapulse_profile_options_t options = host_options(LUAPULSE_CLOCK_CPU);
  options.cpu_mode = LUAPULSE_COLLECTION_TRACING;
  options.max_process_memory_bytes = 1 << 20;
  CHECK(luapulse_start(L, &options, &error) != 0);
  CHECK_WORDS(error, "memory");
  options.max_process_memory_bytes = 64 << 20;
  options.trace_events = 100000000;
  CHECK(luapulse_start(L, &options, &error) != 0);
  CHECK_WORDS(error, "timeline");
  host_check_untouched(L);
  lua_close(L);
}

static const host_test_t tests[] = {
    {"many_vms_on_many_threads", many_vms_on_many_threads},
    {"a_vm_moves", a_vm_moves},
    {"one_vm_inside_another", one_vm_inside_another},
    {"closing_while_traced", closing_while_traced},
    {"sleeping_through_the_end", sleeping_through_the_end},
    {"a_forked_child_is_not_traced", a_forked_child_is_not_traced},
    {"a_forked_child_leaves_shared_tables_alone", a_forked_child_leaves_shared_tables_alone},
    {"resumed_by_c", resumed_by_c},
    {"resumed_by_a_c_function", resumed_by_a_c_function},
    {"by_the_kernels_clock", by_the_kernels_clock},
    {"every_allocation_fails_once", every_allocation_fails_once},
    {"every_allocation_of_lua_fails_once", every_allocation_of_lua_fails_once},
    {"too_little_memory_for_tracing", too_little_memory_for_tracing},
};

HOST_MAIN(tests)
