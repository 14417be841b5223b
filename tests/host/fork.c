/* SPDX-License-Identifier: MIT */
/* Processes made while a VM is profiled: the parent's profile goes on, the child has none unless it asks. */
#include <pthread.h>
#include <stdatomic.h>
#include <sys/syscall.h>

#include "agent/ticker.h"

#include "host.h"

static lua_State *inherited; /* the VM of the parent, closed by children that end in good order */

static void close_inherited(void) {
  lua_close(inherited);
}

/* What a child of the storm does, by its number. Ends the process. */
static void child(lua_State *L, int number) {
  luapulse_error_t error = {""};
  luapulse_status_t status;
  luapulse_get_status(L, &status);
  CHECK(!status.running);
  CHECK(host_perf_events() == 0); /* the parent's descriptors are closed here */
  CHECK(luapulse_snapshot(L, &error) == NULL);
  CHECK_WORDS(error, "start first");
  host_call(L, "burn", 0.01); /* under a hook that may have been armed before the fork */
  host_call(L, "burn_in_coroutine", 0.002);
  luapulse_get_status(L, &status);
  CHECK(!status.running && status.samples == 0);
  switch (number % 5) {
    case 0: /* ends without a word */
      _exit(0);
    case 1: /* in good order */
      inherited = L;
      atexit(close_inherited);
      exit(0);
    case 2:
      execl("/bin/true", "true", (char *)NULL);
      _exit(1);
    case 3: /* has a profile of its own */
      host_start_by(L, &host_ways[number / 5 % HOST_WAYS]);
      host_sample(L, 2);
      luapulse_profile_t *profile = host_stop(L);
      CHECK(host_total(profile, 0) >= 2);
      luapulse_profile_free(profile);
      CHECK(lua_gethook(L) == NULL);
      lua_close(L);
      _exit(0);
    default: { /* … of another VM, while the parent's lies there */
      lua_State *other = host_open();
      host_start_by(other, &host_ways[number / 5 % HOST_WAYS]);
      lua_close(L);
      host_sample(other, 2);
      luapulse_profile_free(host_stop(other));
      lua_close(other);
      _exit(0);
    }
  }
}

static void storm(const host_way_t *way) {
  enum { CHILDREN = FEWER(60) };
  lua_State *L = host_open();
  host_run(L, host_keep_library);
  timer_t ticks = host_watch_ticks();
  host_start_by(L, way);
  for (int i = 0; i < CHILDREN; i++) {
    host_call(L, "burn", 0.002);
    fflush(NULL);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) child(L, i);
    host_call(L, "burn", 0.002);
    host_wait(pid);
  }
  luapulse_status_t before, after;
  luapulse_get_status(L, &before);
  CHECK(before.running);
  host_sample_more(L, 10); /* the parent's ticks go on */
  luapulse_get_status(L, &after);
  uint64_t spent = time_thread_cpu();
  luapulse_profile_t *profile = host_stop(L);
  int64_t more = host_total(profile, 0) - (int64_t)after.samples; /* of ticks between the two */
  CHECK(more >= 0 && more <= 2);
  uint64_t ahead = host_ahead(ticks);
  if (way->clock == LUAPULSE_CLOCK_CPU)
    CHECK((uint64_t)host_total(profile, 1) <= spent + ahead); /* nothing of the children's */
  luapulse_profile_free(profile);
  host_check_untouched(L);
  lua_close(L);
}

static void storm_cpu(void) {
  storm(HOST_BY_WALK);
}

static void storm_hook(void) {
  storm(HOST_BY_HOOK);
}

static void storm_instructions(void) {
  storm(HOST_BY_COUNT);
}

/* -- forks while other threads start and stop
 * ------------------------------------------------------------------------- */

static atomic_bool enough;

static void *start_and_stop(void *unused) {
  (void)unused;
  while (!atomic_load(&enough)) {
    lua_State *L = host_open();
    for (int i = 0; i < 10; i++) {
      host_start_by(L, &host_ways[i % 2]);
      host_call(L, "work", 10);
      luapulse_profile_free(host_stop(L));
    }
    lua_close(L);
  }
  return NULL;
}

