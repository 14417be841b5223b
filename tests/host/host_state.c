/* SPDX-License-Identifier: MIT */
/* What belongs to the host stays the host's: signal handlers, masks, alternate stacks, interval timers, debug
 * hooks and their counts, system calls that wait. */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/utsname.h>
#include <time.h>

#include "host.h"

/* -- signals
 * ------------------------------------------------------------------------------------------------------- */

static volatile sig_atomic_t caught[NSIG];

static void catch_one(int number) {
  caught[number]++;
}

static void catch_info(int number, siginfo_t *info, void *context) {
  (void)info;
  (void)context;
  caught[number]++;
}

static bool can_be_handled(int number) {
  return number != SIGKILL && number != SIGSTOP && !(number > 31 && number < SIGRTMIN);
}

static bool same_action(const struct sigaction *a, const struct sigaction *b) {
  const int restorer = 0x04000000; /* the C library's own mark on all it installs */
  if (a->sa_handler != b->sa_handler || (a->sa_flags & ~restorer) != (b->sa_flags & ~restorer)) return false;
  for (int number = 1; number < NSIG; number++)
    if (sigismember(&a->sa_mask, number) != sigismember(&b->sa_mask, number)) return false;
  return true;
}

/* Half of all signals handled, in two manners, with flags and masks: all as they were, during and after. `spare` leaves the
 * signal of perf events free; without it the timers serve alone. */
static void preserve_handlers(bool spare) {
  static struct sigaction before[NSIG];
  lua_State *L = host_open();
  for (int number = 1; number < NSIG; number++) {
    struct sigaction action = {.sa_flags = number % 4 == 0 ? SA_RESTART : SA_NODEFER};
    sigemptyset(&action.sa_mask);
    sigaddset(&action.sa_mask, SIGUSR1);
    if (number % 3 == 0) {
      action.sa_sigaction = catch_info;
      action.sa_flags |= SA_SIGINFO;
    } else {
      action.sa_handler = number % 5 == 0 ? SIG_IGN : catch_one;
    }
    /* SIGSEGV and its kin stay the sanitizers' where there are any */
    bool fault = number == SIGSEGV || number == SIGBUS || number == SIGFPE || number == SIGILL;
    if (can_be_handled(number) && (number == SIGSEGV || number % 2 == 0) && !(fault && SANITIZED_ADDRESS) &&
        number != SIGALRM && !(spare && number == SIGSTKFLT))
      CHECK(sigaction(number, &action, NULL) == 0);
    if (can_be_handled(number)) CHECK(sigaction(number, NULL, &before[number]) == 0);
  }
  struct itimerval timer = {{100, 0}, {100, 0}}, now;
  CHECK(setitimer(ITIMER_REAL, &timer, NULL) == 0);
  CHECK(setitimer(ITIMER_PROF, &timer, NULL) == 0);
  CHECK(setitimer(ITIMER_VIRTUAL, &timer, NULL) == 0);
  sigset_t mask_before, mask_after;
  sigemptyset(&mask_before);
  sigaddset(&mask_before, SIGUSR2);
  CHECK(pthread_sigmask(SIG_SETMASK, &mask_before, NULL) == 0);

  for (int i = 0; i < HOST_WAYS; i++) {
    luapulse_status_t status;
    host_start_by(L, &host_ways[i]);
    host_sample(L, 5);
    luapulse_get_status(L, &status);
    bool perf = strcmp(status.source, "perf") == 0; /* a kernel may not permit it */
    CHECK(spare || !perf);
    int ours = 0;
    for (int number = 1; number < NSIG; number++) {
      struct sigaction action;
      if (!can_be_handled(number)) continue;
      CHECK(sigaction(number, NULL, &action) == 0);
      if (!same_action(&action, &before[number])) {
        CHECK((number > SIGRTMIN || number == SIGSTKFLT) && before[number].sa_handler == SIG_DFL);
        ours++;
      }
    }
    CHECK(host_ways[i].clock == LUAPULSE_CLOCK_CPU ? ours >= (perf ? 2 : 1) && ours <= (spare ? 2 : 1)
                                                   : ours == 0);
    CHECK(host_perf_events() == (perf ? 1 : 0));
    luapulse_profile_free(host_stop(L));
    for (int number = 1; number < NSIG; number++) {
      struct sigaction action;
      if (!can_be_handled(number)) continue;
      CHECK(sigaction(number, NULL, &action) == 0);
      if (!same_action(&action, &before[number])) FAIL("signal %d is not handled as it was", number);
    }
    CHECK(host_perf_events() == 0);
  }
  CHECK(pthread_sigmask(SIG_SETMASK, NULL, &mask_after) == 0);
  for (int number = 1; number < NSIG; number++)
    if (can_be_handled(number)) CHECK(sigismember(&mask_after, number) == (number == SIGUSR2));
  int kinds[] = {ITIMER_REAL, ITIMER_PROF, ITIMER_VIRTUAL};
  for (int i = 0; i < 3; i++)
    CHECK(getitimer(kinds[i], &now) == 0 && now.it_interval.tv_sec == 100 && now.it_value.tv_sec > 0);
  for (int number = 1; number < NSIG; number++) CHECK(caught[number] == 0);
  lua_close(L);
}

