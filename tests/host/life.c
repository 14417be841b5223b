/* SPDX-License-Identifier: MIT */
/* Lives and deaths of VMs and threads while they are profiled. */
#include <pthread.h>
#include <sched.h>

#include "host.h"

/* -- threads
 * ------------------------------------------------------------------------------------------------------- */

static pthread_t spawn(void *(*body)(void *), void *argument) {
  pthread_t thread;
  int error = pthread_create(&thread, NULL, body, argument);
  if (error != 0) FAIL("pthread_create: %s", strerror(error));
  return thread;
}

static void run_in_thread(void *(*body)(void *), void *argument) {
  CHECK(pthread_join(spawn(body, argument), NULL) == 0);
}

/* Spends CPU time of this thread outside Lua until a tick has armed the hook: it shows as one that is not ours. */
static void wait_until_armed(lua_State *L) {
  for (uint64_t start = time_thread_cpu(); lua_gethook(L) == NULL;)
    if (time_thread_cpu() - start > 20000000000u) FAIL("no tick in 20 s of CPU time");
}

static bool nothing_left(void) {
  return host_signals_free() && host_perf_events() == 0;
}

/* -- lua_close
 * ------------------------------------------------------------------------------------------------------ */

static const char coroutines_alive[] =
    "kept = {} for i = 1, 100 do kept[i] = coroutine.create(function() while true do work(10) "
    "coroutine.yield() end end)\n"
    "coroutine.resume(kept[i]) end\n";

static void close_while_profiling(void) {
  for (int i = 0; i < HOST_WAYS; i++) {
    lua_State *L = host_open();
    host_start_by(L, &host_ways[i]);
    host_run(L, coroutines_alive);
    host_sample(L, 5);
    host_call(L, "burn_in_coroutine", 0.02);
    lua_close(L);
    CHECK(nothing_left());
  }
}

static void close_with_armed_hook(void) {
  lua_State *L = host_open();
  host_start_by(L, HOST_BY_HOOK);
  host_run(L, coroutines_alive);
  wait_until_armed(L);
  lua_close(L);
  CHECK(nothing_left());
}

/* The end of the program from inside a coroutine closes the VM below running frames. */
static void close_by_exit_in_coroutine(void) {
  for (int i = 0; i < HOST_WAYS; i++) {
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
      lua_State *L = host_open();
      host_start_by(L, &host_ways[i]);
      host_sample(L, 3);
      host_run(L, "coroutine.wrap(function() burn(0.02) os.exit(0, true) end)()");
      _exit(1);
    }
    host_wait(pid);
  }
}

static int finished;

static int count_finished(lua_State *L) {
  (void)L;
  finished++;
  return 0;
}

/* Finalizers that run while the VM closes use coroutines, and the profiler, after it has ended. */
static void finalizers_after_the_end(void) {
  for (int i = 0; i < HOST_WAYS; i++) {
    lua_State *L = host_open();
    /* made first: finalized after the profiler's own object. 5.1 has finalizers for userdata alone. */
    host_run(L,
             "local function late()\n"
             "  local co = coroutine.wrap(function() work(10) coroutine.yield() work(10) end) co() co()\n"
             "  local f = function() while true do coroutine.yield() end end\n"
             "  resume(coroutine.create(f))\n"
             "  pcall(pulse.stop) pcall(pulse.snapshot) pcall(pulse.labels, {a = 1}) pulse.status()\n"
             "  assert(not pcall(pulse.start)) finished()\n"
             "end\n"
             "if newproxy then local p = newproxy(true) getmetatable(p).__gc = late first = p\n"
             "else first = setmetatable({}, {__gc = late}) end\n");
    lua_pushcfunction(L, luaopen_luapulse);
    lua_call(L, 0, 1);
    lua_setglobal(L, "pulse");
    host_start_by(L, &host_ways[i]);
    host_run(L, "resume = coroutine.resume");
    lua_pushcfunction(L, count_finished);
    lua_setglobal(L, "finished");
    host_sample(L, 3);
    lua_close(L);
    CHECK(finished == i + 1);
  }
}

