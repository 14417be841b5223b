/* SPDX-License-Identifier: MIT */
/* Printing; see stat_line.h. What is not told is "-", never 0. */
#include "cli/stat_line.h"

#include <inttypes.h>
#include <stdio.h>
#include <time.h>

/* Of the time of all processes: used, waited for a processor, and neither. With several threads there may be more of it than of time. */
typedef struct {
  double busy, waiting, idle;
} times_t;

static times_t times_of(const stat_interval_t *i) {
  double all = i->process_seconds;
  if (all <= 0) return (times_t){.idle = 1};
  times_t t = {(double)i->usage.cpu / 1e9 / all, (double)i->usage.waited / 1e9 / all, 0};
  if (t.busy > 1) t.busy = 1;
  if (t.waiting > 1 - t.busy) t.waiting = 1 - t.busy;
  t.idle = 1 - t.busy - t.waiting;
  return t;
}

/* So little time that no sample is to be expected is no time. */
static bool is_told(const stat_interval_t *i) {
  return i->samples > 0 || times_of(i).busy < 0.01;
}

/* Of the time of the processes: samples tell how the time was spent that was used. */
static double share(const stat_interval_t *i, uint64_t part) {
  uint64_t sum = 0;
  for (int k = 0; k < DOING_KINDS; k++) sum += i->doing[k];
  return sum > 0 ? (double)part / (double)sum * times_of(i).busy : 0;
}

static uint64_t other(const stat_interval_t *i) {
  return i->doing[DOING_OUTSIDE] + i->doing[DOING_COMPILER];
}

static void print_share(int width, bool told, double value) {
  if (told)
    printf("%*.0f", width, value * 100);
  else
    printf("%*s", width, "-");
}

static void print_bytes(int width, uint64_t bytes) {
  if (bytes < (uint64_t)10 << 10)
    printf("%*" PRIu64 "B", width - 1, bytes);
  else if (bytes < (uint64_t)10 << 20)
    printf("%*" PRIu64 "K", width - 1, bytes >> 10);
  else if (bytes < (uint64_t)100 << 30)
    printf("%*" PRIu64 "M", width - 1, bytes >> 20);
  else
    printf("%*" PRIu64 "G", width - 1, bytes >> 30);
}

static double per_second(const stat_interval_t *i, uint64_t count) {
  return i->seconds > 0 ? (double)count / i->seconds : 0;
}

static double ratio(double part, double whole) {
  return whole > 0 ? part / whole : 0;
}

/* What is printed is less than the buffer holds: all of it is written here. */
static bool is_written(void) {
  return fflush(stdout) == 0 && !ferror(stdout);
}

bool stat_print_head(const stat_told_t *told) {
  printf(
      "         ---------- share of the time, %% ---------  ------ Lua ------  --- per second ----  -- cpu "
      "--%s\n",
      told->counters ? "  --- pmu ---" : "");
  printf(
      "    time interp  jit  gc   c kern other wait idle    heap gc       coro  switch forced fault  cpu%% "
      "sys%%%s\n",
      told->counters ? "   ipc br-miss%" : "");
  return is_written();
}

bool stat_print_line(const stat_told_t *told, const stat_interval_t *i) {
  char clock[16];
  time_t now = time(NULL);
  bool any = is_told(i);
  strftime(clock, sizeof clock, "%H:%M:%S", localtime(&now));
  printf("%8s", clock);
  print_share(7, any, share(i, i->doing[DOING_INTERPRETER]));
  print_share(5, any && told->compiled, share(i, i->doing[DOING_COMPILED]));
  print_share(4, any && told->gc, share(i, i->doing[DOING_GC]));
  print_share(4, any, share(i, i->doing[DOING_C]));
  print_share(5, any && told->kernel, share(i, i->doing[DOING_KERNEL]));
  print_share(6, any, share(i, other(i)));
  print_share(5, true, times_of(i).waiting);
  print_share(5, true, times_of(i).idle);
  print_bytes(8, i->vitals.heap);
  printf(" %-8s", gc_state_name(i->vitals.gc));
  if (i->vitals.coroutines_known)
    printf("%5" PRIu64, i->vitals.coroutines);
  else
    printf("%5s", "-");
  printf("%8.0f%7.0f%6.0f", per_second(i, i->usage.voluntary), per_second(i, i->usage.involuntary),
         per_second(i, i->usage.minor + i->usage.major));
  printf("%6.0f%5.0f", ratio((double)i->usage.cpu / 1e7, i->seconds),
         ratio((double)i->usage.system / 1e7, i->seconds));
  if (told->counters)
    printf("%6.2f%9.2f", ratio(i->counters[COUNTER_INSTRUCTIONS], i->counters[COUNTER_CYCLES]),
           100 * ratio(i->counters[COUNTER_BRANCH_MISSES], i->counters[COUNTER_BRANCHES]));
  putchar('\n');
  return is_written(); /* a reader behind a pipe waits for it */
}

