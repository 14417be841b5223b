/* SPDX-License-Identifier: MIT */
/* What the ptrace engine keeps of a process that it samples: how to ask for its state, its Luas, where its stacks are. */
#ifndef LUAPULSE_ATTACH_WATCHED_H
#define LUAPULSE_ATTACH_WATCHED_H

#include <time.h>

#include "attach/process_stat.h"
#include "attach/runtime.h"

enum { WATCHED_HINTS = 8 };

typedef struct {
  layout_t layout;
  uint32_t index; /* in runtimes_t */
  uint64_t vm_low, vm_high;
  vm_t hints[WATCHED_HINTS]; /* VMs that are looked at where registers and stack name none */
  size_t hint_count;
} watched_lua_t;

typedef struct {
  pid_t pid;
  int stat_fd;     /* of /proc/PID/stat */
  int call_fd;     /* of /proc/PID/syscall; -1: it is not asked */
  clockid_t clock; /* CPU time of its threads … */
  bool has_clock;  /* … if that can be told */
  bool runs_alone; /* at the last tick it had one thread, which ran */
  uint64_t space;  /* that the Luas were found in */
  watched_lua_t luas[RUNTIMES_MAX];
  size_t lua_count;
  walk_range_t *images, *stacks; /* programs and libraries; mappings that may hold a native stack */
  uint32_t image_count, stack_count;
  uint64_t main_stack_end;
  int64_t looked_at_maps; /* CLOCK_MONOTONIC, ns */
} watched_t;

/* `quick`: for watched_runs(), which takes a descriptor more. */
watched_t *watched_open(pid_t pid, bool quick, failure_t *failure);
void watched_close(watched_t *watched);

/* Its Luas from now on, in the address space it has now. */
bool watched_set(watched_t *watched, const runtimes_t *runtimes, failure_t *failure);
/* Whether its first thread runs or waits for a processor, told sooner than process_stat_at() does. False also when that cannot be told. */
bool watched_runs(const watched_t *watched);
/* What its threads have used of processors, those that ended included, ns. False when it cannot be told. */
bool watched_cpu(const watched_t *watched, int64_t *ns);
/* Makes a walk ready for a thread that stands still, but for the layout. */
void watched_aim(watched_t *watched, walk_t *walk, const walk_registers_t *registers);

#endif