static void handlers_preserved(void) {
  preserve_handlers(false);
}

static void handlers_preserved_with_perf(void) {
  preserve_handlers(true);
}

static int our_signal(void) {
  for (int number = SIGRTMIN; number <= SIGRTMAX; number++) {
    struct sigaction action;
    if (sigaction(number, NULL, &action) == 0 && action.sa_handler != SIG_DFL) return number;
  }
  return 0;
}

/* The host takes for itself, while it is profiled, the very signal the profiler had found free. */
static void host_takes_our_signal(void) {
  lua_State *L = host_open();
  host_start(L, LUAPULSE_CLOCK_CPU);
  host_sample(L, 3);
  int number = our_signal();
  CHECK(number != 0);
  struct sigaction action = {.sa_handler = catch_one}, now;
  CHECK(sigaction(number, &action, NULL) == 0);
  host_call(L, "burn", 0.05);
  luapulse_profile_free(host_stop(L));
  CHECK(sigaction(number, NULL, &now) == 0 &&
        now.sa_handler == catch_one); /* not put back to what it was once */
  CHECK(caught[number] <= 1);         /* at most the one tick that was under way */
  int before = caught[number];
  CHECK(raise(number) == 0 && caught[number] == before + 1);

  host_start(L, LUAPULSE_CLOCK_CPU); /* finds another one */
  host_sample(L, 3);
  CHECK(caught[number] == before + 1);
  luapulse_profile_free(host_stop(L));
  CHECK(sigaction(number, NULL, &now) == 0 && now.sa_handler == catch_one);
  lua_close(L);
}

/* After the end the signal is free again: the host may use it, also by queueing it. */
static void host_uses_our_signal_later(void) {
  lua_State *L = host_open();
  host_start(L, LUAPULSE_CLOCK_CPU);
  host_sample(L, 3);
  int number = our_signal();
  luapulse_profile_free(host_stop(L));
  CHECK(our_signal() == 0);
  struct sigaction action = {.sa_sigaction = catch_info, .sa_flags = SA_SIGINFO};
  CHECK(sigaction(number, &action, NULL) == 0);
  union sigval value = {.sival_ptr = &action};
  for (int i = 0; i < 10; i++) CHECK(sigqueue(getpid(), number, value) == 0);
  CHECK(caught[number] == 10);
  host_start(L, LUAPULSE_CLOCK_CPU);
  host_sample(L, 3);
  CHECK(sigqueue(getpid(), number, value) == 0 && caught[number] == 11);
  luapulse_profile_free(host_stop(L));
  lua_close(L);
}

static bool ticks_by_perf(lua_State *L) {
  luapulse_status_t status;
  luapulse_get_status(L, &status);
  return strcmp(status.source, "perf") == 0;
}

/* Somebody sends the profiler's signals: they are no ticks. */
static void stray_signals(void) {
  lua_State *L = host_open();
  host_start(L, LUAPULSE_CLOCK_CPU);
  int number = our_signal();
  for (int i = 0; i < 100; i++) {
    union sigval value = {.sival_ptr = (void *)(uintptr_t)(0x1000 + i)};
    CHECK(raise(number) == 0);
    CHECK(sigqueue(getpid(), number, value) == 0);
    if (ticks_by_perf(L)) CHECK(raise(SIGSTKFLT) == 0 && sigqueue(getpid(), SIGSTKFLT, value) == 0);
    host_call(L, "work", 100);
  }
  luapulse_profile_free(host_stop(L));
  lua_close(L);
}

