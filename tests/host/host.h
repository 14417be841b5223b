/* SPDX-License-Identifier: MIT */
/* The frame of a host test: `PROGRAM --list` prints the names of its tests, `PROGRAM NAME` runs one, `PROGRAM`
 * runs all, each in a process of its own. A failed check says why on stderr and ends the process with status 1.
 * Also what most hosts need: a VM, CPU time spent in Lua, and sums over a profile. */
#ifndef LUAPULSE_TESTS_HOST_H
#define LUAPULSE_TESTS_HOST_H

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../sanitized.h"
#include "agent/lua_version.h" /* lv_resume and the like: these hosts compile with 5.1 to 5.5 */
#include "agent/time.h"
#include "luapulse.h"
#include "profile/profile.h"

#define HOST_UNUSED __attribute__((unused))

#define FAIL(...)                                                 \
  do {                                                            \
    fprintf(stderr, "%s:%d: %s: ", __FILE__, __LINE__, __func__); \
    fprintf(stderr, __VA_ARGS__);                                 \
    fputc('\n', stderr);                                          \
    exit(1);                                                      \
  } while (0)
#define CHECK(condition)                              \
  do {                                                \
    if (!(condition)) FAIL("not so: %s", #condition); \
  } while (0)
#define CHECK_WORDS(error, part)                                                                    \
  do {                                                                                              \
    if (strstr((error).text, part) == NULL) FAIL("\"%s\" does not say \"%s\"", (error).text, part); \
  } while (0)

/* -- running tests
 * -------------------------------------------------------------------------------------------------- */

typedef struct {
  const char *name;
  void (*run)(void);
} host_test_t;

/* Waits for the child and fails unless it ended with status 0. */
HOST_UNUSED static void host_wait(pid_t pid) {
  int status;
  while (waitpid(pid, &status, 0) < 0)
    if (errno != EINTR) FAIL("waitpid: %s", strerror(errno));
  if (WIFSIGNALED(status))
    FAIL("a child died of signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
  if (WEXITSTATUS(status) != 0) FAIL("a child ended with status %d", WEXITSTATUS(status));
}

enum { HOST_SKIPPED = 77 }; /* the status of what cannot be tried here; where it may: tests/allowed_skips */

static int host_run_all(const host_test_t *tests, size_t count) {
  int failed = 0;
  for (size_t i = 0; i < count; i++) {
    int status = 0;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
      tests[i].run();
      exit(0);
    }
    bool ended = pid > 0 && waitpid(pid, &status, 0) == pid;
    if (ended && WIFEXITED(status) && WEXITSTATUS(status) == HOST_SKIPPED) {
      printf("skipped %s\n", tests[i].name);
    } else if (!ended || status != 0) {
      fprintf(stderr, "NOT OK  %s (wait status %#x)\n", tests[i].name, (unsigned)status);
      failed++;
    } else {
      printf("ok      %s\n", tests[i].name);
    }
  }
  return failed == 0 ? 0 : 1;
}

static int host_main(int argc, char **argv, const host_test_t *tests, size_t count) {
  if (argc < 2) return host_run_all(tests, count);
  for (size_t i = 0; i < count; i++) {
    if (strcmp(argv[1], "--list") == 0) {
      puts(tests[i].name);
    } else if (strcmp(argv[1], tests[i].name) == 0) {
      tests[i].run();
      return 0;
    }
  }
  if (strcmp(argv[1], "--list") == 0) return 0;
  fprintf(stderr, "%s: there is no test '%s'\n", argv[0], argv[1]);
  return 2;
}

#define HOST_MAIN(tests)                                                     \
  int main(int argc, char **argv) {                                          \
    return host_main(argc, argv, tests, sizeof(tests) / sizeof((tests)[0])); \
  }

/* -- a VM
 * ----------------------------------------------------------------------------------------------------------- */

/* cpu(): seconds of CPU time of the calling thread. */
static int host_cpu(lua_State *L) {
  lua_pushnumber(L, (lua_Number)time_thread_cpu() * 1e-9);
  return 1;
}

HOST_UNUSED static void host_run(lua_State *L, const char *code) {
  if (luaL_loadstring(L, code) != 0 || lua_pcall(L, 0, 0, 0) != 0)
    FAIL("%s", lua_tostring(L, -1) != NULL ? lua_tostring(L, -1) : "an error that is no string");
}

/* Calls the global function `name` with a number. */
HOST_UNUSED static void host_call(lua_State *L, const char *name, double argument) {
  lua_getglobal(L, name);
  lua_pushnumber(L, (lua_Number)argument);
  if (lua_pcall(L, 1, 0, 0) != 0) FAIL("%s", lua_tostring(L, -1));
}

/* work(n) makes n rounds of Lua, burn(seconds) uses up so much CPU time of its thread. */
static const char host_prelude[] =
    "function step(i) return i % 7 + 1 end\n"
    "function work(n) local a = 0 for i = 1, n do a = a + step(i) end return a end\n"
    "function burn(seconds) local stop = cpu() + seconds while cpu() < stop do work(1000) end end\n"
    "function burn_in_coroutine(seconds)\n"
    "  local co = coroutine.wrap(function() while true do work(1000) coroutine.yield() end end)\n"
    "  local stop = cpu() + seconds while cpu() < stop do co() end\n"
    "end\n";

HOST_UNUSED static lua_State *host_prepare(lua_State *L) {
  if (L == NULL) FAIL("no memory for a VM");
  luaL_openlibs(L);
  lua_pushcfunction(L, host_cpu);
  lua_setglobal(L, "cpu");
  host_run(L, host_prelude);
  return L;
}

/* lua_newstate of all versions, and NULL where that fails: 5.5 wants a seed for its hashes. */
HOST_UNUSED static lua_State *host_new_state(lua_Alloc allocate, void *ud) {
#if LUA_VERSION_NUM >= 505
  return lua_newstate(allocate, ud, 1);
#else
  return lua_newstate(allocate, ud);
#endif
}

HOST_UNUSED static lua_State *host_open(void) {
  return host_prepare(luaL_newstate());
}

HOST_UNUSED static luapulse_profile_options_t host_options(luapulse_clock_t clock) {
  luapulse_profile_options_t options;
  luapulse_options_init(&options);
  options.cpu_clock = clock;
  options.cpu_hz = 1000;
  options.cpu_sample_mean_instr = 5000;
  options.cpu_max_samples_per_sec = 0;
  options.seed = 1;
  return options;
}

HOST_UNUSED static void host_start(lua_State *L, luapulse_clock_t clock) {
  luapulse_error_t error = {""};
  luapulse_profile_options_t options = host_options(clock);
  if (luapulse_start(L, &options, &error) != 0) FAIL("start: %s", error.text);
}

/* Every way a session takes its samples. Tests of what a program notices of profiling run for each of them. */
typedef struct {
  luapulse_clock_t clock;
  luapulse_engine_t choice;
  const char *engine; /* as the status calls it */
} host_way_t;

#if __has_include(<luajit.h>) /* is beside its lua.h only */
#define HOST_INTERFACE "luajit"
#else
#define HOST_INTERFACE "hook"
#endif

HOST_UNUSED static const host_way_t host_ways[] = {
    {LUAPULSE_CLOCK_CPU, LUAPULSE_ENGINE_AUTO, "walk"},
    {LUAPULSE_CLOCK_CPU, LUAPULSE_ENGINE_INTERFACE, HOST_INTERFACE},
    {LUAPULSE_CLOCK_INSTRUCTIONS, LUAPULSE_ENGINE_AUTO, "count"},
};
enum { HOST_WAYS = sizeof host_ways / sizeof host_ways[0] };
#define HOST_BY_WALK (&host_ways[0])
#define HOST_BY_HOOK (&host_ways[1])
#define HOST_BY_COUNT (&host_ways[2])

HOST_UNUSED static luapulse_profile_options_t host_way_options(const host_way_t *way) {
  luapulse_profile_options_t options = host_options(way->clock);
  options.cpu_engine = way->choice;
  return options;
}

/* Fails also when another engine took over than the one that was meant. */
HOST_UNUSED static void host_start_by(lua_State *L, const host_way_t *way) {
  luapulse_error_t error = {""};
  luapulse_status_t status;
  luapulse_profile_options_t options = host_way_options(way);
  if (luapulse_start(L, &options, &error) != 0) FAIL("start by %s: %s", way->engine, error.text);
  luapulse_get_status(L, &status);
  if (strcmp(status.engine, way->engine) != 0)
    FAIL("engine \"%s\", expected \"%s\": %s", status.engine, way->engine, status.note);
}

HOST_UNUSED static luapulse_profile_t *host_stop(lua_State *L) {
  luapulse_error_t error = {""};
  luapulse_profile_t *profile = luapulse_stop(L, &error);
  if (profile == NULL) FAIL("stop: %s", error.text);
  return profile;
}

/* Runs burn() until `wanted` samples are there: ticks come at the kernel's pace, so no time is promised. */
HOST_UNUSED static void host_sample(lua_State *L, uint64_t wanted) {
  luapulse_status_t status;
  for (int i = 0; i < 10000; i++) {
    luapulse_get_status(L, &status);
    if (status.samples >= wanted) return;
    host_call(L, "burn", 0.005);
  }
  FAIL("%" PRIu64 " samples after 50 s of CPU time, wanted %" PRIu64, status.samples, wanted);
}

/* So many more samples than there are now. */
HOST_UNUSED static void host_sample_more(lua_State *L, uint64_t more) {
  luapulse_status_t status;
  luapulse_get_status(L, &status);
  host_sample(L, status.samples + more);
}

/* -- a profile
 * ---------------------------------------------------------------------------------------------------------- */

static bool host_stack_has(const profile_t *p, uint32_t stack, const char *name, bool leaf_only) {
  for (; stack != 0; stack = p->stacks[stack].parent) {
    const profile_frame_t *frame = &p->frames[p->stacks[stack].frame];
    if (strcmp(profile_text(p, p->functions[frame->function].name).data, name) == 0) return true;
    if (leaf_only) return false;
  }
  return false;
}

/* The sum of value `type` (0 samples, 1 time or instructions): of all samples when name is NULL, else of those
 * with a function of that name on the stack, or at its leaf. */
HOST_UNUSED static int64_t host_sum(const profile_t *p, size_t type, const char *name, bool leaf_only) {
  int64_t sum = 0;
  for (size_t i = 0; i < p->sample_count; i++)
    if (name == NULL || host_stack_has(p, p->samples[i].stack, name, leaf_only))
      sum += p->samples[i].values[type];
  return sum;
}

HOST_UNUSED static int64_t host_total(const profile_t *p, size_t type) {
  return host_sum(p, type, NULL, false);
}

/* How far the sum of the weights may be ahead of the CPU time spent. Above 250 Hz a sample of kernel time stands for the time
 * between two ticks of the profiler's CPU timer, also for what samples of user time in between have counted; the samples of
 * user time that follow pay it back (weigh() in ticker.c). So at the end at most one such gap is not paid yet.
 *
 * How long a gap is, is the machine's affair: the kernel looks at CPU timers at its ticks, and those count that find the thread
 * running. They are 4 ms apart where the thread has a processor to itself; on a loaded machine tens of milliseconds of CPU
 * time were seen. So it is measured, by a timer of the same kind: host_watch_ticks() before start, host_ahead() after stop.
 * To that come the 15 ms that the profiler's timer waits at most before it looks for the next tick. */
static __thread uint64_t host_last_tick, host_largest_gap; /* thread CPU time, ns */

static void host_note_tick(void) {
  uint64_t now = time_thread_cpu();
  if (now - host_last_tick > host_largest_gap) host_largest_gap = now - host_last_tick;
  host_last_tick = now;
}

static void host_on_tick(int number) {
  (void)number;
  host_note_tick();
}

HOST_UNUSED static timer_t host_watch_ticks(void) {
  struct sigaction action = {.sa_handler = host_on_tick, .sa_flags = SA_RESTART};
  struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGUSR2};
  struct itimerspec often = {{0, 1000000}, {0, 1000000}}; /* at every tick of the kernel's */
  timer_t timer;
  event._sigev_un._tid = (pid_t)syscall(SYS_gettid);
  CHECK(sigaction(SIGUSR2, &action, NULL) == 0);
  CHECK(timer_create(CLOCK_THREAD_CPUTIME_ID, &event, &timer) == 0);
  host_last_tick = time_thread_cpu();
  host_largest_gap = 0;
  CHECK(timer_settime(timer, 0, &often, NULL) == 0);
  return timer;
}

