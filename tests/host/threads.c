/* SPDX-License-Identifier: MIT */
/* Many VMs, many threads, VMs that move: each profile has its own VM's samples and no other's. */
#include <pthread.h>
#include <stdatomic.h>

#include "host.h"

static pthread_t spawn(void *(*run)(void *), void *argument) {
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, run, argument) == 0);
  return thread;
}

static const char own_code[] =
    "function own_%u(n) local a = 0 for i = 1, n do a = a + i %% 7 end return a end\n"
    "function run(n) own_%u(n) end\n"
    "function run_in_coroutine(n)\n"
    "  local co = coroutine.wrap(function() for i = 1, 4 do own_%u(n / 4) coroutine.yield() end end)\n"
    "  for i = 1, 4 do co() end\n"
    "end\n";

static lua_State *open_numbered(unsigned number) {
  char code[512];
  lua_State *L = host_open();
  snprintf(code, sizeof code, own_code, number, number, number);
  host_run(L, code);
  return L;
}

static void start_at(lua_State *L, unsigned hz) {
  luapulse_error_t error = {""};
  luapulse_profile_options_t options = host_options(LUAPULSE_CLOCK_CPU);
  options.cpu_hz = hz;
  options.max_memory_bytes = 512 * 1024;
  options.max_process_memory_bytes = (size_t)1 << 30;
  if (luapulse_start(L, &options, &error) != 0) FAIL("start: %s", error.text);
  luapulse_status_t status;
  luapulse_get_status(L, &status);
  if (strcmp(status.engine, "walk") != 0) FAIL("engine %s: %s", status.engine, status.note);
}

/* No sample of the profile is in a function of another VM. */
static void check_own(const profile_t *profile, unsigned number, unsigned count) {
  for (unsigned other = 0; other < count; other++) {
    char name[32];
    snprintf(name, sizeof name, "own_%u", other);
    if (other != number && host_sum(profile, 0, name, false) != 0)
      FAIL("VM %u has samples of %s", number, name);
  }
}

/* -- moving ------------------------------------------------------------------------------------------------------- */

enum { MOVERS = 12, WORKERS = 3 };

typedef struct {
  lua_State *states[MOVERS];
  atomic_int free[MOVERS]; /* 1: may be taken */
  atomic_bool enough;
} hall_t;

/* A thread that never starts a profile: takes whatever VM is free, runs it for a while, gives it back. */
static void *work_anywhere(void *argument) {
  hall_t *hall = argument;
  for (unsigned turn = 0; !atomic_load(&hall->enough); turn++) {
    int number = (int)((turn * 7 + (unsigned)(uintptr_t)pthread_self() / 4096) % MOVERS), wanted = 1;
    if (!atomic_compare_exchange_strong(&hall->free[number], &wanted, 0)) continue;
    host_call(hall->states[number], turn % 3 == 0 ? "run_in_coroutine" : "run", 20000);
    atomic_store(&hall->free[number], 1);
  }
  return NULL;
}

/* VMs are started on the main thread, which then does nothing: all their time is spent on threads that nobody told us of. */
static void vms_move_between_threads(void) {
  static hall_t hall;
  pthread_t workers[WORKERS];
  for (unsigned i = 0; i < WORKERS; i++) workers[i] = spawn(work_anywhere, &hall);
  for (unsigned i = 0; i < MOVERS; i++) {
    hall.states[i] = open_numbered(i);
    start_at(hall.states[i], 1000);
  }
  for (unsigned i = 0; i < MOVERS; i++) atomic_store(&hall.free[i], 1);
  uint64_t least = 0;
  for (int waited = 0; waited < 600 && least < 20; waited++) {
    struct timespec nap = {0, 50000000};
    nanosleep(&nap, NULL);
    least = UINT64_MAX;
    for (unsigned i = 0; i < MOVERS; i++) {
      int wanted = 1;
      while (!atomic_compare_exchange_strong(&hall.free[i], &wanted, 0)) wanted = 1;
      luapulse_status_t status;
      luapulse_get_status(hall.states[i], &status);
      if (status.samples < least) least = status.samples;
      atomic_store(&hall.free[i], 1);
    }
  }
  atomic_store(&hall.enough, true);
  for (unsigned i = 0; i < WORKERS; i++) CHECK(pthread_join(workers[i], NULL) == 0);
  for (unsigned i = 0; i < MOVERS; i++) {
    luapulse_profile_t *profile = host_stop(hall.states[i]);
    char name[32];
    snprintf(name, sizeof name, "own_%u", i);
    if (host_sum(profile, 0, name, false) < 10)
      FAIL("VM %u: %d samples", i, (int)host_sum(profile, 0, name, false));
    check_own(profile, i, MOVERS);
    luapulse_profile_free(profile);
    lua_close(hall.states[i]);
  }
}