static void *close_it(void *L) {
  lua_close(L);
  return NULL;
}

static void *live_and_close(void *unused) {
  (void)unused;
  for (int i = 0; i < HOST_WAYS; i++) {
    lua_State *L = host_open();
    host_start_by(L, &host_ways[i]);
    host_run(L, coroutines_alive);
    host_sample(L, 3);
    lua_close(L);
  }
  return NULL;
}

static void close_in_threads(void) {
  run_in_thread(live_and_close, NULL);
  CHECK(nothing_left());
  for (int i = 0; i < HOST_WAYS; i++) { /* profiled here, closed there */
    lua_State *L = host_open();
    host_start_by(L, &host_ways[i]);
    host_sample(L, 3);
    run_in_thread(close_it, L);
  }
  lua_State *L = host_open(); /* this thread's timer was ended by another thread: it gets a new one */
  host_start(L, LUAPULSE_CLOCK_CPU);
  host_sample(L, 3);
  luapulse_profile_free(host_stop(L));
  lua_close(L);
}

/* -- threads that end without a stop
 * --------------------------------------------------------------------------------- */

typedef struct {
  lua_State *L;
  const host_way_t *way;
} leave_t;

static void *start_and_leave(void *argument) {
  const leave_t *leave = argument;
  host_start_by(leave->L, leave->way);
  host_sample(leave->L, 5);
  if (leave->way == HOST_BY_HOOK) wait_until_armed(leave->L);
  return NULL;
}

static void left_by_its_thread(const host_way_t *way) {
  for (int i = 0; i < 3; i++) {
    lua_State *L = host_open();
    host_run(L, host_keep_library);
    leave_t leave = {L, way};
    run_in_thread(start_and_leave, &leave);
    host_call(L, "burn", 0.02); /* the VM lives on, here */
    host_call(L, "burn_in_coroutine", 0.01);
    if (i == 0) {
      luapulse_profile_t *profile = host_stop(L);
      CHECK(host_total(profile, 0) >= 5);
      luapulse_profile_free(profile);
      host_check_untouched(L);
      host_start_by(L, way); /* and again, on this thread */
      host_sample(L, 5);
      luapulse_profile_free(host_stop(L));
      host_check_untouched(L);
    } else if (i == 1) {
      run_in_thread(close_it, L);
      continue;
    }
    lua_close(L);
    CHECK(nothing_left());
  }
}

static void thread_ends_without_stop(void) {
  left_by_its_thread(HOST_BY_WALK);
  left_by_its_thread(HOST_BY_HOOK);
}

static lua_State *leave_one(void) {
  lua_State *L = host_open();
  leave_t leave = {L, HOST_BY_WALK};
  run_in_thread(start_and_leave, &leave);
  return L;
}

/* Given a VM that was left by its thread, when another VM's session ends, then the first can be asked, paused and sampled here. */
static void asked_after_its_thread_and_another_vm(void) {
  luapulse_error_t error = {""};
  luapulse_status_t status;
  lua_State *other = host_open();
  host_start_by(other, HOST_BY_WALK);
  lua_State *left = leave_one();
  luapulse_profile_free(host_stop(other));
  luapulse_get_status(left, &status);
  CHECK(status.running && strcmp(status.source, "") == 0);
  CHECK(luapulse_pause(left, &error) == 0);
  CHECK(luapulse_resume(left, &error) == 0);
  host_sample_more(left, 5);
  luapulse_profile_free(host_stop(left));
  lua_close(left);
  lua_close(other);
  CHECK(nothing_left());
}

/* Given the same, when another VM starts here and then the first one stops, then the other's ticks go on. */
static void stopped_after_its_thread_beside_another_vm(void) {
  lua_State *left = leave_one(), *other = host_open();
  host_start_by(other, HOST_BY_WALK);
  luapulse_profile_free(host_stop(left));
  host_sample_more(other, 20);
  luapulse_profile_free(host_stop(other));
  lua_close(left);
  lua_close(other);
  CHECK(nothing_left());
}

