/* SPDX-License-Identifier: MIT */
/* Programs that rest, in step with the kernel's tick: CPU timers are looked at on that grid alone, and yet no part of such a
 * program is seen more than its share, or never. */
#include <math.h>
#include <pthread.h>
#include <sys/random.h>
#include <sys/resource.h>

#include "host.h"

/* -- a program on the grid ---------------------------------------------------------------------------------------- */

static double tick; /* seconds between two of the kernel's ticks */

static int push_now(lua_State *L) {
  lua_pushnumber(L, (lua_Number)time_monotonic() * 1e-9);
  return 1;
}

static int sleep_until(lua_State *L) {
  double moment = lua_tonumber(L, 1);
  struct timespec when = {(time_t)moment, (long)((moment - floor(moment)) * 1e9)};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &when, NULL) == EINTR) {
  }
  return 0;
}

/* Some 0.2 ms of kernel time. */
static int work_in_kernel(lua_State *L) {
  static char bytes[65536];
  (void)L;
  CHECK(getrandom(bytes, sizeof bytes, 0) > 0);
  return 0;
}

/* A moment of the grid: the coarse clock moves at the kernel's ticks. */
static double a_tick(void) {
  uint64_t before = time_read(CLOCK_MONOTONIC_COARSE);
  while (time_read(CLOCK_MONOTONIC_COARSE) == before) {
  }
  return (double)time_monotonic() * 1e-9;
}

/* A loop of five ticks, as of a game of 50 Hz: it sleeps until the next multiple of the period after `first` and is then busy, by
 * absolute moments. alternate: half of each tick is black, the other white. flash: half a tick is all it does. mixed and fidget
 * have no period: half a millisecond of black and as much of the kernel, and random rests; as many rests as can be. */
static const char code[] =
    "spent = { black = 0, white = 0, kernel = 0 }\n"
    "function black(moment) while now() < moment do end end\n"
    "function white(moment) while now() < moment do end end\n"
    "function kernel(times) for i = 1, times do work_in_kernel() end end\n"
    "local names = { [black] = 'black', [white] = 'white', [kernel] = 'kernel' }\n"
    "local function timed(f, argument)\n"
    "  local from, name = cpu(), names[f]\n"
    "  f(argument)\n"
    "  spent[name] = spent[name] + cpu() - from\n"
    "end\n"
    "function alternate(start)\n"
    "  for i = 0, 3 do timed(black, start + (i + 0.5) * tick) timed(white, start + (i + 1) * tick) end\n"
    "end\n"
    "function flash(start) timed(black, start + 0.5 * tick) end\n"
    "local function play(frame, seconds)\n"
    "  local stop = now() + seconds\n"
    "  while first < stop do\n"
    "    if first > now() then sleep_until(first) frame(first) end\n"
    "    first = first + 5 * tick\n"
    "  end\n"
    "end\n"
    "function play_alternate(seconds) play(alternate, seconds) end\n"
    "function play_flash(seconds) play(flash, seconds) end\n"
    "function play_mixed(seconds)\n"
    "  local stop = now() + seconds\n"
    "  while now() < stop do\n"
    "    for i = 1, 10 do timed(black, now() + 0.0005 + 0.0005 * math.random()) timed(kernel, "
    "math.random(6)) end\n"
    "    sleep_until(now() + 0.003 * math.random())\n"
    "  end\n"
    "end\n"
    "function fidget(seconds)\n"
    "  local stop = now() + seconds\n"
    "  while now() < stop do timed(black, now() + 0.00005) sleep_until(now() + 0.00005) end\n"
    "end\n";

/* Each period begins so many ticks after a tick of the kernel's. */
static lua_State *open_on_grid(double after) {
  struct timespec resolution;
  CHECK(clock_getres(CLOCK_MONOTONIC_COARSE, &resolution) == 0);
  tick = (double)resolution.tv_sec + (double)resolution.tv_nsec * 1e-9;
  lua_State *L = host_open();
  lua_pushcfunction(L, push_now);
  lua_setglobal(L, "now");
  lua_pushcfunction(L, sleep_until);
  lua_setglobal(L, "sleep_until");
  lua_pushcfunction(L, work_in_kernel);
  lua_setglobal(L, "work_in_kernel");
  lua_pushnumber(L, (lua_Number)tick);
  lua_setglobal(L, "tick");
  lua_pushnumber(L, (lua_Number)(a_tick() + after * tick));
  lua_setglobal(L, "first");
  host_run(L, code);
  return L;
}

