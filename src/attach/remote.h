/* SPDX-License-Identifier: MIT */
/* The memory of another process, read by process_vm_readv: nothing in it is changed, every read can fail.
 *
 * What is read is kept by pages until remote_forget(): call that whenever the process may have run. Never more than
 * REMOTE_PAGES pages are kept. */
#ifndef LUAPULSE_ATTACH_REMOTE_H
#define LUAPULSE_ATTACH_REMOTE_H

#include <stddef.h>
#include <sys/types.h>

#include "walk/memory.h"

enum { REMOTE_PAGE = 4096, REMOTE_PAGES = 256 };

typedef struct {
  walk_memory_t memory; /* first */
  pid_t pid;
  uint64_t pages[REMOTE_PAGES]; /* number of the page that is kept, 0: none */
  uint8_t bytes[REMOTE_PAGES][REMOTE_PAGE];
} remote_t;

/* Whether so many bytes may lie there, in any process: the rest is none's memory. */
static inline bool remote_may_be(uint64_t from, uint64_t len) {
  const uint64_t lowest = 65536,
                 highest = (uint64_t)1 << 56; /* above any user space: arm64 may have 52 bits */
  return from >= lowest && len <= highest && from <= highest - len;
}

void remote_init(remote_t *remote, pid_t pid);
void remote_forget(remote_t *remote);
/* Past what is kept: for large pieces. Returns how many bytes from the beginning could be read; errno says why not all. */
size_t remote_copy(const remote_t *remote, void *to, uint64_t from, size_t len);

#endif