/* A VM is stopped by another thread while its own goes on, blocks signals, and starts a new one. */
static pthread_barrier_t barrier;

static void *blocked_worker(void *argument) {
  lua_State *L = argument;
  sigset_t all, old;
  host_start(L, LUAPULSE_CLOCK_CPU);
  host_sample(L, 3);
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &old);
  for (uint64_t start = time_thread_cpu();
       time_thread_cpu() - start < 30000000;) { /* a tick is pending now */
  }
  pthread_barrier_wait(&barrier);
  pthread_barrier_wait(&barrier); /* stopped meanwhile */
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  lua_State *other = host_open();
  host_start(other, LUAPULSE_CLOCK_CPU);
  host_sample(other, 3);
  luapulse_profile_free(host_stop(other));
  lua_close(other);
  return NULL;
}

static void stop_elsewhere_with_a_tick_pending(void) {
  lua_State *L = host_open();
  CHECK(pthread_barrier_init(&barrier, NULL, 2) == 0);
  pthread_t thread = spawn(blocked_worker, L);
  pthread_barrier_wait(&barrier);
  luapulse_profile_free(host_stop(L));
  lua_State *mine = host_open(); /* may get the slot, and the last stop the handler, of the blocked one */
  host_start(mine, LUAPULSE_CLOCK_CPU);
  host_sample(mine, 3);
  luapulse_profile_free(host_stop(mine));
  lua_close(mine);
  pthread_barrier_wait(&barrier);
  CHECK(pthread_join(thread, NULL) == 0);
  lua_close(L);
}

/* -- many VMs
 * ------------------------------------------------------------------------------------------------------- */

static void thousand_vms(void) {
  for (int i = 0; i < 1000; i++) {
    lua_State *L = host_open();
    host_start_by(L, &host_ways[i % HOST_WAYS]);
    host_call(L, "work", 1000);
    host_call(L, "burn_in_coroutine", 0.0002);
    if (i % 3 == 0) luapulse_profile_free(host_stop(L));
    lua_close(L);
  }
  CHECK(nothing_left());
}

/* Each VM has only its own functions, and the two together the time of the thread. */
static void take_turns(const host_way_t *way) {
  lua_State *a = host_open(), *b = host_open();
  host_run(a, "function only_a(seconds) burn(seconds) end");
  host_run(b, "function only_b(seconds) burn(seconds) end");
  host_start_by(a, way);
  host_start_by(b, way);
  luapulse_status_t in_a, in_b;
  uint64_t time_a = 0, time_b = 0;
  for (int i = 0; i < 2000; i++) { /* turns much shorter than a tick; a gets three quarters */
    uint64_t start = time_thread_cpu();
    host_call(a, "only_a", 0.0009);
    uint64_t middle = time_thread_cpu();
    host_call(b, "only_b", 0.0003);
    time_a += middle - start;
    time_b += time_thread_cpu() - middle;
    luapulse_get_status(a, &in_a);
    luapulse_get_status(b, &in_b);
    if (in_a.samples + in_b.samples >= 400) break;
  }
  luapulse_profile_t *of_a = host_stop(a), *of_b = host_stop(b);
  CHECK(host_sum(of_a, 1, "only_b", false) == 0 && host_sum(of_b, 1, "only_a", false) == 0);
  double weight_a = (double)host_total(of_a, 1), weight_b = (double)host_total(of_b, 1);
  double samples = (double)(host_total(of_a, 0) + host_total(of_b, 0));
  double share = weight_a / (weight_a + weight_b), expected = (double)time_a / (double)(time_a + time_b);
  CHECK(samples >= 100);
  /* 5 sigma of the binomial, and as much again for the unequal weights: sigma is at most 0.05 at 100 samples */
  double bound = 10 * 0.5 / __builtin_sqrt(samples);
  if (share < expected - bound || share > expected + bound)
    FAIL("share of a: %.3f, expected %.3f, bound %.3f", share, expected, bound);
  luapulse_profile_free(of_a);
  luapulse_profile_free(of_b);
  lua_close(a);
  lua_close(b);
}