static double spent_in(lua_State *L, const char *name) {
  lua_getglobal(L, "spent");
  lua_getfield(L, -1, name);
  double seconds = lua_tonumber(L, -1);
  lua_pop(L, 2);
  return seconds;
}

/* How often this thread has left a processor. */
static long switches_so_far(void) {
  struct rusage usage;
  CHECK(getrusage(RUSAGE_THREAD, &usage) == 0);
  return usage.ru_nvcsw + usage.ru_nivcsw;
}

static bool ticks_by_perf(lua_State *L) {
  luapulse_status_t status;
  luapulse_get_status(L, &status);
  return strcmp(status.source, "perf") == 0;
}

/* At 1000 Hz they serve where they are permitted. */
static void need_events(void) {
  lua_State *L = host_open();
  host_start(L, LUAPULSE_CLOCK_CPU);
  bool permitted = ticks_by_perf(L);
  luapulse_profile_free(host_stop(L));
  lua_close(L);
  if (permitted) return;
  puts("the kernel permits no perf events here, and CPU timers are on its grid");
  exit(HOST_SKIPPED);
}

static void start_at(lua_State *L, unsigned hz) {
  luapulse_error_t error = {""};
  luapulse_profile_options_t options = host_options(LUAPULSE_CLOCK_CPU);
  options.cpu_hz = hz;
  if (luapulse_start(L, &options, &error) != 0) FAIL("start: %s", error.text);
}

/* -- what is seen of it --------------------------------------------------------------------------------------------- */

static luapulse_profile_t *snapshot(lua_State *L) {
  luapulse_error_t error = {""};
  luapulse_profile_t *profile = luapulse_snapshot(L, &error);
  if (profile == NULL) FAIL("snapshot: %s", error.text);
  return profile;
}

/* What a profile has of a function since an earlier one. */
static double more_of(const profile_t *all, const profile_t *early, size_t type, const char *name) {
  return (double)(host_sum(all, type, name, false) - host_sum(early, type, name, false));
}

/* The sum of weights is the CPU time, but for a gap of either source at its end, which are hundredths of a second. */
static void check_sum(double seen, double spent) {
  printf("%.3f s of %.3f s in the profile\n", seen, spent);
  CHECK(seen > spent * 0.97 && seen < spent * 1.03);
}

/* Given a program in which each tick of the kernel falls into the middle of black, when it is sampled, then black and white have
 * the shares of CPU time that the program measured itself. The first two seconds of CPU time, in which the ticker learns that its
 * thread rests, and that thread may be found by the profiler, do not count.
 *
 * The standard error is that of docs/sampling.md: 1.04 sqrt(s (1-s) / N). Gaps kept for eight ticks make samples depend on each
 * other, but not for the worse here: a simulation of 100 Hz, and of 250 Hz, on alternating halves of 4 ms gave 0.91 and 1.01
 * sqrt(s (1-s) / N). */
typedef struct {
  lua_State *L;
  unsigned hz;
  double seconds;
} play_t;

static void *play_and_check(void *argument) {
  play_t *play = argument;
  lua_State *L = play->L;
  uint64_t start = time_thread_cpu();
  while (time_thread_cpu() - start < 2000000000u) host_call(L, "play_alternate", 0.2);
  luapulse_profile_t *early = snapshot(L);
  start = time_thread_cpu();
  double black = spent_in(L, "black"), white = spent_in(L, "white");
  host_call(L, "play_alternate", play->seconds);
  double spent = (double)(time_thread_cpu() - start) * 1e-9;
  luapulse_profile_t *all = host_stop(L);
  black = spent_in(L, "black") - black;
  white = spent_in(L, "white") - white;
  double blacks = more_of(all, early, 0, "black"), count = blacks + more_of(all, early, 0, "white");
  double share = black / (black + white), sigma = 1.04 * sqrt(share * (1 - share) / count);
  printf("%u Hz: %.0f of %.0f samples in black, %.1f %%; its share is %.1f %%, sigma %.1f\n", play->hz,
         blacks, count, 100 * blacks / count, 100 * share, 100 * sigma);
  CHECK(count >= (black + white) * play->hz / 2);
  if (fabs(blacks / count - share) > 4 * sigma) FAIL("that is more than four sigma");
  check_sum(more_of(all, early, 1, NULL) * 1e-9, spent);
  luapulse_profile_free(early);
  luapulse_profile_free(all);
  return NULL;
}

