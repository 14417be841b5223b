/* SPDX-License-Identifier: MIT */
/* Locks around fork; see fork_guard.h. */
#include "agent/fork_guard.h"

#include <pthread.h>
#include <stddef.h>

#include "agent/heap.h"
#include "agent/ticker.h"
#include "agent/trace.h"
#include "agent/walk_setup.h"
#include "agent/walker.h"
#include "agent/watcher.h"

static int error;

/* What is registered last is called first before a fork: locks are taken in the reverse of this order, which is that in which
 * they are taken within each other elsewhere. */
static void guard(void) {
  static int (*const guards[])(void) = {ticker_guard_forks,     walker_guard_forks, watcher_guard_forks,
                                        walk_setup_guard_forks, trace_guard_forks,  heap_guard_forks};
  for (size_t i = 0; i < sizeof guards / sizeof guards[0] && error == 0; i++) error = guards[i]();
}

int fork_guard_prepare(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, guard);
  return error;
}

__attribute__((constructor)) static void when_loaded(void) {
  fork_guard_prepare();
}
