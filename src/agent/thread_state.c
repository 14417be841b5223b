/* SPDX-License-Identifier: MIT */
/* Other threads through /proc/self/task; see thread_state.h. Ordinary context. */
#include "agent/thread_state.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/time.h"

static ssize_t read_text(const char *path, char *text, size_t size) {
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return -1;
  ssize_t len = read(fd, text, size - 1);
  close(fd);
  if (len >= 0) text[len] = '\0';
  return len;
}

/* The file says "running", or the number of a system call with its arguments, or -1; the last two words are the stack
 * pointer and the program counter. A thread may always read it of its own process. */
thread_state_t thread_state(pid_t tid) {
  thread_state_t state = {.activity = THREAD_RUNNING};
  char path[64], text[256];
  snprintf(path, sizeof path, "/proc/self/task/%d/syscall", (int)tid);
  state.cpu_time = time_read(time_thread_clock(tid));
  if (read_text(path, text, sizeof text) <= 0) {
    snprintf(path, sizeof path, "/proc/self/task/%d", (int)tid);
    if (access(path, F_OK) != 0) state.activity = THREAD_ENDED;
    return state; /* exists and cannot be asked: as good as running, its ticks tell */
  }
  if (strncmp(text, "running", 7) == 0) return state;
  char *pc = strrchr(text, ' ');
  if (pc == NULL) return state;
  *pc = '\0';
  char *sp = strrchr(text, ' ');
  if (sp == NULL) return state;
  state.sp = strtoull(sp + 1, NULL, 16);
  state.pc = strtoull(pc + 1, NULL, 16);
  if (state.sp != 0) state.activity = THREAD_WAITING;
  return state;
}

bool thread_state_is(pid_t tid, const thread_state_t *before) {
  if (time_read(time_thread_clock(tid)) != before->cpu_time) return false;
  thread_state_t now = thread_state(tid);
  return now.activity == before->activity && now.sp == before->sp && now.cpu_time == before->cpu_time;
}

/* Not opendir, which would allocate from the host's heap. */
void thread_each(void (*visit)(pid_t tid, void *context), void *context) {
  int folder = open("/proc/self/task", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  char entries[2048] __attribute__((aligned(8)));
  ssize_t len;
  if (folder < 0) return;
  while ((len = getdents64(folder, entries, sizeof entries)) > 0) {
    for (ssize_t at = 0; at < len;) {
      const struct dirent64 *entry = (const struct dirent64 *)(const void *)(entries + at);
      pid_t tid = (pid_t)atoi(entry->d_name);
      if (tid > 0) visit(tid, context);
      at += entry->d_reclen;
    }
  }
  close(folder);
}

static void count_one(pid_t tid, void *context) {
  (void)tid;
  ++*(unsigned *)context;
}

unsigned thread_count(void) {
  unsigned count = 0;
  thread_each(count_one, &count);
  return count;
}

void thread_own_stack(uint64_t *low, uint64_t *high) {
  pthread_attr_t attributes;
  void *address;
  size_t size;
  *low = *high = 0;
  if (pthread_getattr_np(pthread_self(), &attributes) != 0) return;
  if (pthread_attr_getstack(&attributes, &address, &size) == 0) {
    *low = (uint64_t)(uintptr_t)address;
    *high = *low + size;
  }
  pthread_attr_destroy(&attributes);
}
