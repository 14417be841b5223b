/* SPDX-License-Identifier: MIT */
/* Memory mapped for the agent; see mapping.h. */
#include "agent/mapping.h"

#include <sys/mman.h>

#include "agent/seccomp.h"

enum { HUGE_PAGE = 2 << 20 };

/* Where the system gives huge pages to everybody, the first word of a table would take 2 MiB, zeroed in a signal handler, and more than is told.
 * Without such pages in the kernel this is refused, which is as good. */
static void as_it_is_touched(void *memory, size_t size) {
  if (size >= HUGE_PAGE && !seccomp_is_active()) madvise(memory, size, MADV_NOHUGEPAGE);
}

void *mapping_new(size_t size) {
  void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return NULL;
  as_it_is_touched(memory, size);
  return memory;
}

void mapping_end(void *memory, size_t size) {
  if (memory != NULL) munmap(memory, size);
}
