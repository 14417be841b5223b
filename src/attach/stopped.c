/* SPDX-License-Identifier: MIT */
/* Stopping a process; see stopped.h. */
#include "attach/stopped.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "attach/clock.h"
#include "profile/mem.h"

enum {
  PASSES = 16,         /* over the list of threads, for those that were started meanwhile */
  PATIENCE_MS = 1000,  /* for threads that do not stop at once … */
  SLEEPERS_MS = 30,    /* … and for those in uninterruptible sleep: most disks answer by then */
  POLL_NS = 20 * 1000, /* between looks, at first */
  MOST_POLL_NS = 1000000
};

static void look_at(pid_t pid, stopped_thread_t *thread) {
  process_stat_t stat;
  bool known = process_stat_of_thread(&stat, pid, thread->tid);
  thread->state = known ? stat.state : '?';
  if (known) snprintf(thread->name, sizeof thread->name, "%s", stat.name);
}

static void drop(stopped_t *stopped, size_t i) {
  stopped->threads[i] = stopped->threads[--stopped->count];
}

static bool any_held(const stopped_t *stopped) {
  for (size_t i = 0; i < stopped->count; i++)
    if (stopped->threads[i].held) return true;
  return false;
}

/* It may wake at once or in an hour. If others stand still meanwhile, it is waited for a little; and not once more at each hold. */
static bool sleeps_on(const stopped_t *stopped, const stopped_thread_t *thread, int64_t now) {
  process_stat_t stat;
  bool wait_on = now < stopped->since + (int64_t)SLEEPERS_MS * 1000000 || !any_held(stopped);
  if (wait_on && !thread->asked_before) return false;
  return process_stat_of_thread(&stat, stopped->pid, thread->tid) && stat.state == 'D';
}

/* Waits until those from `first` on have stopped, or patience ends. */
static void await(stopped_t *stopped, size_t first) {
  int64_t now = clock_now(), end = now + (int64_t)PATIENCE_MS * 1000000, pause = POLL_NS;
  for (bool waiting = true; waiting; now = clock_now()) {
    waiting = false;
    for (size_t i = first; i < stopped->count;) {
      stopped_thread_t *thread = &stopped->threads[i];
      thread_answer_t answer = thread->held ? THREAD_STOPPED : stopped_thread_check(thread);
      waiting |= answer == THREAD_RUNS && !sleeps_on(stopped, thread, now);
      if (answer == THREAD_GONE)
        drop(stopped, i);
      else
        i++;
    }
    if (waiting && now > end) return;
    if (waiting) stopped_threads_pause(pause);
    if (pause < MOST_POLL_NS) pause += pause / 4;
  }
}

/* -- all threads --------------------------------------------------------------------------------------------------- */

static bool is_known(const stopped_t *stopped, pid_t tid) {
  for (size_t i = 0; i < stopped->count; i++)
    if (stopped->threads[i].tid == tid) return true;
  return false;
}

/* Asks one thread to stop. False when the process as a whole cannot be traced. */
static bool ask(stopped_t *stopped, pid_t tid, int *error) {
  stopped_thread_t thread = {.tid = tid};
  if (stopped->count == STOPPED_MAX_THREADS) {
    stopped->more = true;
    return true;
  }
  if (!mem_reserve((void **)&stopped->threads, &stopped->room, stopped->count + 1, sizeof thread)) {
    *error = ENOMEM;
    return false;
  }
  look_at(stopped->pid, &thread);
  if (!stopped_thread_ask(&thread, error)) {
    if (*error == EPERM) look_at(stopped->pid, &thread); /* one that is ending is refused, too */
    return *error == ESRCH || thread.state == 'Z' || thread.state == 'X';
  }
  stopped->threads[stopped->count++] = thread;
  return true;
}

/* Asks all threads that are new. False as above. */
static bool ask_all(stopped_t *stopped, int *error) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/task", (int)stopped->pid);
  DIR *folder = opendir(path);
  if (folder == NULL) {
    *error = errno == ENOENT ? ESRCH : errno;
    return false;
  }
  bool ok = true;
  for (const struct dirent *entry; ok && (entry = readdir(folder)) != NULL;) {
    pid_t tid = (pid_t)atoi(entry->d_name);
    if (tid > 0 && !is_known(stopped, tid)) ok = ask(stopped, tid, error);
  }
  closedir(folder);
  return ok;
}

bool stopped_begin(stopped_t *stopped, pid_t pid, int *error) {
  *stopped = (stopped_t){.pid = pid, .since = clock_now()};
  *error = 0;
  for (int pass = 0; pass < PASSES; pass++) {
    size_t before = stopped->count;
    if (!ask_all(stopped, error)) {
      await(stopped, 0);
      stopped_end(stopped);
      return false;
    }
    if (stopped->count == before) break;
    await(stopped, before);
  }
  if (stopped->count == 0) {
    if (*error == 0) *error = ESRCH;
    stopped_end(stopped);
    return false;
  }
  return true;
}

void stopped_end(stopped_t *stopped) {
  if (stopped->until != 0) return;
  for (size_t i = 0; i < stopped->count; i++) stopped_thread_release(&stopped->threads[i]);
  stopped->until = clock_now();
}

void stopped_free(stopped_t *stopped) {
  stopped_end(stopped);
  mem_free(stopped->threads);
  *stopped = (stopped_t){0};
}