static void two_vms_on_one_thread(void) {
  take_turns(HOST_BY_WALK);
  take_turns(HOST_BY_HOOK);
}

/* The slower of two listeners leaves or comes: the other's pace holds. */
static void a_fast_one_joins_a_slow_one(void) {
  lua_State *a = host_open(), *b = host_open();
  luapulse_profile_options_t options = host_options(LUAPULSE_CLOCK_CPU);
  options.cpu_hz = 1;
  CHECK(luapulse_start(a, &options, NULL) == 0);
  host_start(b, LUAPULSE_CLOCK_CPU);
  uint64_t start = time_thread_cpu();
  host_sample(b, 10);
  CHECK(time_thread_cpu() - start < 5000000000u); /* of CPU time: ten seconds at the slow one's pace */
  luapulse_profile_free(host_stop(b));
  luapulse_profile_free(host_stop(a));
  lua_close(a);
  lua_close(b);
}

static void *profile_in_thread(void *argument) {
  lua_State *L = host_open();
  (void)argument;
  timer_t ticks = host_watch_ticks();
  host_start(L, LUAPULSE_CLOCK_CPU);
  uint64_t start = time_thread_cpu();
  host_sample(L, 20);
  luapulse_profile_t *profile = host_stop(L);
  uint64_t spent = time_thread_cpu() - start;
  CHECK(host_total(profile, 1) > 0 &&
        (uint64_t)host_total(profile, 1) <= spent + host_ahead(ticks)); /* its own time only */
  luapulse_profile_free(profile);
  lua_close(L);
  return NULL;
}

static void two_threads(void) {
  pthread_t one = spawn(profile_in_thread, NULL), two = spawn(profile_in_thread, NULL);
  CHECK(pthread_join(one, NULL) == 0 && pthread_join(two, NULL) == 0);
  CHECK(nothing_left());
}

/* With tables that leave the process's budget room for all threads. */
static void start_small(lua_State *L, const host_way_t *way) {
  luapulse_error_t error = {""};
  luapulse_profile_options_t options = host_way_options(way);
  options.max_memory_bytes = 512 * 1024;
  if (luapulse_start(L, &options, &error) != 0) FAIL("start: %s", error.text);
}

static void *start_and_stop_often(void *argument) {
  unsigned number = *(unsigned *)argument;
  for (unsigned i = 0; i < FEWER(20); i++) {
    lua_State *L = host_open();
    for (unsigned j = 0; j < 5; j++) {
      start_small(L, &host_ways[(number + i + j) % HOST_WAYS]);
      host_call(L, "work", 2000);
      if ((number + i + j) % 7 == 0) break; /* closed while profiled */
      luapulse_profile_free(host_stop(L));
    }
    lua_close(L);
  }
  if (number % 8 != 0) return NULL;
  lua_State *left = host_open();
  start_small(left, HOST_BY_WALK);
  host_call(left, "work", 100);
  return left; /* to be closed by another thread */
}

static void many_threads(void) {
  enum { THREADS = 64 };
  pthread_t threads[THREADS];
  unsigned numbers[THREADS];
  for (unsigned i = 0; i < THREADS; i++) {
    numbers[i] = i;
    threads[i] = spawn(start_and_stop_often, &numbers[i]);
  }
  for (unsigned i = 0; i < THREADS; i++) {
    void *left;
    CHECK(pthread_join(threads[i], &left) == 0);
    if (left != NULL) lua_close(left);
  }
  lua_State *L = host_open();
  host_start(L, LUAPULSE_CLOCK_CPU);
  host_sample(L, 3);
  luapulse_profile_free(host_stop(L));
  lua_close(L);
  /* only now: handlers stay while a thread lives whose ticker another one has ended, as happens to threads that a VM might have
   * come to; the next session to end takes them along */
  CHECK(nothing_left());
}

