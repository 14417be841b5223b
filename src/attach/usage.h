/* SPDX-License-Identifier: MIT */
/* What the kernel counts for a process: CPU time, switches, page faults. All since it began, of all its threads. */
#ifndef LUAPULSE_ATTACH_USAGE_H
#define LUAPULSE_ATTACH_USAGE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

typedef struct {
  int64_t cpu;           /* ns */
  int64_t system;        /* of it in the kernel, ns, in steps of 10 ms */
  uint64_t minor, major; /* page faults: without and with reading from a disk */
  /* Context switches, given up by waiting, and taken away. Of the threads that are there now. */
  uint64_t voluntary, involuntary;
  int64_t
      waited; /* for a processor, ready to run, ns; of the same threads; 0 where the kernel does not tell */
} usage_t;

/* False when there is no such process any more. */
bool usage_read(usage_t *usage, pid_t pid);
/* What came since `before`; switches and waits of threads that have ended meanwhile are not in it. */
usage_t usage_since(const usage_t *now, const usage_t *before);
void usage_add(usage_t *sum, const usage_t *more);

#endif