/* Until `wanted` more samples are there, or the time is over: an event that ticks no more is given up after a second. */
static bool sample_again(lua_State *L, uint64_t wanted) {
  luapulse_status_t status;
  luapulse_get_status(L, &status);
  uint64_t enough = status.samples + wanted;
  for (uint64_t start = time_thread_cpu(); time_thread_cpu() - start < 10000000000u;) {
    host_call(L, "burn", 0.01);
    luapulse_get_status(L, &status);
    if (status.samples >= enough) return true;
  }
  return false;
}

/* The host takes the signal of the perf events: it gets the few ticks the event was still to give, keeps its handler, and the
 * timer goes on alone. */
static void host_takes_the_signal_of_events(void) {
  lua_State *L = host_open();
  host_start_by(L, HOST_BY_WALK);
  host_sample(L, 3);
  if (ticks_by_perf(L)) {
    struct sigaction action = {.sa_handler = catch_one}, now;
    CHECK(sigaction(SIGSTKFLT, &action, NULL) == 0);
    CHECK(sample_again(L, 50));
    CHECK(!ticks_by_perf(L));
    luapulse_profile_free(host_stop(L));
    CHECK(caught[SIGSTKFLT] <= 16); /* those it was still to give: they do not go on for ever */
    CHECK(sigaction(SIGSTKFLT, NULL, &now) == 0 && now.sa_handler == catch_one);
    CHECK(host_perf_events() == 0);
    host_start_by(L, HOST_BY_WALK); /* another signal, or the timer alone */
    host_sample(L, 10);
    CHECK(caught[SIGSTKFLT] <= 16); /* those it was still to give: they do not go on for ever */
  }
  luapulse_profile_free(host_stop(L));
  lua_close(L);
}

/* Daemons close all descriptors they do not know, and use the numbers again. */
static void host_closes_our_descriptor(void) {
  lua_State *L = host_open();
  host_start_by(L, HOST_BY_WALK);
  host_sample(L, 3);
  bool perf = ticks_by_perf(L);
  for (int fd = 3; fd < 256; fd++) close(fd);
  int mine[8];
  for (int i = 0; i < 8; i++) CHECK((mine[i] = open("/dev/null", O_RDONLY)) >= 0);
  CHECK(sample_again(L, 50));
  CHECK(!perf || !ticks_by_perf(L));
  luapulse_profile_free(host_stop(L));
  for (int i = 0; i < 8; i++) CHECK(fcntl(mine[i], F_GETFD) >= 0); /* not closed in the place of ours */
  host_start_by(L, HOST_BY_WALK);
  host_sample(L, 3);
  luapulse_profile_free(host_stop(L));
  lua_close(L);
}

/* Threads that block all signals, as workers of a server do: they are sampled, and their mask comes back. */
static void blocked_signals(void) {
  sigset_t all, now;
  lua_State *L = host_open();
  sigfillset(&all);
  CHECK(pthread_sigmask(SIG_SETMASK, &all, NULL) == 0);
  CHECK(pthread_sigmask(SIG_SETMASK, NULL, &all) == 0); /* as far as the system goes along */
  for (int i = 0; i < 2; i++) {
    host_start_by(L, &host_ways[i]);
    host_sample(L, 5);
    luapulse_profile_free(host_stop(L));
    CHECK(pthread_sigmask(SIG_SETMASK, NULL, &now) == 0);
    for (int number = 1; number < NSIG; number++)
      CHECK(sigismember(&now, number) == sigismember(&all, number));
  }
  lua_close(L);
}

