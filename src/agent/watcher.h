/* SPDX-License-Identifier: MIT */
/* The profiler's own thread. It is there while a VM is profiled on the wall clock, whose waiting it counts, or while a
 * profiled VM might move between threads of the host: where the host has no other thread and no wall clock is asked for,
 * there is none (a second thread makes the C library's heap slower).
 *
 * It never signals anybody: a blocked thread is looked at from here, with every read through the kernel, and its sample
 * counts only if the thread has not run meanwhile. */
#ifndef LUAPULSE_AGENT_WATCHER_H
#define LUAPULSE_AGENT_WATCHER_H

#include <stdbool.h>

#include "profile/failure.h"

/* A VM has come or gone: starts the thread, or ends it, as needed. False when it is needed for the wall clock (`wall`) and
 * cannot be had. */
bool watcher_adjust(bool wall, failure_t *failure);

int watcher_guard_forks(void); /* errno or 0; see fork_guard.h */

#endif
