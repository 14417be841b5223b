/* SPDX-License-Identifier: MIT */
/* The wall clock: waiting counts, is told apart from running, and nobody who waits is disturbed. */
#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>

#include "host.h"

/* wait_in(how, milliseconds): blocks for so long in one system call of those below. Counts how many failed with EINTR. */
static int interrupted;

enum { WAYS = 5 };

/* Answers each number of milliseconds that comes through the first pipe by the same number in the second, after so long. */
static int asked[2], answered[2];

static void *answer(void *unused) {
  (void)unused;
  for (int milliseconds; read(asked[0], &milliseconds, sizeof milliseconds) == sizeof milliseconds;) {
    struct timespec nap = {milliseconds / 1000, milliseconds % 1000 * 1000000L};
    if (milliseconds > 0) nanosleep(&nap, NULL);
    CHECK(write(answered[1], &milliseconds, sizeof milliseconds) == sizeof milliseconds);
  }
  return NULL;
}

static int read_once(int milliseconds) {
  static bool is_there;
  int answer_is = -1;
  if (!is_there) {
    pthread_t thread;
    CHECK(pipe(asked) == 0 && pipe(answered) == 0);
    CHECK(pthread_create(&thread, NULL, answer, NULL) == 0 && pthread_detach(thread) == 0);
    is_there = true;
  }
  CHECK(write(asked[1], &milliseconds, sizeof milliseconds) == sizeof milliseconds);
  return read(answered[0], &answer_is, sizeof answer_is) < 0 ? -1 : answer_is - milliseconds;
}

static int wait_once(int how, int milliseconds) {
  static int pipes[2] = {-1, -1}, queue = -1;
  struct timespec nap = {milliseconds / 1000, milliseconds % 1000 * 1000000L};
  if (queue < 0) {
    CHECK(pipe(pipes) == 0);
    queue = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN};
    CHECK(queue >= 0 && epoll_ctl(queue, EPOLL_CTL_ADD, pipes[0], &event) == 0);
  }
  struct epoll_event got;
  struct pollfd one = {.fd = pipes[0], .events = POLLIN};
  switch (how) {
    case 0:
      return epoll_wait(queue, &got, 1, milliseconds);
    case 1:
      return poll(&one, 1, milliseconds);
    case 2:
      return nanosleep(&nap, NULL);
    case 3:
      errno = clock_nanosleep(CLOCK_MONOTONIC, 0, &nap, NULL);
      return errno == 0 ? 0 : -1;
    default:
      return read_once(milliseconds);
  }
}

static int wait_in(lua_State *L) {
  int how = (int)lua_tointeger(L, 1), milliseconds = (int)lua_tointeger(L, 2);
  errno = 0;
  if (wait_once(how, milliseconds) < 0) {
    if (errno != EINTR) FAIL("way %d of waiting: %s", how, strerror(errno));
    interrupted++;
  }
  return 0;
}

static const char waiting_code[] =
    "function nap(how, ms) wait_in(how, ms) end\n"
    "function napping(seconds) for i = 1, seconds * 20 do nap(i % WAYS, 50) end end\n"
    "function busy(seconds) burn(seconds) end\n"
    "function storm(seconds)\n" /* as many short waits as can be, with a little work between */
    "  local stop = cpu() + seconds\n"
    "  local i = 0\n"
    "  while cpu() < stop do for j = 1, 50 do i = i + 1 wait_in(i % WAYS, 0) end work(20) end\n"
    "end\n";

static lua_State *open_waiting(void) {
  lua_State *L = host_open();
  lua_pushcfunction(L, wait_in);
  lua_setglobal(L, "wait_in");
  lua_pushinteger(L, WAYS);
  lua_setglobal(L, "WAYS");
  host_run(L, waiting_code);
  return L;
}

/* The wall time of samples with the label state = `state`. */
static int64_t sum_of_state(const profile_t *p, const char *state, const char *function) {
  int64_t sum = 0;
  for (size_t i = 0; i < p->sample_count; i++) {
    const profile_label_set_t *set = &p->label_sets[p->samples[i].labels];
    for (uint32_t l = set->first; l < set->first + set->count; l++)
      if (strcmp(profile_text(p, p->labels[l].key).data, "state") == 0 &&
          strcmp(profile_text(p, p->labels[l].str).data, state) == 0 &&
          (function == NULL || host_stack_has(p, p->samples[i].stack, function, false)))
        sum += p->samples[i].values[1];
  }
  return sum;
}

/* Waiting and running both count, and add up to the time that passed. */
static void waiting_and_running(void) {
  lua_State *L = open_waiting();
  uint64_t start = time_monotonic();
  host_start(L, LUAPULSE_CLOCK_WALL);
  host_call(L, "busy", 0.5);
  uint64_t middle = time_monotonic();
  host_call(L, "napping", 1);
  uint64_t end = time_monotonic();
  luapulse_profile_t *profile = host_stop(L);
  double busy = (double)(middle - start), naps = (double)(end - middle);
  double waited = (double)sum_of_state(profile, "waiting", "nap"),
         ran = (double)sum_of_state(profile, "running", "busy");
  double all = (double)host_total(profile, 1);
  CHECK(strcmp(profile_text(profile, profile->types[1].type).data, "wall") == 0);
  /* a sample stands for the gap before it (1 ms): what it cuts off at either end, and what another load on the machine makes
   * a waiting thread's way back longer, is far less than a tenth */
  if (waited < 0.9 * naps || waited > 1.02 * naps) FAIL("waited %.0f of %.0f ns", waited, naps);
  if (ran < 0.8 * busy || ran > 1.05 * busy) FAIL("ran %.0f of %.0f ns", ran, busy);
  if (all > (double)(end - start) * 1.01) FAIL("all %.0f of %.0f ns", all, (double)(end - start));
  CHECK(sum_of_state(profile, "waiting", "busy") < (int64_t)(0.5 * busy));
  luapulse_profile_free(profile);
  lua_close(L);
}

