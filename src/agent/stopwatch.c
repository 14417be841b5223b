/* SPDX-License-Identifier: MIT */
/* Choosing and calibrating the stopwatch; see stopwatch.h. */
#include "agent/stopwatch.h"

#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#if defined __x86_64__
#include <cpuid.h>
#endif

enum { CALIBRATION = 5000000 /* ns: an error of 30 ns in reading the clocks is 6 in a million */ };

stopwatch_t stopwatch;

#if defined __x86_64__

/* The same rate whatever the processor's frequency, and not stopped in deep sleep. */
static bool is_invariant(void) {
  unsigned a, b, c, d;
  return __get_cpuid(0x80000007, &a, &b, &c, &d) != 0 && (d & (1u << 8)) != 0;
}

/* The kernel compares the counters of all processors at boot, and takes the tsc off its list when they differ. */
static bool kernel_trusts_it(void) {
  char names[256];
  int fd = open("/sys/devices/system/clocksource/clocksource0/available_clocksource", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  ssize_t len = read(fd, names, sizeof names - 1);
  close(fd);
  if (len <= 0) return false;
  names[len] = '\0';
  return strstr(names, "tsc") != NULL;
}

typedef struct {
  uint64_t ticks, nanos;
} reading_t;

/* Of several the one during which the least time passed: nothing came between. */
static reading_t read_both(void) {
  reading_t best = {0, 0};
  uint64_t shortest = UINT64_MAX;
  for (int i = 0; i < 16; i++) {
    uint64_t before = stopwatch_ticks(), nanos = time_monotonic(), after = stopwatch_ticks();
    if (after - before >= shortest) continue;
    shortest = after - before;
    best = (reading_t){before + (after - before) / 2, nanos};
  }
  return best;
}

static void calibrate(void) {
  reading_t first = read_both(), second;
  do second = read_both();
  while (second.nanos - first.nanos <
         CALIBRATION); /* at work, not asleep: a signal of the host's must find it as ever */
  uint64_t ticks = second.ticks - first.ticks, nanos = second.nanos - first.nanos;
  if (second.ticks <= first.ticks || ticks <= nanos)
    return; /* slower than 1 GHz: there are none to speak of */
  stopwatch.base = first.ticks;
  stopwatch.factor = (uint64_t)(((unsigned __int128)nanos << 64) / ticks);
}

static void choose(void) {
  if (is_invariant() && kernel_trusts_it()) calibrate();
}

#else

static void choose(void) {
}

#endif

void stopwatch_prepare(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, choose);
}

const char *stopwatch_source(void) {
  return stopwatch.factor != 0 ? "tsc" : "vdso";
}