/* Nanoseconds. The two handlers do not read the clock at the same moment: a millisecond for that. */
HOST_UNUSED static uint64_t host_ahead(timer_t timer) {
  CHECK(timer_delete(timer) == 0);
  host_note_tick();
  return host_largest_gap + 15000000 + 1000000;
}

/* -- what the profiler may hold of the process
 * ---------------------------------------------------------------------------- */

/* Descriptors of perf events that this process has open. */
HOST_UNUSED static int host_perf_events(void) {
  int count = 0;
  for (int fd = 0; fd < 1024; fd++) {
    char path[64], target[64] = "";
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (readlink(path, target, sizeof target - 1) > 0 && strstr(target, "perf_event") != NULL) count++;
  }
  return count;
}

/* The signals a profiler may take, those of timers and those of perf events, are at their default. */
HOST_UNUSED static bool host_signals_free(void) {
  for (int number = 1; number <= SIGRTMAX; number++) {
    struct sigaction action;
    if (number != SIGSTKFLT && number != SIGPWR && number < SIGRTMIN) continue;
    if (sigaction(number, NULL, &action) == 0 && action.sa_handler != SIG_DFL) return false;
  }
  return true;
}

/* True when the coroutine library's functions are the originals kept in `original` by host_keep_library. */
static const char host_keep_library[] =
    "original = {} for name, f in pairs(coroutine) do original[name] = f end\n";
