/* SPDX-License-Identifier: MIT */
/* The process's break; see process_break.h. */
#include "agent/process_break.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BRK_BYTES = 128 }; /* brk() of any C library is shorter */

static _Atomic uint64_t start; /* 0: not known */

/* The 47th word of /proc/self/stat, of which the second may have spaces in its parentheses. */
static uint64_t start_of(char *stat) {
  enum { FIRST_WORD = 2, START_WORD = 47 };
  char *at = strrchr(stat, ')');
  for (int word = FIRST_WORD; at != NULL && word < START_WORD; word++) at = strchr(at + 1, ' ');
  return at != NULL ? strtoull(at, NULL, 10) : 0;
}

void process_break_learn(void) {
  char stat[1024];
  if (atomic_load(&start) != 0) return;
  int fd = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return;
  ssize_t len = read(fd, stat, sizeof stat - 1);
  close(fd);
  if (len <= 0) return;
  stat[len] = '\0';
  atomic_store(&start, start_of(stat));
}

/* A signal that comes while brk() makes it smaller is handled when the system call returns, before the C library has noted that. */
static bool is_being_set(uint64_t pc) {
  uint64_t code = (uint64_t)(uintptr_t)brk;
  return pc >= code && pc < code + BRK_BYTES;
}

void process_break_span(uint64_t pc, uint64_t *low, uint64_t *high) {
  uint64_t first = atomic_load_explicit(&start, memory_order_relaxed);
  bool known = first != 0 && !is_being_set(pc);
  *low = known ? first : 0;
  *high = known ? (uint64_t)(uintptr_t)sbrk(0) : 0; /* only reads a variable; musl makes a system call */
}