/* -- the budget of the process
 * --------------------------------------------------------------------------------------- */

static void shared_budget(void) {
  enum { VMS = 64 };
  lua_State *vms[VMS];
  luapulse_error_t error = {""};
  luapulse_profile_options_t options = host_options(LUAPULSE_CLOCK_INSTRUCTIONS);
  options.max_process_memory_bytes = 8u << 20;
  int fit[2];
  for (int round = 0; round < 2; round++) {
    int running = 0;
    while (running < VMS) {
      vms[running] = host_open();
      if (luapulse_start(vms[running++], &options, &error) != 0) break;
    }
    CHECK_WORDS(error, "max_process_memory_bytes");
    CHECK(running > 2 && running < VMS);
    /* those that run go on, with what they have */
    for (int i = 0; i < running - 1; i++) host_call(vms[i], "work", 5000);
    lua_State *last = vms[running - 1];
    luapulse_status_t status;
    luapulse_get_status(last, &status);
    CHECK(!status.running);
    luapulse_profile_free(host_stop(vms[0])); /* one gives back its share by stop … */
    CHECK(luapulse_start(last, &options, &error) == 0);
    CHECK(luapulse_start(vms[0], &options, &error) == -1);
    lua_close(vms[1]); /* … another by being closed */
    CHECK(luapulse_start(vms[0], &options, &error) == 0);
    for (int i = 0; i < running; i++)
      if (i != 1) lua_close(vms[i]);
    fit[round] = running;
  }
  CHECK(fit[0] == fit[1]); /* all of it came back */
}

/* Past the budget new stacks go to the overflow bucket, counted. */
static void overflow_is_counted(void) {
  lua_State *L = host_open();
  luapulse_profile_options_t options = host_options(LUAPULSE_CLOCK_INSTRUCTIONS);
  options.max_memory_bytes = 256 * 1024;
  options.cpu_sample_mean_instr = 20;
  CHECK(luapulse_start(L, &options, NULL) == 0);
  host_run(L,
           "local load = loadstring or load\n"
           "for i = 1, 3000 do load('local a = 0 for i = 1, 50 do a = a + i end', '=' .. ('x'):rep(100) .. "
           "i)() end");
  luapulse_status_t status;
  luapulse_get_status(L, &status);
  CHECK(status.lost_overflow > 0 && status.memory_bytes <= 1024 * 1024);
  luapulse_profile_t *profile = host_stop(L);
  CHECK(host_sum(profile, 0, "[overflow]", false) == (int64_t)status.lost_overflow);
  CHECK(host_total(profile, 0) == (int64_t)status.samples);
  luapulse_profile_free(profile);
  lua_close(L);
}

static const host_test_t tests[] = {
    {"close_while_profiling", close_while_profiling},
    {"close_with_armed_hook", close_with_armed_hook},
    {"close_by_exit_in_coroutine", close_by_exit_in_coroutine},
    {"finalizers_after_the_end", finalizers_after_the_end},
    {"close_in_threads", close_in_threads},
    {"thread_ends_without_stop", thread_ends_without_stop},
    {"asked_after_its_thread_and_another_vm", asked_after_its_thread_and_another_vm},
    {"stopped_after_its_thread_beside_another_vm", stopped_after_its_thread_beside_another_vm},
    {"stop_elsewhere_with_a_tick_pending", stop_elsewhere_with_a_tick_pending},
    {"thousand_vms", thousand_vms},
    {"two_vms_on_one_thread", two_vms_on_one_thread},
    {"a_fast_one_joins_a_slow_one", a_fast_one_joins_a_slow_one},
    {"two_threads", two_threads},
    {"many_threads", many_threads},
    {"shared_budget", shared_budget},
    {"overflow_is_counted", overflow_is_counted},
};

HOST_MAIN(tests)
