/* SPDX-License-Identifier: MIT */
/* What another thread of this process is doing, as the kernel tells it: running, or waiting with its stack pointer where. */
#ifndef LUAPULSE_AGENT_THREAD_STATE_H
#define LUAPULSE_AGENT_THREAD_STATE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

typedef enum { THREAD_RUNNING, THREAD_WAITING, THREAD_ENDED } thread_activity_t;

typedef struct {
  thread_activity_t activity;
  uint64_t sp, pc;   /* of a waiting one */
  uint64_t cpu_time; /* ns; the same at two moments: it did not run between them */
} thread_state_t;

thread_state_t thread_state(pid_t tid);
/* True when it has not run since. */
bool thread_state_is(pid_t tid, const thread_state_t *state);

/* Where the native stack of the calling thread lies; both 0 when that cannot be told. Ordinary context. */
void thread_own_stack(uint64_t *low, uint64_t *high);

/* Calls visit for each thread of the process. */
void thread_each(void (*visit)(pid_t tid, void *context), void *context);
/* How many there are, 0 when it cannot be told. */
unsigned thread_count(void);

#endif