/* -- many ---------------------------------------------------------------------------------------------------------- */

enum { THREADS = 6, VMS = 5 };

typedef struct {
  unsigned number;
} own_thread_t;

static void *run_several(void *argument) {
  unsigned number = ((own_thread_t *)argument)->number;
  lua_State *states[VMS];
  for (unsigned i = 0; i < VMS; i++) {
    states[i] = open_numbered(number * VMS + i);
    start_at(states[i], 2000);
  }
  unsigned seen = 0;
  for (int turn = 0; turn < 60 || (seen < VMS && turn < 6000 && !SANITIZED_THREAD); turn++) {
    seen = 0;
    for (unsigned i = 0; i < VMS; i++) {
      luapulse_status_t status;
      host_call(states[i], turn % 2 == 0 ? "run" : "run_in_coroutine", 20000);
      luapulse_get_status(states[i], &status);
      seen += status.samples > 0;
    }
  }
  for (unsigned i = 0; i < VMS; i++) {
    luapulse_profile_t *profile = host_stop(states[i]);
    CHECK(host_total(profile, 0) > 0 || SANITIZED_THREAD); /* which delays signals at will */
    check_own(profile, number * VMS + i, THREADS * VMS);
    luapulse_profile_free(profile);
    lua_close(states[i]);
  }
  return NULL;
}

