/* SPDX-License-Identifier: MIT */
/* A process as a target: whether it can be read at all, and if not, what is missing, in words. */
#ifndef LUAPULSE_ATTACH_PROCESS_H
#define LUAPULSE_ATTACH_PROCESS_H

#include <sys/types.h>

#include "profile/failure.h"

typedef struct {
  pid_t pid;
  pid_t inner;   /* its number within its own PID namespace, which a container calls it by; else the same */
  char name[32]; /* of its first thread */
  char command[256]; /* its arguments, separated by blanks, cut; of whatever bytes they are */
  char exe[512];     /* the program's file, as the kernel tells it; "" when it may not be asked */
  uid_t uid;
} process_t;

/* Looks at /proc. False with a message for what cannot be a target: no such process, a zombie, a thread of the kernel, a thread
 * that is no process, a 32-bit program, this program itself. Whether it may be read is not asked yet. */
bool process_look(process_t *process, pid_t pid, failure_t *failure);
/* The same number alone; 0 when there is no such process. */
pid_t process_inner(pid_t pid);
/* How messages end where root is all that is missing: whoever shows them goes on with the command, which may be longer than a message. */
#define PROCESS_AS_ROOT "run: sudo luapulse"
/* Why it could not be traced or read, from the kernel's errno. Always false. */
bool process_refused(const process_t *process, int error, failure_t *failure);

/* Of the processes that are to be read, those for which most is needed. */
typedef enum { WHOSE_CHILDREN /* of luapulse itself */, WHOSE_OWN, WHOSE_OTHERS } whose_t;
/* Why no BPF program can be loaded, and what more would be missing then. Always false. */
bool process_bpf_refused(whose_t whose, failure_t *failure);

/* Why a perf event may not be opened, likewise. */
bool process_perf_refused(failure_t *failure);

/* What profiling from outside needs, one finding per line into `line`: false after the last. `i` counts from 0. */
typedef struct {
  char text[256];
  bool missing; /* it stands in the way of something; the text says of what */
} requirement_t;
bool process_requirement(const process_t *process, int i, requirement_t *requirement);

#endif
