/* SPDX-License-Identifier: MIT */
/* What a tick costs before anybody does anything in it: the slowdown of a loop by signals with an empty handler, for each source
 * of ticks, switched on and off in slices. The floor under every sampling profiler on this machine. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/perf_event.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif

enum { SLICES = 400, GAPS = 4 /* in a slice */, SIGNALS = 20000 };

static volatile long ticks;

static void on_tick(int number) {
  (void)number;
  ticks++;
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static long rounds = 1000000; /* of work() */

static double work(void) {
  double start = now();
  volatile double x = 1;
  for (long i = 0; i < rounds; i++) x = x * 1.0000001;
  return now() - start;
}

/* Ticks begin anew with each slice: it has to last for some of them. */
static void choose_rounds(long hz) {
  double fastest = 1e9;
  for (int i = 0; i < 20; i++) {
    double one = work();
    if (one < fastest) fastest = one;
  }
  double slice = (double)GAPS / (double)hz;
  if (slice < 0.01) slice = 0.01;
  rounds = (long)((double)rounds * slice / fastest);
}

/* No timer, no interrupt: a thread that sends itself a signal. */
static void measure_signal(void) {
  double start = now();
  for (int i = 0; i < SIGNALS; i++) raise(SIGUSR1);
  printf("%-28s                %6.1f µs each\n", "a signal to oneself", (now() - start) * 1e6 / SIGNALS);
}

typedef struct {
  const char *name;
  clockid_t clock; /* of a timer; -1: a perf event */
} source_t;

static timer_t timer;
static int event;

static int open_source(const source_t *source, long gap) {
  pid_t tid = (pid_t)syscall(SYS_gettid);
  if (source->clock >= 0) {
    struct sigevent e = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGUSR1};
    e.sigev_notify_thread_id = tid;
    return timer_create(source->clock, &e, &timer);
  }
  struct perf_event_attr a = {.size = sizeof a,
                              .type = PERF_TYPE_SOFTWARE,
                              .config = PERF_COUNT_SW_CPU_CLOCK,
                              .sample_period = (unsigned long long)gap,
                              .disabled = 1,
                              .exclude_kernel = 1,
                              .exclude_hv = 1,
                              .wakeup_events = 1};
  struct f_owner_ex owner = {F_OWNER_TID, tid};
  event = (int)syscall(SYS_perf_event_open, &a, 0, -1, -1, 0);
  if (event < 0) return -1;
  return fcntl(event, F_SETOWN_EX, &owner) == 0 && fcntl(event, F_SETSIG, SIGUSR1) == 0
             ? fcntl(event, F_SETFL, O_ASYNC)
             : -1;
}

static void turn(const source_t *source, long gap, int on) {
  struct itimerspec when = {{0, on ? gap : 0}, {0, on ? gap : 0}};
  if (source->clock >= 0)
    timer_settime(timer, 0, &when, NULL);
  else
    ioctl(event, on ? PERF_EVENT_IOC_ENABLE : PERF_EVENT_IOC_DISABLE, 0);
}

static int smaller(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static void measure(const source_t *source, long hz) {
  double differences[SLICES], with = 0;
  long gap = 1000000000 / hz, seen = 0;
  if (open_source(source, gap) != 0) {
    printf("%-28s not permitted here\n", source->name);
    return;
  }
  for (int i = 0; i < SLICES; i++) {
    long before = ticks;
    turn(source, gap, 1);
    double on = work();
    turn(source, gap, 0);
    seen += ticks - before;
    with += on;
    differences[i] = on - work();
  }
  qsort(differences, SLICES, sizeof differences[0], smaller);
  /* of the middle half: the machine's own interruptions are in neither more nor less */
  double sum = 0;
  for (int i = SLICES / 4; i < SLICES - SLICES / 4; i++) sum += differences[i];
  double each = sum / (SLICES - 2 * (SLICES / 4)) * SLICES / (double)(seen > 0 ? seen : 1);
  printf("%-28s %5.0f ticks/s  %6.1f µs each, %5.2f %% of the time\n", source->name, (double)seen / with,
         each * 1e6, each * (double)seen / with * 100);
}

int main(int count, char **arguments) {
  static const source_t sources[] = {{"CPU timer (kernel's tick)", CLOCK_THREAD_CPUTIME_ID},
                                     {"high-resolution timer", CLOCK_MONOTONIC},
                                     {"perf event", -1}};
  long hz = count > 1 ? atol(arguments[1]) : 1000;
  struct sigaction action = {.sa_handler = on_tick, .sa_flags = SA_RESTART};
  if (hz < 1 || sigaction(SIGUSR1, &action, NULL) != 0) return 1;
  choose_rounds(hz);
  printf("A tick with an empty handler, %ld a second asked for:\n", hz);
  measure_signal();
  for (size_t i = 0; i < sizeof sources / sizeof sources[0]; i++) measure(&sources[i], hz);
  return 0;
}