static void many_vms_on_many_threads(void) {
  pthread_t threads[THREADS];
  own_thread_t own[THREADS];
  for (unsigned i = 0; i < THREADS; i++) {
    own[i].number = i;
    threads[i] = spawn(run_several, &own[i]);
  }
  for (unsigned i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
}

/* Threads come and go while their VMs are profiled; some VMs outlive their thread. */
static void *churn(void *argument) {
  unsigned number = ((own_thread_t *)argument)->number;
  lua_State *L = open_numbered(number);
  start_at(L, 10000);
  host_call(L, "burn", 0.02);
  host_call(L, "burn_in_coroutine", 0.02);
  if (number % 3 == 0) return L;
  if (number % 3 == 1) luapulse_profile_free(host_stop(L));
  lua_close(L);
  return NULL;
}

static void threads_come_and_go(void) {
  const char *seconds = getenv("STORM_SECONDS"); /* in a soak */
  uint64_t end = time_monotonic() + (seconds != NULL ? strtoull(seconds, NULL, 10) * 1000000000u : 0);
  for (int round = 0; round < 15 || time_monotonic() < end; round++) {
    pthread_t threads[THREADS];
    own_thread_t own[THREADS];
    for (unsigned i = 0; i < THREADS; i++) {
      own[i].number = i;
      threads[i] = spawn(churn, &own[i]);
    }
    for (unsigned i = 0; i < THREADS; i++) {
      void *left;
      CHECK(pthread_join(threads[i], &left) == 0);
      if (left == NULL) continue;
      host_call(left, "burn", 0.005); /* on this thread now */
      lua_close(left);
    }
  }
}

/* -- one inside the other ---------------------------------------------------------------------------------------- */

static lua_State *inner_vm;

static int call_inner(lua_State *L) {
  (void)L;
  host_call(inner_vm, "run", 50000);
  return 0;
}

/* A C function of one VM runs another: the time is the inner one's. */
static void one_vm_inside_another(void) {
  lua_State *outer = open_numbered(0);
  inner_vm = open_numbered(1);
  lua_pushcfunction(outer, call_inner);
  lua_setglobal(outer, "call_inner");
  start_at(outer, 2000);
  start_at(inner_vm, 2000);
  luapulse_status_t status;
  do {
    host_run(outer, "for i = 1, 20 do call_inner() run(1000) end");
    luapulse_get_status(inner_vm, &status);
  } while (status.samples < 200);
  luapulse_profile_t *of_outer = host_stop(outer), *of_inner = host_stop(inner_vm);
  check_own(of_outer, 0, 2);
  check_own(of_inner, 1, 2);
  CHECK(host_sum(of_inner, 0, "own_1", false) * 10 > host_total(of_inner, 0) * 9);
  CHECK(host_total(of_outer, 0) < host_total(of_inner, 0));
  luapulse_profile_free(of_outer);
  luapulse_profile_free(of_inner);
  lua_close(outer);
  lua_close(inner_vm);
}

/* -- threads without a profiled VM ----------------------------------------------------------------------------------- */

typedef struct {
  _Atomic pid_t tid;
  atomic_bool *enough;
  int wait_for; /* a descriptor, for the idle one */
} bystander_t;

static void *idle(void *argument) {
  bystander_t *self = argument;
  char byte;
  atomic_store(&self->tid, (pid_t)syscall(SYS_gettid));
  CHECK(read(self->wait_for, &byte, 1) == 1);
  return NULL;
}

static void *busy(void *argument) {
  bystander_t *self = argument;
  atomic_store(&self->tid, (pid_t)syscall(SYS_gettid));
  while (!atomic_load(self->enough)) {
  }
  return NULL;
}

static void *busy_in_lua(void *argument) {
  bystander_t *self = argument;
  lua_State *L = open_numbered(9);
  atomic_store(&self->tid, (pid_t)syscall(SYS_gettid));
  while (!atomic_load(self->enough)) {
    struct timespec nap = {0, 5000000};
    host_call(L, "run", 20000);
    nanosleep(&nap, NULL);
  }
  lua_close(L);
  return NULL;
}

/* Timers of this process that signal the thread. */
static int timers_of(pid_t tid) {
  char wanted[64];
  int count = 0;
  char *text = host_read("/proc/self/timers");
  if (text == NULL) FAIL("/proc/self/timers: %s", strerror(errno));
  snprintf(wanted, sizeof wanted, "/tid.%d\n", (int)tid);
  for (const char *at = text; (at = strstr(at, wanted)) != NULL; at++) count++;
  free(text);
  return count;
}

/* How often the thread has left its processor: of its own will, or for another. */
typedef struct {
  unsigned long voluntary, forced;
} switches_t;

static switches_t switches_of(pid_t tid) {
  char path[64];
  switches_t switches;
  snprintf(path, sizeof path, "/proc/self/task/%d/status", (int)tid);
  char *text = host_read(path);
  const char *line = text != NULL ? strstr(text, "\nvoluntary_ctxt_switches:") : NULL;
  if (line == NULL || sscanf(line, "\nvoluntary_ctxt_switches: %lu nonvoluntary_ctxt_switches: %lu",
                             &switches.voluntary, &switches.forced) != 2)
    FAIL("%s has no context switches", path);
  free(text);
  return switches;
}

static bool sleeps(pid_t tid) {
  char path[64], state = '?';
  snprintf(path, sizeof path, "/proc/self/task/%d/stat", (int)tid);
  char *text = host_read(path);
  const char *end = text != NULL ? strrchr(text, ')') : NULL;
  if (end != NULL) state = end[2];
  free(text);
  return state == 'S';
}

static luapulse_clock_t clock_inside;

/* On the thread that runs Lua, so that the VM is seen to run there from start to stop. */
static int profile_inside(lua_State *L) {
  bystander_t others[3] = {{0}};
  void *(*const bodies[3])(void *) = {idle, busy, busy_in_lua};
  enum { IDLE, BUSY };
  static atomic_bool enough;
  pthread_t threads[3];
  int ends[2];
  CHECK(pipe(ends) == 0);
  atomic_store(&enough, false);
  for (int i = 0; i < 3; i++) {
    others[i].enough = &enough;
    others[i].wait_for = ends[0];
    threads[i] = spawn(bodies[i], &others[i]);
    while (atomic_load(&others[i].tid) == 0) sched_yield();
  }
  pid_t idle_tid = atomic_load(&others[IDLE].tid), busy_tid = atomic_load(&others[BUSY].tid);
  while (!sleeps(idle_tid)) sched_yield();
  switches_t idle_before = switches_of(idle_tid), busy_before = switches_of(busy_tid);
  uint64_t idle_time = time_read(time_thread_clock(idle_tid));
  luapulse_status_t status;
  host_start(L, clock_inside);
  uint64_t start = time_monotonic();
  do { /* until the watcher has looked some times */
    host_call(L, "run", 100000);
    luapulse_get_status(L, &status);
    CHECK(timers_of((pid_t)syscall(SYS_gettid)) == 1);
    for (int i = 0; i < 3; i++) CHECK(timers_of(atomic_load(&others[i].tid)) == 0);
  } while (time_monotonic() - start < 500000000 || status.samples <= 10);
  CHECK(host_perf_events() == (strcmp(status.source, "perf") == 0 ? 1 : 0));
  switches_t idle_after = switches_of(idle_tid), busy_after = switches_of(busy_tid);
  CHECK(idle_after.voluntary == idle_before.voluntary && idle_after.forced == idle_before.forced);
  CHECK(time_read(time_thread_clock(idle_tid)) == idle_time);
  CHECK(busy_after.voluntary == busy_before.voluntary);
  luapulse_profile_free(host_stop(L));
  atomic_store(&enough, true);
  CHECK(write(ends[1], "x", 1) == 1);
  for (int i = 0; i < 3; i++) CHECK(pthread_join(threads[i], NULL) == 0);
  close(ends[0]);
  close(ends[1]);
  return 0;
}

/* Given a profiled VM, and beside it a thread that waits, one that computes, and one with a VM that is not profiled, then these have
 * neither timers nor events of ours, and nobody wakes them. */
static void other_threads_cost_nothing(void) {
  static const luapulse_clock_t clocks[] = {LUAPULSE_CLOCK_CPU, LUAPULSE_CLOCK_WALL};
  for (size_t i = 0; i < 2; i++) {
    lua_State *L = open_numbered(0);
    clock_inside = clocks[i];
    lua_pushcfunction(L, profile_inside);
    if (lua_pcall(L, 0, 0, 0) != 0) FAIL("%s", lua_tostring(L, -1));
    lua_close(L);
  }
}

/* -- calls without protection --------------------------------------------------------------------------------------- */

/* Lua run by lua_call from a host that protects nothing: there is no errorJmp to find it by. */
static void unprotected_call(void) {
  lua_State *L = open_numbered(0);
  start_at(L, 2000);
  luapulse_status_t status;
  do {
    lua_getglobal(L, "run");
    lua_pushinteger(L, 200000);
    lua_call(L, 1, 0);
    lua_getglobal(L, "run_in_coroutine");
    lua_pushinteger(L, 200000);
    lua_call(L, 1, 0);
    luapulse_get_status(L, &status);
  } while (status.samples < 300);
  luapulse_profile_t *profile = host_stop(L);
  int64_t right = host_sum(profile, 0, "run", false) + host_sum(profile, 0, "run_in_coroutine", false),
          all = host_total(profile, 0);
  if (right * 100 < all * 99) FAIL("%d of %d samples", (int)right, (int)all);
  luapulse_profile_free(profile);
  lua_close(L);
}

/* Samples with Lua functions on the stack, but not `name`. */
static int64_t in_lua_without(const profile_t *p, const char *name) {
  int64_t sum = 0;
  for (size_t i = 0; i < p->sample_count; i++) {
    bool in_lua = false;
    for (uint32_t at = p->samples[i].stack; at != 0; at = p->stacks[at].parent)
      in_lua |= p->functions[p->frames[p->stacks[at].frame].function].start_line > 0;
    if (in_lua && !host_stack_has(p, p->samples[i].stack, name, false)) sum += p->samples[i].values[0];
  }
  return sum;
}

/* A coroutine that C resumes, from a function that is not Lua's. That makes coroutines and asks for the status besides, which takes its time. */
static void coroutine_resumed_by_c(void) {
  lua_State *L = open_numbered(0);
  start_at(L, 2000);
  luapulse_status_t status;
  do {
    lua_State *co = lua_newthread(L);
    int results;
    lua_getglobal(co, "run");
    lua_pushinteger(co, 200000);
    CHECK(lv_resume(co, L, 1, &results) == 0);
    lua_settop(L, 0);
    luapulse_get_status(L, &status);
  } while (status.samples < 200);
  luapulse_profile_t *profile = host_stop(L);
  int64_t right = host_sum(profile, 0, "run", false), all = host_total(profile, 0);
  int64_t wrong = in_lua_without(profile, "run");
  if (right * 100 < all * 80 || wrong != 0)
    FAIL("of %d samples %d are right, %d wrong", (int)all, (int)right, (int)wrong);
  luapulse_profile_free(profile);
  lua_close(L);
}

static const host_test_t tests[] = {
    {"vms_move_between_threads", vms_move_between_threads},
    {"many_vms_on_many_threads", many_vms_on_many_threads},
    {"threads_come_and_go", threads_come_and_go},
    {"one_vm_inside_another", one_vm_inside_another},
    {"other_threads_cost_nothing", other_threads_cost_nothing},
    {"unprotected_call", unprotected_call},
    {"coroutine_resumed_by_c", coroutine_resumed_by_c},
};

HOST_MAIN(tests)
