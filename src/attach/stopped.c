/* SPDX-License-Identifier: MIT */
/* Stopping a process; see stopped.h. */
#include "attach/stopped.h"

#include <dirent.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "attach/registers_ptrace.h"
#include "profile/mem.h"

enum {
  PASSES = 16,         /* over the list of threads, for those that were started meanwhile */
  PATIENCE_MS = 1000,  /* for threads that do not stop at once */
  POLL_NS = 20 * 1000, /* between looks, at first */
  MOST_POLL_NS = 1000000
};

static int64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* -- what /proc says of a thread ------------------------------------------------------------------------------ */

static void read_name_and_state(pid_t pid, stopped_thread_t *thread) {
  char path[64], line[256];
  thread->state = '?';
  snprintf(path, sizeof path, "/proc/%d/task/%d/stat", (int)pid, (int)thread->tid);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  ssize_t len = fd >= 0 ? read(fd, line, sizeof line - 1) : -1;
  if (fd >= 0) close(fd);
  if (len <= 0) return;
  line[len] = '\0';
  char *open_at = strchr(line, '('), *close_at = strrchr(line, ')'); /* a name may hold either */
  if (open_at == NULL || close_at == NULL || close_at < open_at) return;
  *close_at = '\0';
  snprintf(thread->name, sizeof thread->name, "%s", open_at + 1);
  if (close_at + 2 < line + len) thread->state = close_at[2];
}

/* -- one thread -------------------------------------------------------------------------------------------------- */

/* True when the wait was answered: stopped, or gone (*gone). */
static bool take_stop(stopped_thread_t *thread, bool *gone) {
  int status;
  pid_t got = waitpid(thread->tid, &status, __WALL | WNOHANG);
  if (got == 0) return false;
  *gone = got < 0 || !WIFSTOPPED(status);
  if (*gone) return true;
  thread->stopped = true;
  /* a stop of ours is an event; anything else is a signal on its way to the thread */
  if (status >> 16 == 0) thread->signal = WSTOPSIG(status);
  return true;
}

static void drop(stopped_t *stopped, size_t i) {
  stopped->threads[i] = stopped->threads[--stopped->count];
}

/* Waits until those from `first` on have stopped, or patience ends. */
static void await(stopped_t *stopped, size_t first) {
  int64_t end = now() + (int64_t)PATIENCE_MS * 1000000;
  long pause = POLL_NS;
  for (bool waiting = true; waiting;) {
    waiting = false;
    for (size_t i = first; i < stopped->count;) {
      bool gone = false;
      if (!stopped->threads[i].stopped && !take_stop(&stopped->threads[i], &gone)) waiting = true;
      if (gone)
        drop(stopped, i);
      else
        i++;
    }
    if (waiting && now() > end) return;
    struct timespec t = {0, pause};
    if (waiting) nanosleep(&t, NULL);
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
  read_name_and_state(stopped->pid, &thread);
  if (ptrace(PTRACE_SEIZE, tid, NULL, NULL) != 0) {
    *error = errno;
    if (errno == EPERM) read_name_and_state(stopped->pid, &thread); /* one that is ending is refused, too */
    return *error == ESRCH || thread.state == 'Z' || thread.state == 'X';
  }
  ptrace(PTRACE_INTERRUPT, tid, NULL, NULL); /* fails when it is gone: the wait says so */
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
  *stopped = (stopped_t){.pid = pid, .since = now()};
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
  for (size_t i = 0; i < stopped->count; i++) {
    stopped_thread_t *thread = &stopped->threads[i];
    if (thread->stopped) thread->stopped = registers_of_stopped(thread->tid, &thread->registers);
  }
  return true;
}

void stopped_end(stopped_t *stopped) {
  for (size_t i = 0; i < stopped->count; i++) {
    stopped_thread_t *thread = &stopped->threads[i];
    bool gone;
    if (!thread->stopped) take_stop(thread, &gone); /* it may have come to stop in the meantime */
    ptrace(PTRACE_DETACH, thread->tid, NULL, (void *)(intptr_t)thread->signal);
    thread->signal = 0;
  }
  if (stopped->until == 0) stopped->until = now();
}

void stopped_free(stopped_t *stopped) {
  stopped_end(stopped);
  mem_free(stopped->threads);
  *stopped = (stopped_t){0};
}
