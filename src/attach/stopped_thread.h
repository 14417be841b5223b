/* SPDX-License-Identifier: MIT */
/* One thread held still by ptrace (SEIZE, INTERRUPT), and let go.
 *
 * No signal is sent to it and none is lost: one that arrives while it is being stopped is delivered when it is let go. If this program
 * ends meanwhile, however it does, the kernel lets it go. What does not stop at once (uninterruptible sleep) is not waited for for
 * long: it is let go when it does stop, by stopped_threads_settle().
 *
 * For one thread of this program: ptrace knows its tracer by thread. Waiting is shortest with SIGCHLD blocked. */
#ifndef LUAPULSE_ATTACH_STOPPED_THREAD_H
#define LUAPULSE_ATTACH_STOPPED_THREAD_H

#include "attach/process_stat.h"
#include "walk/walk.h"

enum { STOPPED_NAME = PROCESS_NAME };

typedef struct {
  pid_t tid;
  char name[STOPPED_NAME]; /* as the thread calls itself; "" when it cannot be read */
  char state;              /* of the scheduler, before it was stopped: R, S, D, T …; '?' */
  bool stopped;            /* registers are known; false: it did not stop in time */
  bool held;               /* it stands still now */
  bool asked_before;       /* and had not stopped until now */
  int signal;              /* to be delivered when it is let go, 0: none */
  walk_registers_t registers;
} stopped_thread_t;

/* Asks thread->tid to stop. False with the kernel's errno when it cannot be traced: ESRCH, it is gone; EPERM, also when it is ending or
 * has another tracer. */
bool stopped_thread_ask(stopped_thread_t *thread, int *error);
typedef enum { THREAD_RUNS, THREAD_STOPPED, THREAD_GONE } thread_answer_t;
/* What has come of it by now. When it has stopped, its registers are read. */
thread_answer_t stopped_thread_check(stopped_thread_t *thread);
/* Waits for that, so many nanoseconds at most. */
thread_answer_t stopped_thread_await(stopped_thread_t *thread, int64_t patience);
/* Lets it go; if it has not stopped yet, as soon as it does. */
void stopped_thread_release(stopped_thread_t *thread);

/* Lets go what has come to a stop after it was given up; to be called now and then by a program that runs on, for until then it stands still.
 * True when there is more that has not stopped yet. */
bool stopped_threads_settle(void);

/* Sleeps until a thread may have stopped, or so long. */
void stopped_threads_pause(int64_t ns);

#endif
