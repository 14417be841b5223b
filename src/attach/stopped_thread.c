/* SPDX-License-Identifier: MIT */
/* Stopping one thread; see stopped_thread.h. */
#include "attach/stopped_thread.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "attach/clock.h"
#include "attach/registers_ptrace.h"

enum {
  SOON_NS = 25 * 1000,
  POLL_NS = 200 * 1000, /* between looks, at first, where no signal tells of a stop */
  MOST_POLL_NS = 1000000,
  TOLD_NS = 10 * 1000000, /* … and where one does: each look costs as much as a stop */
  GIVEN_UP_MAX = 4096
};

/* Threads that were asked to stop and did not in time: traced still, to be let go when they do. */
static pid_t given_up[GIVEN_UP_MAX];
static size_t given_up_count;

static bool is_given_up(pid_t tid) {
  for (size_t i = 0; i < given_up_count; i++)
    if (given_up[i] == tid) return true;
  return false;
}

bool stopped_thread_ask(stopped_thread_t *thread, int *error) {
  if (ptrace(PTRACE_SEIZE, thread->tid, NULL, NULL) != 0) {
    int why = errno;
    thread->asked_before = why == EPERM && is_given_up(thread->tid);
    if (!thread->asked_before) {
      *error = why;
      return false;
    }
  }
  ptrace(PTRACE_INTERRUPT, thread->tid, NULL, NULL); /* fails when it is gone: the wait says so */
  return true;
}

/* Of a process, and not one of its other threads, which have the same parent. */
static bool is_first(pid_t tid) {
  return tgkill(tid, tid, 0) == 0 || errno != ESRCH;
}

/* The end of a child of this program is for who started it to be told: it is left to be waited for. That of any other thread is nobody's
 * but its tracer's, and as long as it is not taken the process has not ended. */
static void bury(pid_t tid) {
  process_stat_t stat;
  if (is_first(tid) && process_stat(&stat, tid) && stat.parent == getpid()) return;
  waitpid(tid, NULL, __WALL | WNOHANG);
}

/* Takes a stop, if it has come to one. */
static bool take_stop(stopped_thread_t *thread, bool *gone) {
  siginfo_t info = {.si_pid = 0};
  *gone = waitid(P_PID, (id_t)thread->tid, &info, WSTOPPED | WNOHANG | __WALL) != 0;
  if (*gone || info.si_pid == 0) return false;
  thread->held = true;
  /* a stop of ours is an event; anything else is a signal on its way to the thread */
  if (info.si_status >> 8 == 0) thread->signal = info.si_status;
  thread->stopped = registers_of_stopped(thread->tid, &thread->registers);
  return true;
}

thread_answer_t stopped_thread_check(stopped_thread_t *thread) {
  siginfo_t info = {.si_pid = 0};
  bool gone;
  if (waitid(P_PID, (id_t)thread->tid, &info, WEXITED | WSTOPPED | WNOHANG | WNOWAIT | __WALL) != 0)
    return THREAD_GONE;
  if (info.si_pid == 0) return THREAD_RUNS;
  if (info.si_code != CLD_TRAPPED && info.si_code != CLD_STOPPED) {
    bury(thread->tid);
    return THREAD_GONE;
  }
  return take_stop(thread, &gone) ? THREAD_STOPPED : THREAD_GONE; /* killed meanwhile */
}

void stopped_threads_pause(int64_t ns) {
  sigset_t child;
  struct timespec most = clock_timespec(ns);
  sigemptyset(&child);
  sigaddset(&child, SIGCHLD);
  sigtimedwait(&child, NULL, &most);
}

/* To fall asleep and be woken takes longer than a thread that runs on another processor takes to stop. */
static bool stops_at_once(stopped_thread_t *thread) {
  bool gone = false;
  for (int64_t end = clock_now() + SOON_NS; !gone && clock_now() < end;)
    if (take_stop(thread, &gone)) return true;
  return false;
}

/* Stops of what it traces are told a program unless it, or who started it, has said that it does not care. */
static bool is_told(void) {
  struct sigaction action;
  return sigaction(SIGCHLD, NULL, &action) == 0 && action.sa_handler != SIG_IGN &&
         (action.sa_flags & SA_NOCLDSTOP) == 0;
}

thread_answer_t stopped_thread_await(stopped_thread_t *thread, int64_t patience) {
  if (stops_at_once(thread)) return THREAD_STOPPED;
  int64_t end = clock_now() + patience, pause = is_told() ? TOLD_NS : POLL_NS;
  thread_answer_t answer;
  while ((answer = stopped_thread_check(thread)) == THREAD_RUNS && clock_now() < end) {
    stopped_threads_pause(pause);
    if (pause < MOST_POLL_NS) pause += pause / 4;
  }
  return answer;
}

/* False when the kernel does not let go of it: it is not in the stop that it was in, for it is being killed. */
static bool let_go(stopped_thread_t *thread) {
  bool ok = ptrace(PTRACE_DETACH, thread->tid, NULL, (void *)(intptr_t)thread->signal) == 0;
  thread->held = false;
  thread->signal = 0;
  return ok;
}

static void give_up(pid_t tid) {
  if (given_up_count < GIVEN_UP_MAX && !is_given_up(tid)) given_up[given_up_count++] = tid;
}

void stopped_thread_release(stopped_thread_t *thread) {
  if (!thread->held) { /* it may have come to stop in the meantime */
    thread_answer_t answer = stopped_thread_check(thread);
    if (answer == THREAD_RUNS) give_up(thread->tid);
    if (answer != THREAD_STOPPED) return;
  }
  if (!let_go(thread)) give_up(thread->tid);
}

bool stopped_threads_settle(void) {
  size_t kept = 0;
  for (size_t i = 0; i < given_up_count; i++) {
    stopped_thread_t thread = {.tid = given_up[i]};
    thread_answer_t answer = stopped_thread_check(&thread);
    if (answer == THREAD_RUNS || (answer == THREAD_STOPPED && !let_go(&thread)))
      given_up[kept++] = thread.tid;
  }
  given_up_count = kept;
  return kept > 0;
}