static const char host_check_library[] =
    "for name, f in pairs(original) do assert(coroutine[name] == f, 'coroutine.' .. name .. ' is not the "
    "original') "
    "end\n";

HOST_UNUSED static void host_check_untouched(lua_State *L) {
  host_run(L, host_check_library);
  CHECK(lua_gethook(L) == NULL);
  CHECK(lua_gethookmask(L) == 0);
}

/* A file name in a directory of this process that is removed with it. */
static char host_directory[64];

static void host_remove_directory(void) {
  char command[128];
  snprintf(command, sizeof command, "rm -rf '%s'", host_directory);
  if (system(command) != 0) fprintf(stderr, "%s stays\n", host_directory);
}

HOST_UNUSED static const char *host_path(const char *name) {
  static char path[128];
  if (host_directory[0] == '\0') {
    const char *base = getenv("TMPDIR");
    snprintf(host_directory, sizeof host_directory, "%.32s/luapulse-host-XXXXXX",
             base != NULL ? base : "/tmp");
    if (mkdtemp(host_directory) == NULL) FAIL("%s: %s", host_directory, strerror(errno));
    atexit(host_remove_directory);
  }
  snprintf(path, sizeof path, "%s/%s", host_directory, name);
  return path;
}

/* The words of a file, to be freed; NULL when there is none. */
HOST_UNUSED static char *host_read(const char *path) {
  FILE *file = fopen(path, "rb");
  if (file == NULL) return NULL;
  char *text = calloc(1, 1 << 20);
  if (text != NULL && fread(text, 1, (1 << 20) - 1, file) == 0) text[0] = '\0';
  fclose(file);
  return text;
}

#endif
