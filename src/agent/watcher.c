/* SPDX-License-Identifier: MIT */
/* The watcher; see watcher.h. Ordinary context, on its own thread, with all signals blocked. */
#include "agent/watcher.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "agent/lost.h"
#include "agent/thread_state.h"
#include "agent/time.h"
#include "agent/vm.h"
#include "agent/vm_index.h"
#include "agent/waiting.h"

enum { STACK_BYTES = 256 * 1024, LOOK_EVERY = 200000000 /* ns, for lost VMs */ };

static pthread_mutex_t control = PTHREAD_MUTEX_INITIALIZER; /* starting and ending */
static pthread_mutex_t sleeping = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t wake;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_t thread;
static pid_t owner; /* process that has the thread, 0: none has */
static bool ending;

/* -- the thread ---------------------------------------------------------------------------------------------------- */

static void fastest_wall(vm_t *vm, void *context) {
  unsigned *hz = context;
  if (vm->wall && vm->options.cpu_hz > *hz) *hz = vm->options.cpu_hz;
}

/* True when the time is over, false when the thread is to end. */
static bool sleep_for(uint64_t nanos) {
  uint64_t until = time_monotonic() + nanos;
  struct timespec when = {(time_t)(until / 1000000000u), (long)(until % 1000000000u)};
  pthread_mutex_lock(&sleeping);
  while (!ending && time_monotonic() < until) pthread_cond_timedwait(&wake, &sleeping, &when);
  bool go_on = !ending;
  pthread_mutex_unlock(&sleeping);
  return go_on;
}

static void *watch(void *unused) {
  (void)unused;
  random_t random = {time_monotonic() ^ (uint64_t)getpid()};
  uint64_t looked = time_monotonic();
  for (;;) {
    unsigned hz = 0;
    vm_index_each(&walked_vms, fastest_wall, &hz);
    if (!sleep_for(hz > 0 ? random_jitter(&random, 1000000000u / hz) : LOOK_EVERY)) break;
    if (hz > 0) waiting_count_all();
    uint64_t now = time_monotonic();
    if (now - looked < LOOK_EVERY) continue;
    looked = now;
    lost_look();
  }
  waiting_end();
  return NULL;
}

/* -- starting and ending -------------------------------------------------------------------------------------------- */

static void before_fork(void) {
  pthread_mutex_lock(&control);
  pthread_mutex_lock(&sleeping);
}

static void after_fork_parent(void) {
  pthread_mutex_unlock(&sleeping);
  pthread_mutex_unlock(&control);
}

static void make_wake(void) {
  pthread_condattr_t attributes;
  pthread_condattr_init(&attributes);
  pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  pthread_cond_init(&wake, &attributes);
  pthread_condattr_destroy(&attributes);
}

/* The copy of `wake` has the parent's thread waiting in it, which is not here: signals meant for ours would be kept for that one. */
static void after_fork_child(void) {
  make_wake();
  pthread_mutex_unlock(&sleeping);
  pthread_mutex_unlock(&control);
}

int watcher_guard_forks(void) {
  return pthread_atfork(before_fork, after_fork_parent, after_fork_child);
}

static int start(void) {
  sigset_t all, mask;
  pthread_attr_t attributes;
  sigfillset(&all);
  ending = false;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, STACK_BYTES);
  pthread_sigmask(SIG_SETMASK, &all, &mask); /* the thread inherits it: the host's signals are not for it */
  int error = pthread_create(&thread, &attributes, watch, NULL);
  pthread_sigmask(SIG_SETMASK, &mask, NULL);
  pthread_attr_destroy(&attributes);
  if (error == 0) {
    owner = getpid();
    pthread_setname_np(thread, "luapulse");
  }
  return error;
}

static void end(void) {
  pthread_mutex_lock(&sleeping);
  ending = true;
  pthread_cond_signal(&wake);
  pthread_mutex_unlock(&sleeping);
  pthread_join(thread, NULL);
  owner = 0;
}

bool watcher_adjust(bool wall, failure_t *failure) {
  pthread_once(&once, make_wake);
  pthread_mutex_lock(&control);
  bool there = owner == getpid(); /* a forked child has none of its parent's threads */
  int error = 0;
  if (there && vm_index_count(&walked_vms) == 0)
    end();
  else if (!there && vm_index_count(&walked_vms) > 0 && (wall || thread_count() > 1))
    error = start();
  pthread_mutex_unlock(&control);
  if (error == 0 || !wall) return true;
  return failure_set(failure, "no thread to count waiting with: %s; use cpu_clock = \"cpu\"",
                     strerror(error));
}