static void shares_of_a_program_on_the_grid(void) {
  need_events();
  play_t play = {open_on_grid(-0.25), 100, 10};
  start_at(play.L, play.hz);
  play_and_check(&play);
  lua_close(play.L);
}

static void shares_at_the_kernels_rate(void) {
  need_events();
  play_t play = {open_on_grid(-0.25), 250, 6};
  start_at(play.L, play.hz);
  play_and_check(&play);
  lua_close(play.L);
}

static pthread_barrier_t started;

static void *play_elsewhere(void *argument) {
  pthread_barrier_wait(&started);
  return play_and_check(argument);
}

/* The same on a thread that never started a profile. It is there before, because the profiler looks for VMs elsewhere only in
 * hosts with several threads. */
static void shares_on_an_adopted_thread(void) {
  need_events();
  play_t play = {open_on_grid(-0.25), 250, 6};
  pthread_t thread;
  CHECK(pthread_barrier_init(&started, NULL, 2) == 0);
  CHECK(pthread_create(&thread, NULL, play_elsewhere, &play) == 0);
  start_at(play.L, play.hz);
  pthread_barrier_wait(&started);
  CHECK(pthread_join(thread, NULL) == 0);
  lua_close(play.L);
}

/* Given a program that runs between the kernel's ticks alone, then it is seen all the same. */
static void a_program_between_ticks_is_seen(void) {
  need_events();
  lua_State *L = open_on_grid(0.25);
  start_at(L, 100);
  uint64_t start = time_thread_cpu();
  double spent = 0;
  for (int i = 0; i < 40 && spent < 0.5; i++) { /* where others take the processor, many a flash is missed */
    host_call(L, "play_flash", 3);
    spent = (double)(time_thread_cpu() - start) * 1e-9;
  }
  luapulse_profile_t *profile = host_stop(L);
  double samples = (double)host_total(profile, 0), seen = (double)host_total(profile, 1) * 1e-9;
  printf("%.0f samples of %.3f s of %.3f s\n", samples, seen, spent);
  /* the first gaps are those of the watch, the last is not over: of 0.5 s they take no fifth */
  CHECK(samples >= spent * 100 / 2);
  CHECK(seen >= spent * 0.8);
  luapulse_profile_free(profile);
  lua_close(L);
}

/* Given a program that rests and is half the time in the kernel, then each part has its share. Only the timer beside the event
 * sees kernel time: at 250 Hz once in 16 ms of CPU time. So many looks decide what the share is, hence the standard error. */
static void kernel_time_has_its_share(void) {
  need_events();
  lua_State *L = open_on_grid(0);
  start_at(L, 250);
  host_call(L, "play_mixed", 1);
  luapulse_profile_t *early = snapshot(L);
  uint64_t start = time_thread_cpu();
  double black = spent_in(L, "black"), kernel = spent_in(L, "kernel");
  host_call(L, "play_mixed", 8);
  double spent = (double)(time_thread_cpu() - start) * 1e-9;
  luapulse_profile_t *all = host_stop(L);
  black = spent_in(L, "black") - black;
  kernel = spent_in(L, "kernel") - kernel;
  double share = kernel / (kernel + black), sigma = sqrt(share * (1 - share) / (spent / 0.016));
  double seen = more_of(all, early, 1, "kernel"), both = seen + more_of(all, early, 1, "black");
  printf("kernel time: %.1f %% in the profile, its share is %.1f %%, sigma %.1f\n", 100 * seen / both,
         100 * share, 100 * sigma);
  CHECK(share > 0.2 && share < 0.8);
  if (fabs(seen / both - share) > 4 * sigma) FAIL("that is more than four sigma");
  check_sum(more_of(all, early, 1, NULL) * 1e-9, spent);
  luapulse_profile_free(early);
  luapulse_profile_free(all);
  lua_close(L);
}

/* -- which source serves --------------------------------------------------------------------------------------------- */

/* Plays or burns, by turns of a fifth of a second, until ticks come from where they should; gives up after 20 s. */
static bool until_perf(lua_State *L, const char *what, bool perf) {
  for (int i = 0; i < 100; i++) {
    if (ticks_by_perf(L) == perf) return true;
    host_call(L, what, 0.2);
  }
  return false;
}

