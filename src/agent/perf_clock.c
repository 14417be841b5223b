/* SPDX-License-Identifier: MIT */
/* Perf events as clocks; see perf_clock.h. */
#include "agent/perf_clock.h"

#include <fcntl.h>
#include <linux/perf_event.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

int perf_clock_signal(void) {
  static const int candidates[] = {
#ifdef SIGSTKFLT
      SIGSTKFLT, /* no kernel sends it */
#endif
      SIGPWR, /* only to init */
  };
  for (size_t i = 0; i < sizeof candidates / sizeof candidates[0]; i++) {
    struct sigaction action;
    if (sigaction(candidates[i], NULL, &action) == 0 && action.sa_handler == SIG_DFL) return candidates[i];
  }
  return 0;
}

/* A program that was started with a standard descriptor closed would take what has its number for its input or output. */
static int above_standard(int fd) {
  if (fd < 0 || fd > STDERR_FILENO) return fd;
  int moved = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  close(fd);
  return moved;
}

int perf_clock_open(pid_t tid, int signal) {
  struct perf_event_attr attributes = {
      .size = sizeof attributes,
      .type = PERF_TYPE_SOFTWARE,
      .config = PERF_COUNT_SW_CPU_CLOCK,
      .sample_period = 1000000000, /* set before it is enabled */
      .disabled = 1,
      .exclude_kernel = 1,
      .exclude_hv = 1,
      .wakeup_events = 1,
  };
  int fd = above_standard((int)syscall(SYS_perf_event_open, &attributes, tid, -1, -1, PERF_FLAG_FD_CLOEXEC));
  if (fd < 0) return -1;
  struct f_owner_ex owner = {F_OWNER_TID, tid};
  if (fcntl(fd, F_SETOWN_EX, &owner) == 0 && fcntl(fd, F_SETSIG, signal) == 0 &&
      fcntl(fd, F_SETFL, O_ASYNC | O_NONBLOCK) == 0)
    return fd;
  close(fd);
  return -1;
}

bool perf_clock_set(int fd, uint64_t gap, unsigned ticks) {
  return ioctl(fd, PERF_EVENT_IOC_PERIOD, &gap) == 0 && ioctl(fd, PERF_EVENT_IOC_REFRESH, ticks) == 0;
}

void perf_clock_hold(int fd, bool hold) {
  ioctl(fd, hold ? PERF_EVENT_IOC_DISABLE : PERF_EVENT_IOC_ENABLE, 0);
}

static bool is_event(int fd) {
  char path[64], target[64];
  snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  ssize_t len = readlink(path, target, sizeof target - 1);
  if (len <= 0) return false;
  target[len] = '\0';
  return strstr(target, "perf_event") != NULL;
}

void perf_clock_close(int fd) {
  if (!is_event(fd)) return;
  ioctl(fd, PERF_EVENT_IOC_DISABLE, 0);
  close(fd);
}

void perf_clock_close_copy(int fd) {
  if (is_event(fd)) close(fd);
}