/* epoll_wait, poll, nanosleep, clock_nanosleep, read: none fails with EINTR because of us, on either clock. */
static void nobody_is_interrupted(void) {
  static const luapulse_clock_t clocks[] = {LUAPULSE_CLOCK_WALL, LUAPULSE_CLOCK_CPU};
  for (size_t i = 0; i < 2; i++) {
    lua_State *L = open_waiting();
    luapulse_error_t error = {""};
    luapulse_profile_options_t options = host_options(clocks[i]);
    options.cpu_hz = 5000;
    if (luapulse_start(L, &options, &error) != 0) FAIL("start: %s", error.text);
    luapulse_status_t status;
    int rounds = 0;
    do {
      host_call(L, "storm", 0.25);
      host_call(L, "napping", 0.1);
      luapulse_get_status(L, &status);
    } while (status.samples < FEWER(300) && ++rounds < 300);
    CHECK(status.samples >= FEWER(300));
    luapulse_profile_free(host_stop(L));
    if (interrupted > 0) FAIL("%d waits were interrupted on clock %d", interrupted, (int)clocks[i]);
    lua_close(L);
  }
}

/* A thread that waits in the host, with no Lua on its stack, waits outside Lua; that is no loss. */
static void waiting_outside(void) {
  lua_State *L = open_waiting();
  uint64_t start = time_monotonic();
  host_start(L, LUAPULSE_CLOCK_WALL);
  host_call(L, "busy", 0.1);
  uint64_t middle = time_monotonic();
  const double asked_for =
      10 * 50e6; /* woken, it may wait for a processor, which is not this kind of waiting */
  for (int i = 0; i < 10; i++) wait_once(2, 50);
  double busy = (double)(middle - start), outside = (double)(time_monotonic() - middle);
  luapulse_status_t status;
  luapulse_get_status(L, &status);
  luapulse_profile_t *profile = host_stop(L);
  double counted = (double)sum_of_state(profile, "waiting", "[outside Lua]");
  /* the first sample stands for the gap before it, also for what of it was busy and has no sample: on a loaded machine, tens of ms */
  double rest = busy - (double)sum_of_state(profile, "running", NULL);
  if (counted < 0.9 * asked_for || counted > 1.02 * outside + rest)
    FAIL("outside %.0f of %.0f ns, %.0f before", counted, outside, rest);
  CHECK(sum_of_state(profile, "waiting", "busy") == 0);
  luapulse_profile_free(profile);
  lua_close(L);
}

/* Pause and resume: what passes between is not counted. */
static void paused(void) {
  lua_State *L = open_waiting();
  host_start(L, LUAPULSE_CLOCK_WALL);
  host_call(L, "napping", 0.2);
  CHECK(luapulse_pause(L, NULL) == 0);
  host_call(L, "napping", 0.6);
  CHECK(luapulse_resume(L, NULL) == 0);
  host_call(L, "napping", 0.2);
  luapulse_profile_t *profile = host_stop(L);
  double counted = (double)host_total(profile, 1);
  if (counted > 0.55e9 || counted < 0.3e9) FAIL("counted %.0f ns of 0.4e9, not of 1.0e9", counted);
  luapulse_profile_free(profile);
  lua_close(L);
}

/* The profiler's own thread ends with the last profile, and a forked child has none. */
static int count_threads(void) {
  int count = 0;
  char *text = host_read("/proc/self/status");
  const char *line = text != NULL ? strstr(text, "\nThreads:") : NULL;
  if (line == NULL || sscanf(line, "\nThreads: %d", &count) != 1) FAIL("no number of threads");
  free(text);
  return count;
}

static void the_thread_ends(void) {
  lua_State *L = open_waiting();
  int before = count_threads();
  for (int i = 0; i < 20; i++) {
    host_start(L, LUAPULSE_CLOCK_WALL);
    CHECK(count_threads() == before + 1);
    host_call(L, "work", 1000);
    luapulse_profile_free(host_stop(L));
    CHECK(count_threads() == before);
  }
  host_start(L, LUAPULSE_CLOCK_CPU); /* a host of one thread stays one */
  CHECK(count_threads() == before);
  luapulse_profile_free(host_stop(L));
  if (SANITIZED_ADDRESS) { /* its heap may stay locked in the child of a process with threads */
    lua_close(L);
    return;
  }
  host_start(L, LUAPULSE_CLOCK_WALL);
  fflush(NULL);
  pid_t pid = fork();
  if (pid == 0) {
    CHECK(count_threads() == 1);
    host_start(L, LUAPULSE_CLOCK_WALL);
    host_call(L, "napping", 0.2);
    luapulse_profile_t *own = host_stop(L);
    CHECK(sum_of_state(own, "waiting", "nap") > 100000000);
    luapulse_profile_free(own);
    lua_close(L);
    exit(0);
  }
  host_wait(pid);
  host_call(L, "napping", 0.1);
  luapulse_profile_free(host_stop(L));
  lua_close(L);
}

static const host_test_t tests[] = {
    {"waiting_and_running", waiting_and_running}, {"nobody_is_interrupted", nobody_is_interrupted},
    {"waiting_outside", waiting_outside},         {"paused", paused},
    {"the_thread_ends", the_thread_ends},
};

HOST_MAIN(tests)