/* Interrupts of their own are for programs that rest: one that computes does not pay for them, before or after. */
static void the_source_follows_the_program(void) {
  need_events();
  lua_State *L = open_on_grid(0);
  start_at(L, 100);
  CHECK(!ticks_by_perf(L));
  host_call(L, "burn", 1);
  CHECK(!ticks_by_perf(L));
  for (int i = 0; i < 2; i++) {
    CHECK(until_perf(L, "play_alternate", true));
    CHECK(until_perf(L, "burn", false));
  }
  luapulse_profile_free(host_stop(L));
  lua_close(L);
}

/* Whether the thread was switched more than 1500 times a second in each of the next 20 turns of 50 ms: so were there 200 in any
 * 0.2 s of them, however these lie. Another program may keep it from that. */
static bool fidgets_for_a_second(lua_State *L) {
  for (int i = 0; i < 20; i++) {
    uint64_t from = time_monotonic();
    long before = switches_so_far();
    host_call(L, "fidget", 0.05);
    if ((double)(switches_so_far() - before) < 1500e-9 * (double)(time_monotonic() - from)) return false;
  }
  return true;
}

/* A thread that is switched thousands of times a second would feel an event at each switch. */
static void a_restless_program_keeps_the_timer(void) {
  need_events();
  lua_State *L = open_on_grid(0);
  start_at(L, 100);
  int seconds = 0;
  for (int tries = 0; seconds < 3 && tries < 1000; tries++) {
    if (!fidgets_for_a_second(L)) continue;
    CHECK(!ticks_by_perf(L));
    seconds++;
  }
  CHECK(seconds == 3);
  CHECK(until_perf(L, "play_alternate", true)); /* it was not given up */
  CHECK(until_perf(L, "fidget", false));
  luapulse_profile_free(host_stop(L));
  lua_close(L);
}

/* Samples go on by the timer. An event in vain is given up after 1.5 s of CPU time at 100 Hz, which are more of time: as many as the
 * machine's other programs want. */
static void check_goes_on(lua_State *L, const char *how) {
  luapulse_status_t before, after;
  luapulse_get_status(L, &before);
  uint64_t start = time_thread_cpu();
  do {
    host_call(L, "play_alternate", 0.5);
    luapulse_get_status(L, &after);
    if (time_thread_cpu() - start > 5000000000u)
      FAIL("%s: %" PRIu64 " samples in 5 s of CPU time", how, after.samples - before.samples);
  } while (after.samples < before.samples + 50);
  CHECK(until_perf(L, "play_alternate", false));
}

static void the_host_takes_the_event_away(void) {
  need_events();
  lua_State *L = open_on_grid(0);
  start_at(L, 100);
  CHECK(until_perf(L, "play_alternate", true));
  for (int fd = 3; fd < 256; fd++) close(fd);
  check_goes_on(L, "closed");
  luapulse_profile_free(host_stop(L));

  sigset_t one;
  sigemptyset(&one);
  sigaddset(&one, SIGSTKFLT);
  start_at(L, 100);
  CHECK(until_perf(L, "play_alternate", true));
  CHECK(pthread_sigmask(SIG_BLOCK, &one, NULL) == 0);
  check_goes_on(L, "blocked");
  luapulse_profile_free(host_stop(L));

  CHECK(pthread_sigmask(SIG_UNBLOCK, &one, NULL) == 0);
  start_at(L, 100);
  CHECK(pthread_sigmask(SIG_BLOCK, &one, NULL) == 0); /* before the event ever ticked */
  host_call(L, "play_alternate", 1);
  CHECK(!ticks_by_perf(L));
  check_goes_on(L, "blocked from the start");
  luapulse_profile_free(host_stop(L));
  lua_close(L);
}

static const host_test_t tests[] = {
    {"shares_of_a_program_on_the_grid", shares_of_a_program_on_the_grid},
    {"shares_at_the_kernels_rate", shares_at_the_kernels_rate},
    {"shares_on_an_adopted_thread", shares_on_an_adopted_thread},
    {"a_program_between_ticks_is_seen", a_program_between_ticks_is_seen},
    {"kernel_time_has_its_share", kernel_time_has_its_share},
    {"the_source_follows_the_program", the_source_follows_the_program},
    {"a_restless_program_keeps_the_timer", a_restless_program_keeps_the_timer},
    {"the_host_takes_the_event_away", the_host_takes_the_event_away},
};

HOST_MAIN(tests)