static void no_tick(tick_listener_t *listener, const void *context) {
  (void)listener;
  (void)context;
}

/* The lock of the tickers must be free in every child, whatever other threads were at. */
static void fork_while_others_start(void) {
  enum { THREADS = 3, CHILDREN = 40 };
  pthread_t threads[THREADS];
  for (int i = 0; i < THREADS; i++) CHECK(pthread_create(&threads[i], NULL, start_and_stop, NULL) == 0);
  lua_State *L = host_open();
  for (int i = 0; i < CHILDREN; i++) {
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
      tick_listener_t listener = {.on_tick = no_tick};
      alarm(60);
      CHECK(ticker_join(&listener, 100, 1, NULL));
      ticker_leave(&listener);
      if (SANITIZED_ADDRESS) /* its allocator's own locks may be held for ever by threads that are gone, and _exit() takes them */
        syscall(SYS_exit_group, 0);
      host_start(L, LUAPULSE_CLOCK_CPU);
      host_sample(L, 1);
      luapulse_profile_free(host_stop(L));
      _exit(0);
    }
    host_wait(pid);
  }
  atomic_store(&enough, true);
  for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
  lua_close(L);
}

/* -- the profiler's own thread -------------------------------------------------------------------------------------- */

/* Given a parent whose own thread of the profiler waits for its time, when a child profiles for itself several times, then each stop
 * ends the child's thread: nothing of the parent's is waited for. */
static void child_with_a_thread_of_its_own(void) {
  lua_State *L = host_open();
  host_start(L, LUAPULSE_CLOCK_WALL);
  host_sample(L, 20);
  fflush(NULL);
  pid_t pid = fork();
  CHECK(pid >= 0);
  if (pid == 0) {
    alarm(60);
    lua_State *other = host_open();
    for (int i = 0; i < 8; i++) {
      host_start(other, LUAPULSE_CLOCK_WALL);
      host_sample(other, 20); /* its thread has gone to sleep meanwhile, more than once */
      luapulse_profile_free(host_stop(other));
    }
    _exit(0);
  }
  host_wait(pid);
  luapulse_profile_free(host_stop(L));
  lua_close(L);
}

/* -- children without fork handlers
 * ------------------------------------------------------------------------------------ */

static void without_handlers_by(const host_way_t *way) {
  lua_State *L = host_open();
  host_start_by(L, way);
  for (int i = 0; i < 20; i++) {
    host_call(L, "burn", 0.003);
    pid_t pid = vfork();
    if (pid == 0) {
      execl("/bin/true", "true", (char *)NULL);
      _exit(1);
    }
    CHECK(pid > 0);
    host_wait(pid);
    char line[32] = "";
    FILE *pipe = popen("echo a child", "r");
    CHECK(pipe != NULL && fgets(line, sizeof line, pipe) != NULL && strcmp(line, "a child\n") == 0);
    CHECK(pclose(pipe) == 0);
    pipe = popen("ls -l /proc/self/fd | grep -c perf_event", "r"); /* close-on-exec */
    CHECK(pipe != NULL && fgets(line, sizeof line, pipe) != NULL && strcmp(line, "0\n") == 0);
    pclose(pipe);
    CHECK(system("exit 0") == 0);
    host_run(L,
             "if io.popen then local p = io.popen('echo lua') assert(p:read('*l') == 'lua') p:close() end");
  }
  host_sample_more(L, 5);
  luapulse_profile_t *profile = host_stop(L);
  CHECK(host_sum(profile, 1, "burn", false) > 0);
  luapulse_profile_free(profile);
  lua_close(L);
}

static void vfork_and_popen(void) {
  without_handlers_by(HOST_BY_WALK);
  without_handlers_by(HOST_BY_HOOK);
}

/* -- another program in the place of this one ---------------------------------------------------------------------- */