/* -- the end --------------------------------------------------------------------------------------------------------------- */

static void print_part(const char *name, bool told, const char *why_not, double value) {
  if (told)
    printf("  %-13s%6.1f %%\n", name, value * 100);
  else
    printf("  %-13s not told: %s\n", name, why_not);
}

static void print_course(const stat_interval_t *all, const stat_course_t *course) {
  printf("heap: ");
  print_bytes(0, course->heap_first);
  printf(" at the beginning, ");
  print_bytes(0, all->vitals.heap);
  printf(" at the end, ");
  print_bytes(0, course->heap_most);
  printf(" at most, in %zu VM%s; the collector was found at", all->vitals.vms,
         all->vitals.vms == 1 ? "" : "s");
  bool any = false;
  for (int state = GC_UNKNOWN; state < GC_STATES; state++) {
    if (course->gc[state] == 0) continue;
    printf("%s %s %" PRIu64, any ? "," : "",
           state == GC_UNKNOWN ? "what is not told" : gc_state_name((gc_state_t)state), course->gc[state]);
    any = true;
  }
  printf(" of %" PRIu64 " times\n", course->lines);
  if (course->counts > 0)
    printf("coroutines: %" PRIu64 " at the beginning, %" PRIu64 " at the last count; counted %" PRIu64
           " time%s, for which the process was held for %.1f ms at most\n",
           course->coroutines_first, course->coroutines_last, course->counts, course->counts == 1 ? "" : "s",
           (double)course->held_most / 1e6);
  else
    printf(
        "coroutines: not told: there are too many objects to look through in the time a process may be "
        "held\n");
}

bool stat_print_summary(const stat_told_t *told, const stat_interval_t *all, const stat_course_t *course,
                        const recorder_counts_t *counts) {
  bool any = is_told(all);
  printf("\n%.1f s, %" PRIu64 " sample%s, %" PRIu64 " lost, %" PRIu64 " unattributed\n", all->seconds,
         all->samples, all->samples == 1 ? "" : "s", counts->lost, counts->unattributed);
  print_part("interpreter", any, "no samples", share(all, all->doing[DOING_INTERPRETER]));
  print_part("compiled", any && told->compiled, any ? "there is no compiler" : "no samples",
             share(all, all->doing[DOING_COMPILED]));
  print_part("compiling", any && told->compiled, any ? "there is no compiler" : "no samples",
             share(all, all->doing[DOING_COMPILER]));
  print_part("collector", any && told->gc, any ? "it counts for the function that was at work" : "no samples",
             share(all, all->doing[DOING_GC]));
  if (any && told->gc_at_least)
    puts(
        "                at least: of PUC Lua, some of what the collector does counts for the function that "
        "was at work");
  print_part("C functions", any, "no samples", share(all, all->doing[DOING_C]));
  print_part("kernel", any && told->kernel,
             "engine ptrace cannot tell; it counts for the function that called it",
             share(all, all->doing[DOING_KERNEL]));
  print_part("outside Lua", any, "no samples", share(all, all->doing[DOING_OUTSIDE]));
  print_part("waiting", true, "", times_of(all).waiting);
  print_part("idle", true, "", times_of(all).idle);
  if (course->lines > 0) print_course(all, course);
  printf("cpu: %.2f s, of it %.2f s in the kernel; %" PRIu64 " voluntary and %" PRIu64
         " forced context switches, %" PRIu64 " page faults, %" PRIu64 " of them from a disk\n",
         (double)all->usage.cpu / 1e9, (double)all->usage.system / 1e9, all->usage.voluntary,
         all->usage.involuntary, all->usage.minor + all->usage.major, all->usage.major);
  if (told->counters)
    printf("instructions per cycle: %.2f; branch misses: %.2f %%\n",
           ratio(all->counters[COUNTER_INSTRUCTIONS], all->counters[COUNTER_CYCLES]),
           100 * ratio(all->counters[COUNTER_BRANCH_MISSES], all->counters[COUNTER_BRANCHES]));
  else
    printf("instructions per cycle, branch misses: not supported: this machine has no counters for them\n");
  return is_written();
}
