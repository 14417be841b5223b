/* SPDX-License-Identifier: MIT */
/* A process held still: all its threads stopped by ptrace (SEIZE, INTERRUPT), their registers read.
 *
 * No signal is sent to it and none is lost: one that arrives while a thread is being stopped is delivered when it is let go. A
 * process that was stopped by job control stays so. If this program ends meanwhile, however it does, the kernel lets all go.
 * Limit: like any stop, this one may end a system call that is not restarted (epoll_wait, and others that signal(7) lists) with
 * EINTR.
 *
 * For the one thread that called stopped_begin(): ptrace knows its tracer by thread. */
#ifndef LUAPULSE_ATTACH_STOPPED_H
#define LUAPULSE_ATTACH_STOPPED_H

#include "attach/stopped_thread.h"
#include "profile/failure.h"

enum { STOPPED_MAX_THREADS = 4096 };

typedef struct {
  pid_t pid;
  stopped_thread_t *threads; /* by number, as they were met */
  size_t count, room;
  bool more;            /* there are more than STOPPED_MAX_THREADS: these run on */
  int64_t since, until; /* CLOCK_MONOTONIC, ns: how long it was held; until is 0 while it is */
} stopped_t;

/* Stops all threads. False when the process cannot be traced, with errno as the kernel gave it in *error (ESRCH: it is gone) and
 * nothing held. */
bool stopped_begin(stopped_t *stopped, pid_t pid, int *error);
/* Lets all threads go; the list stays for reading. May be called again. */
void stopped_end(stopped_t *stopped);
void stopped_free(stopped_t *stopped);

#endif