/* Uses CPU time, which would tick, and fails if it has inherited a timer, an event, or a signal but those in $1, as /proc writes them. */
static const char successor[] =
    "i=0; while [ $i -lt 20000 ]; do i=$((i + 1)); done\n"
    "while read -r key value; do\n"
    "  case $key in SigPnd:|ShdPnd:)\n"
    "    [ $value = 0000000000000000 ] || [ $value = \"$1\" ] || { echo \"$key $value\" >&2; exit 3; } ;;\n"
    "  esac\n"
    "done </proc/self/status\n"
    "if read -r line </proc/self/timers; then echo \"a timer: $line\" >&2; exit 4; fi\n"
    "case $(ls -l /proc/$$/fd) in *perf_event*) echo 'a perf event' >&2; exit 5 ;; esac\n";

/* Given a thread that has its signals blocked while ticks come, so that one waits. */
static void let_a_tick_wait(lua_State *L) {
  sigset_t pending;
  do {
    host_call(L, "burn", 0.005);
    CHECK(sigpending(&pending) == 0);
  } while (sigismember(&pending, ticker_signal()) != 1);
}

/* `how`: 0 as it comes, 1 with a tick that has just been let in, 2 with one that stays blocked. */
static void become_another_program(lua_State *L, int how) {
  char allowed[32];
  sigset_t all, mask;
  luapulse_profile_options_t options = host_options(LUAPULSE_CLOCK_CPU);
  options.cpu_hz = 10000;
  CHECK(luapulse_start(L, &options, NULL) == 0);
  host_sample(L, 10);
  sigfillset(&all);
  if (how > 0) {
    CHECK(sigprocmask(SIG_BLOCK, &all, &mask) == 0);
    let_a_tick_wait(L);
  }
  if (how == 1) CHECK(sigprocmask(SIG_SETMASK, &mask, NULL) == 0);
  /* of a pending tick exec drops a timer's signal, but not an event's (docs/limits.md) */
  snprintf(allowed, sizeof allowed, "%016x", how == 2 ? 1u << (SIGSTKFLT - 1) : 0);
  execl("/bin/sh", "sh", "-c", successor, "sh", allowed, (char *)NULL);
  _exit(1);
}

/* Given a process with a session, when it becomes another program, then that one lives and inherits nothing of ours. */
static void exec_with_a_session(void) {
  for (int i = 0; i < 12; i++) {
    lua_State *L = host_open();
    fflush(NULL);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) become_another_program(L, i % 3);
    host_wait(pid);
    lua_close(L);
  }
}

/* A child made from inside a coroutine goes on in it, then comes back to the resumer. */
static int fork_in_lua(lua_State *L) {
  fflush(NULL);
  lua_pushinteger(L, (lua_Integer)fork());
  return 1;
}

static void fork_in_coroutine(void) {
  for (int i = 0; i < HOST_WAYS; i++) {
    lua_State *L = host_open();
    lua_pushcfunction(L, fork_in_lua);
    lua_setglobal(L, "fork");
    host_start_by(L, &host_ways[i]);
    host_sample(L, 3);
    host_run(
        L,
        "local co = coroutine.wrap(function() burn(0.01) local pid = fork() burn(0.01) coroutine.yield(pid)\n"
        "                                 burn(0.01) return pid end)\n"
        "pid = co() burn(0.01) assert(co() == pid)");
    lua_getglobal(L, "pid");
    pid_t pid = (pid_t)lua_tointeger(L, -1);
    lua_pop(L, 1);
    CHECK(pid >= 0);
    if (pid == 0) {
      CHECK(luapulse_stop(L, NULL) == NULL);
      lua_close(L);
      exit(0);
    }
    host_wait(pid);
    luapulse_profile_free(host_stop(L));
    lua_close(L);
  }
}

static const host_test_t tests[] = {
    {"storm_cpu", storm_cpu},
    {"storm_hook", storm_hook},
    {"storm_instructions", storm_instructions},
    {"fork_while_others_start", fork_while_others_start},
    {"child_with_a_thread_of_its_own", child_with_a_thread_of_its_own},
    {"vfork_and_popen", vfork_and_popen},
    {"fork_in_coroutine", fork_in_coroutine},
    {"exec_with_a_session", exec_with_a_session},
};

HOST_MAIN(tests)
