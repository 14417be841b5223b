/* SPDX-License-Identifier: MIT */
/* Threads with signals that may be pending; see undrained.h. */
#include "agent/undrained.h"

#include <sys/syscall.h>
#include <unistd.h>

enum { MOST = 1024 }; /* as many as there are tickers */

static pid_t threads[MOST];
static unsigned count;

/* Forgets that thread, and those that are gone. */
void undrained_remove(pid_t tid) {
  unsigned kept = 0;
  for (unsigned i = 0; i < count; i++)
    if (threads[i] != tid && syscall(SYS_tgkill, getpid(), threads[i], 0) == 0) threads[kept++] = threads[i];
  count = kept;
}

void undrained_add(pid_t tid) {
  undrained_remove(tid);
  if (count < MOST) threads[count++] = tid;
}

bool undrained_any(void) {
  undrained_remove(0);
  return count > 0;
}

void undrained_clear(void) {
  count = 0;
}
