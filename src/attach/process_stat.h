/* SPDX-License-Identifier: MIT */
/* One line of /proc/PID/stat, or of /proc/PID/task/TID/stat: what the scheduler does with it, and which address space it has. */
#ifndef LUAPULSE_ATTACH_PROCESS_STAT_H
#define LUAPULSE_ATTACH_PROCESS_STAT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { PROCESS_NAME = 32 };

typedef struct {
  char name[PROCESS_NAME]; /* as the thread calls itself */
  char state;              /* of the scheduler: R, S, D, T, Z … */
  bool of_the_kernel;      /* one of its own threads */
  pid_t parent;
  uint32_t threads;
  int64_t cpu; /* that it has used, ns, in steps of some milliseconds; of a process, by all its threads */
  uint64_t started; /* in ticks since boot: with the number it names a process for good */
  /* Where the program's parts lie, and when the process began: another one after exec. Two executions of one program with the same
   * arguments, and without address space randomisation, are not told apart. */
  uint64_t space; /* 0: it has none any more, for it is ending */
} process_stat_t;

/* False when there is no such process or thread any more. */
bool process_stat(process_stat_t *stat, pid_t pid);
bool process_stat_of_thread(process_stat_t *stat, pid_t pid, pid_t tid);
/* By a descriptor of the file, which stays bound to the process when its number is used again. */
bool process_stat_at(process_stat_t *stat, int fd);

#endif
