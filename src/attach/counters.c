/* SPDX-License-Identifier: MIT */
/* Counters by perf events; see counters.h. */
#include "attach/counters.h"

#include <dirent.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "profile/mem.h"

static int open_event(pid_t tid, counter_t counter) {
  static const uint64_t configs[COUNTERS] = {PERF_COUNT_HW_CPU_CYCLES, PERF_COUNT_HW_INSTRUCTIONS,
                                             PERF_COUNT_HW_BRANCH_INSTRUCTIONS, PERF_COUNT_HW_BRANCH_MISSES};
  struct perf_event_attr attr = {
      .type = PERF_TYPE_HARDWARE,
      .size = sizeof attr,
      .config = configs[counter],
      .inherit = 1, /* by threads it starts; its children too, which is little */
      .exclude_kernel = 1,
      .exclude_hv = 1,
      .read_format = PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING,
  };
  return (int)syscall(SYS_perf_event_open, &attr, tid, -1, -1, PERF_FLAG_FD_CLOEXEC);
}

static bool open_thread(counters_t *c, pid_t tid) {
  if (!mem_reserve((void **)&c->events, &c->room, c->count + COUNTERS, sizeof *c->events)) return false;
  for (int i = 0; i < COUNTERS; i++) {
    c->events[c->count + (size_t)i] = open_event(tid, (counter_t)i);
    if (c->events[c->count + (size_t)i] >= 0) continue;
    while (i-- > 0) close(c->events[c->count + (size_t)i]);
    return false;
  }
  c->count += COUNTERS;
  return true;
}

bool counters_open(counters_t *c, pid_t pid) {
  char path[64];
  bool any = false;
  snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
  DIR *folder = opendir(path);
  if (folder == NULL) return false;
  for (const struct dirent *entry; (entry = readdir(folder)) != NULL;) {
    int tid = atoi(entry->d_name);
    if (tid > 0) any |= open_thread(c, tid);
  }
  closedir(folder);
  return any;
}

void counters_close(counters_t *c) {
  for (size_t i = 0; i < c->count; i++) close(c->events[i]);
  mem_free(c->events);
  *c = (counters_t){.events = NULL};
}

void counters_read(const counters_t *c, double values[COUNTERS]) {
  memset(values, 0, COUNTERS * sizeof *values);
  for (size_t i = 0; i < c->count; i++) {
    struct {
      uint64_t value, enabled, running;
    } got;
    if (read(c->events[i], &got, sizeof got) != sizeof got || got.running == 0) continue;
    values[i % COUNTERS] += (double)got.value * (double)got.enabled / (double)got.running;
  }
}
