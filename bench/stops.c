/* SPDX-License-Identifier: MIT */
/* What it takes to stop a thread so many times a second, with nothing looked at: the floor under engine ptrace, and under every profiler that
 * stops what it looks at, on this machine.
 *   stops PID HZ SECONDS     prints the share of a core that this program used, in %, and how long the thread stood still, in µs */
#define _GNU_SOURCE
#include <elf.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <time.h>

enum { SECOND = 1000000000 };

static long long clock_ns(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return (long long)t.tv_sec * SECOND + t.tv_nsec;
}

/* Looks until it has come to stop: to sleep meanwhile takes longer. False: it has ended. */
static int await_stop(pid_t pid) {
  siginfo_t info;
  do {
    info.si_pid = 0;
    if (waitid(P_PID, (id_t)pid, &info, WSTOPPED | WNOHANG | __WALL) != 0) return 0;
  } while (info.si_pid == 0);
  return 1;
}

static int stop_once(pid_t pid, long long *held) {
  struct user_regs_struct registers;
  struct iovec all = {&registers, sizeof registers};
  if (ptrace(PTRACE_SEIZE, pid, NULL, NULL) != 0) return 0;
  ptrace(PTRACE_INTERRUPT, pid, NULL, NULL);
  if (!await_stop(pid)) return 0;
  long long since = clock_ns(CLOCK_MONOTONIC);
  ptrace(PTRACE_GETREGSET, pid, (void *)(long)NT_PRSTATUS, &all);
  ptrace(PTRACE_DETACH, pid, NULL, NULL);
  *held += clock_ns(CLOCK_MONOTONIC) - since;
  return 1;
}

int main(int count, char **arguments) {
  if (count != 4) {
    fprintf(stderr, "stops PID HZ SECONDS\n");
    return 2;
  }
  pid_t pid = (pid_t)atoi(arguments[1]);
  long long gap = (long long)(SECOND / atof(arguments[2])), held = 0, stops = 0;
  long long next = clock_ns(CLOCK_MONOTONIC), end = next + (long long)(atof(arguments[3]) * SECOND);
  for (srand((unsigned)next); next < end; stops++) {
    next += gap / 2 + rand() % gap;
    struct timespec wake = {next / SECOND, next % SECOND};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &wake, NULL) == EINTR) {
    }
    if (!stop_once(pid, &held)) {
      fprintf(stderr, "stops: process %d cannot be stopped: %s\n", (int)pid, strerror(errno));
      return 1;
    }
  }
  printf("%.2f %.1f\n", (double)clock_ns(CLOCK_PROCESS_CPUTIME_ID) * 100 / (atof(arguments[3]) * SECOND),
         (double)held / (double)stops / 1000);
  return 0;
}