/* The alternate stack is used, not exceeded: it has as much as a host is told to give (docs/limits.md). */
static void alternate_stack(void) {
  size_t size = (SANITIZED_ADDRESS ? 32 : 16) * 1024, page = 4096; /* the sanitizer's own frames are large */
  char *memory = mmap(NULL, size + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(memory != MAP_FAILED && mprotect(memory, page, PROT_NONE) == 0);
  stack_t stack = {.ss_sp = memory + page, .ss_size = size}, now, old;
  CHECK(sigaltstack(&stack, &old) == 0);
  lua_State *L = host_open();
  host_start(L, LUAPULSE_CLOCK_CPU);
  host_sample(L, 10);
  luapulse_profile_free(host_stop(L));
  lua_close(L);
  CHECK(sigaltstack(NULL, &now) == 0);
  CHECK(now.ss_sp == stack.ss_sp && now.ss_size == stack.ss_size && now.ss_flags == 0);
  bool used = false;
  for (size_t i = 0; i < size && !used; i++) used = memory[page + i] != 0;
  CHECK(used); /* so that the handler is safe where stacks are small: Go, coroutines of C */
  CHECK(sigaltstack(&old, NULL) == 0); /* the sanitizer frees its own at the end */
  munmap(memory, size + page);
}

/* -- the host's debug hook
 * ----------------------------------------------------------------------------------------- */

static uint64_t counts, calls, lines;

static void counting_hook(lua_State *L, lua_Debug *ar) {
  (void)L;
  if (ar->event == LUA_HOOKCOUNT)
    counts++;
  else if (ar->event == LUA_HOOKLINE)
    lines++;
  else
    calls++;
}

static void other_hook(lua_State *L, lua_Debug *ar) {
  (void)L;
  (void)ar;
}

/* Hooks set and cleared in a loop, from C, under the fastest ticks there are: at the end each is what was set. */
static void sethook_loop_by(const host_way_t *way) {
  static const struct {
    lua_Hook hook;
    int mask, count;
  } states[] = {
      {counting_hook, LUA_MASKCOUNT, 1000},
      {NULL, 0, 0},
      {other_hook, LUA_MASKCALL | LUA_MASKRET, 0},
      {counting_hook, LUA_MASKCALL | LUA_MASKRET | LUA_MASKCOUNT, 1}, /* like that of the profiler */
      {other_hook, LUA_MASKLINE, 0},
      {counting_hook, LUA_MASKCOUNT, 1000000},
  };
  enum { STATES = sizeof states / sizeof states[0] };
  lua_State *L = host_open();
  luapulse_profile_options_t options = host_way_options(way);
  options.cpu_hz = 10000;
  CHECK(luapulse_start(L, &options, NULL) == 0);
  uint64_t start = time_thread_cpu();
  for (unsigned i = 0; time_thread_cpu() - start < 1500000000u; i++) {
    unsigned at = i % STATES;
    for (int j = 0; j < 200; j++) {
      unsigned before = (at + (unsigned)j) % STATES;
      lua_sethook(L, states[before].hook, states[before].mask, states[before].count);
    }
    lua_sethook(L, states[at].hook, states[at].mask, states[at].count);
    host_call(L, "work", 5); /* an armed hook fires here, at the latest, and gives way */
    lua_Hook hook = lua_gethook(L);
    int mask = lua_gethookmask(L), count = lua_gethookcount(L);
    if (hook != lua_gethook(L)) continue; /* a tick between the questions */
    if (hook == states[at].hook) {
      if (mask != states[at].mask) FAIL("mask %d, set was %d", mask, states[at].mask);
      if (count != states[at].count) FAIL("count %d, set was %d", count, states[at].count);
    } else if (hook == counting_hook || hook == other_hook || hook == NULL ||
               way != HOST_BY_HOOK) { /* else ours, armed again since */
      FAIL("another hook than the one set last");
    }
  }
  lua_sethook(L, counting_hook, LUA_MASKCOUNT, 4711);
  luapulse_profile_free(host_stop(L));
  CHECK(lua_gethook(L) == counting_hook && lua_gethookmask(L) == LUA_MASKCOUNT &&
        lua_gethookcount(L) == 4711);
  lua_close(L);
}

static void sethook_in_a_loop(void) {
  sethook_loop_by(HOST_BY_HOOK);
  sethook_loop_by(HOST_BY_WALK);
}

/* The same number of count events for the same work, profiled or not. */
static uint64_t count_events(lua_State *L, int count, int rounds) {
  counts = 0;
  lua_sethook(L, counting_hook, LUA_MASKCOUNT, count);
  host_call(L, "work", rounds);
  lua_sethook(L, NULL, 0, 0);
  return counts;
}

static void count_hook_keeps_its_pace(void) {
  for (int i = 0; i < HOST_WAYS; i++) {
    lua_State *L = host_open();
    uint64_t plain = count_events(L, 1000000, 3000000);
    CHECK(plain >= 10);
    counts = 0; /* set before the start: kept while the session runs */
    lua_sethook(L, counting_hook, LUA_MASKCOUNT, 1000000);
    host_start_by(L, &host_ways[i]);
    host_call(L, "work", 3000000);
    luapulse_status_t status;
    luapulse_get_status(L, &status);
    luapulse_profile_free(host_stop(L));
    CHECK(lua_gethook(L) == counting_hook && lua_gethookmask(L) == LUA_MASKCOUNT &&
          lua_gethookcount(L) == 1000000);
    /* that of the calls around it may be one more or less */
    if (counts + 1 < plain || counts > plain + 1)
      FAIL("%s: %" PRIu64 " events, %" PRIu64 " without the profiler", host_ways[i].engine, counts, plain);
    CHECK(status.samples >= 10 && status.lost_dropped == 0); /* and not at the cost of the samples */
    if (host_ways[i].clock == LUAPULSE_CLOCK_CPU) {          /* set while it runs */
      lua_sethook(L, NULL, 0, 0);
      host_start_by(L, &host_ways[i]);
      uint64_t now = count_events(L, 1000000, 3000000);
      luapulse_profile_free(host_stop(L));
      if (now + 1 < plain || now > plain + 1)
        FAIL("%" PRIu64 " events, %" PRIu64 " without the profiler", now, plain);
    }
    lua_sethook(L, NULL, 0, 0);
    lua_close(L);
  }
}

/* Started and stopped, paused and resumed many times on the way of one count. */
static void count_hook_through_many_sessions(void) {
  for (int i = 0; i < HOST_WAYS; i++) {
    lua_State *L = host_open();
    counts = 0;
    lua_sethook(L, counting_hook, LUA_MASKCOUNT, 10000);
    for (int j = 0; j < 200; j++) host_call(L, "work", 1000);
    uint64_t plain = counts;
    counts = 0;
    lua_sethook(L, counting_hook, LUA_MASKCOUNT, 10000);
    for (int j = 0; j < 200; j++) {
      host_start_by(L, &host_ways[i]);
      if (j % 3 == 0) CHECK(luapulse_pause(L, NULL) == 0);
      host_call(L, "work", 500);
      if (j % 3 == 0) CHECK(luapulse_resume(L, NULL) == 0);
      host_call(L, "work", 500);
      luapulse_profile_free(host_stop(L));
    }
    CHECK(plain > 100);
    if (counts + plain / 20 < plain || counts > plain + plain / 20 + 1)
      FAIL("%s: %" PRIu64 " events, %" PRIu64 " without the profiler", host_ways[i].engine, counts, plain);
    lua_close(L);
  }
}

static void call_hook_sees_every_call(void) {
  for (int i = 0; i < HOST_WAYS; i++) {
    lua_State *L = host_open();
    calls = lines = 0;
    lua_sethook(L, counting_hook, LUA_MASKCALL | LUA_MASKRET | LUA_MASKLINE, 0);
    host_call(L, "work", 300000);
    uint64_t plain = calls, plain_lines = lines;
    host_start_by(L, &host_ways[i]);
    calls = lines = 0;
    host_call(L, "work", 300000);
    uint64_t profiled = calls, profiled_lines = lines;
    luapulse_status_t status;
    luapulse_get_status(L, &status);
    luapulse_profile_free(host_stop(L));
    if (profiled != plain)
      FAIL("%s: %" PRIu64 " calls and returns, %" PRIu64 " without the profiler", host_ways[i].engine,
           profiled, plain);
    /* 5.2 and 5.3 forget where they were when any hook is set: a line may be told twice, once for each sample. The walker
     * sets none. */
    uint64_t repeats = &host_ways[i] == HOST_BY_WALK ? 0 : 2 * status.samples + 2;
    if (profiled_lines < plain_lines || profiled_lines > plain_lines + repeats)
      FAIL("%s: %" PRIu64 " lines, %" PRIu64 " without the profiler", host_ways[i].engine, profiled_lines,
           plain_lines);
    CHECK(lua_gethook(L) == counting_hook &&
          lua_gethookmask(L) == (LUA_MASKCALL | LUA_MASKRET | LUA_MASKLINE));
    lua_close(L);
  }
}

static void raising_hook(lua_State *L, lua_Debug *ar) {
  (void)ar;
  luaL_error(L, "too long");
}

/* A host's time-out is an error raised in its hook, through ours. */
static void hook_that_raises(void) {
  for (int i = 0; i < HOST_WAYS; i++) {
    lua_State *L = host_open();
    host_start_by(L, &host_ways[i]);
    for (int j = 0; j < 50; j++) {
      if (host_ways[i].clock == LUAPULSE_CLOCK_CPU) {
        lua_sethook(L, raising_hook, LUA_MASKCOUNT, 200000);
        CHECK(luaL_loadstring(L, "while true do end") == 0 && lua_pcall(L, 0, 0, 0) != 0);
        CHECK(strstr(lua_tostring(L, -1), "too long") != NULL);
        lua_pop(L, 1);
        lua_sethook(L, NULL, 0, 0);
      }
      host_call(L, "burn", 0.002);
    }
    luapulse_profile_free(host_stop(L));
    lua_close(L);
  }
}

static lua_State *main_state;

static void raise_elsewhere(lua_State *L, lua_Debug *ar) {
  (void)ar;
  if (L != main_state) luaL_error(L, "too long");
}

/* Coroutines inherit the hook of who makes them; the one that the walker tries itself on is not the host's to stop. */
static void hook_while_starting(void) {
  lua_State *L = main_state = host_open();
  lua_sethook(L, raise_elsewhere, LUA_MASKCOUNT, 1);
  host_start_by(L, HOST_BY_WALK);
  CHECK(lua_gethook(L) == raise_elsewhere && lua_gethookcount(L) == 1);
  lua_sethook(L, NULL, 0, 0);
  host_sample(L, 3);
  luapulse_profile_free(host_stop(L));
  lua_close(L);
}

/* -- waiting
 * ------------------------------------------------------------------------------------------------------------ */

/* Before Linux 5.11 (arm64: 5.16) a CPU timer's signal was sent in the interrupt, and a tick that fell between entering a call and going to
 * sleep ended it: no more calls than ticks, of which there are 250 a second at most. Since then it is sent on the way back to user mode. */
static uint64_t interruptions_by_the_kernel(uint64_t spent) {
  struct utsname name;
  int major = 0, minor = 0;
  CHECK(uname(&name) == 0 && sscanf(name.release, "%d.%d", &major, &minor) == 2);
  int first = strcmp(name.machine, "aarch64") == 0 ? 16 : 11;
  return major > 5 || (major == 5 && minor >= first) ? 0 : 3 + spent / 4000000;
}

static void waiting_calls(void) {
  enum { WAITS = 150 };
  lua_State *L = host_open();
  int ends[2], interrupted = 0;
  CHECK(pipe(ends) == 0);
  int epoll = epoll_create1(0);
  struct epoll_event event = {.events = EPOLLIN};
  CHECK(epoll >= 0 && epoll_ctl(epoll, EPOLL_CTL_ADD, ends[0], &event) == 0);
  luapulse_profile_options_t options = host_options(LUAPULSE_CLOCK_CPU);
  options.cpu_hz = 100;
  CHECK(luapulse_start(L, &options, NULL) == 0);
  host_sample(L, 2);
  uint64_t start = time_thread_cpu();
  for (int i = 0; i < WAITS; i++) {
    struct timespec one = {0, 1000000};
    struct pollfd fd = {.fd = ends[0], .events = POLLIN};
    char byte;
    host_call(L, "work", 10);
    if (nanosleep(&one, NULL) != 0) interrupted++;
    if (poll(&fd, 1, 1) < 0) interrupted++;
    if (epoll_wait(epoll, &event, 1, 1) < 0) interrupted++;
    CHECK(write(ends[1], "x", 1) == 1 && read(ends[0], &byte, 1) == 1);
  }
  uint64_t spent = time_thread_cpu() - start;
  luapulse_profile_free(host_stop(L));
  lua_close(L);
  if ((uint64_t)interrupted > interruptions_by_the_kernel(spent))
    FAIL("%d of %d waits interrupted in %" PRIu64 " ns of CPU time", interrupted, 3 * WAITS, spent);
}

static void *write_late(void *fd) {
  struct timespec some = {0, 50000000};
  nanosleep(&some, NULL);
  return write(*(int *)fd, "x", 1) == 1 ? fd : NULL;
}

/* A read that waits is never interrupted, though ticks come: its thread is told to start it again. */
static void reading(void) {
  lua_State *L = host_open();
  int ends[2];
  CHECK(pipe(ends) == 0);
  host_start(L, LUAPULSE_CLOCK_CPU);
  for (int i = 0; i < 5; i++) {
    pthread_t thread;
    char byte;
    void *ok;
    CHECK(pthread_create(&thread, NULL, write_late, &ends[1]) == 0);
    host_sample_more(L, 1);
    CHECK(read(ends[0], &byte, 1) == 1);
    CHECK(pthread_join(thread, &ok) == 0 && ok != NULL);
  }
  luapulse_profile_free(host_stop(L));
  lua_close(L);
}

/* errno is the host's, tick or not. */
static void errno_preserved(void) {
  lua_State *L = host_open();
  host_start(L, LUAPULSE_CLOCK_CPU);
  errno = 4242;
  for (uint64_t start = time_thread_cpu(); time_thread_cpu() - start < 100000000;) CHECK(errno == 4242);
  luapulse_profile_free(host_stop(L));
  lua_close(L);
}

/* -- cancellation
 * ------------------------------------------------------------------------------------------------------ */

static void *cancelled_in_stop(void *argument) {
  lua_State *L = argument;
  host_start(L, LUAPULSE_CLOCK_CPU);
  pthread_cancel(pthread_self()); /* pending: takes effect at the next cancellation point */
  luapulse_profile_free(host_stop(L));
  pthread_testcancel();
  return NULL;
}

/* A thread that is cancelled in stop takes no lock with it. */
static void cancelled_thread(void) {
  lua_State *L = host_open();
  pthread_t thread;
  void *result;
  CHECK(pthread_create(&thread, NULL, cancelled_in_stop, L) == 0);
  CHECK(pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED);
  alarm(60);
  host_start(L, LUAPULSE_CLOCK_CPU);
  host_sample(L, 3);
  luapulse_profile_free(host_stop(L));
  lua_close(L);
}

/* Given a program without standard input, output or error, when it is profiled, then it has none of ours in their place. */
static void closed_standard_descriptors(void) {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
    lua_State *L = host_open();
    int kept = fcntl(fd, F_DUPFD_CLOEXEC, 10);
    CHECK(kept >= 0 && close(fd) == 0);
    host_start(L, LUAPULSE_CLOCK_CPU);
    host_sample(L, 5);
    bool taken = fcntl(fd, F_GETFD) >= 0;
    CHECK(dup2(kept, fd) == fd && close(kept) == 0);
    if (taken) FAIL("descriptor %d was taken", fd);
    luapulse_profile_free(host_stop(L));
    CHECK(host_perf_events() == 0);
    lua_close(L);
  }
}

static const host_test_t tests[] = {
    {"handlers_preserved", handlers_preserved},
    {"handlers_preserved_with_perf", handlers_preserved_with_perf},
    {"host_takes_our_signal", host_takes_our_signal},
    {"host_uses_our_signal_later", host_uses_our_signal_later},
    {"stray_signals", stray_signals},
    {"host_takes_the_signal_of_events", host_takes_the_signal_of_events},
    {"host_closes_our_descriptor", host_closes_our_descriptor},
    {"closed_standard_descriptors", closed_standard_descriptors},
    {"blocked_signals", blocked_signals},
    {"alternate_stack", alternate_stack},
    {"sethook_in_a_loop", sethook_in_a_loop},
    {"count_hook_keeps_its_pace", count_hook_keeps_its_pace},
    {"count_hook_through_many_sessions", count_hook_through_many_sessions},
    {"call_hook_sees_every_call", call_hook_sees_every_call},
    {"hook_that_raises", hook_that_raises},
    {"hook_while_starting", hook_while_starting},
    {"waiting_calls", waiting_calls},
    {"reading", reading},
    {"errno_preserved", errno_preserved},
    {"cancelled_thread", cancelled_thread},
};

HOST_MAIN(tests)
