/* SPDX-License-Identifier: MIT */
/* Reading another process; see remote.h. */
#include "attach/remote.h"

#include <string.h>
#include <sys/uio.h>

size_t remote_copy(const remote_t *remote, void *to, uint64_t from, size_t len) {
  if (!remote_may_be(from, len)) return 0;
  struct iovec local = {to, len}, there = {(void *)(uintptr_t)from, len};
  ssize_t got = process_vm_readv(remote->pid, &local, 1, &there, 1, 0);
  return got > 0 ? (size_t)got : 0;
}

static const uint8_t *page_of(remote_t *remote, uint64_t page) {
  size_t slot = page % REMOTE_PAGES;
  if (remote->pages[slot] == page) return remote->bytes[slot];
  remote->pages[slot] = 0;
  if (remote_copy(remote, remote->bytes[slot], page * REMOTE_PAGE, REMOTE_PAGE) != REMOTE_PAGE) return NULL;
  remote->pages[slot] = page;
  return remote->bytes[slot];
}

static bool read_remote(walk_memory_t *memory, void *to, uint64_t from, uint32_t len, walk_trust_t trust) {
  remote_t *remote = (remote_t *)memory; /* its first member */
  uint8_t *target = to;
  (void)trust; /* here a load is never plain */
  if (!remote_may_be(from, len)) return false;
  while (len > 0) {
    uint32_t at = (uint32_t)(from % REMOTE_PAGE), piece = REMOTE_PAGE - at < len ? REMOTE_PAGE - at : len;
    const uint8_t *page = page_of(remote, from / REMOTE_PAGE);
    if (page == NULL) return false;
    memcpy(target, page + at, piece);
    target += piece;
    from += piece;
    len -= piece;
  }
  return true;
}

void remote_forget(remote_t *remote) {
  memset(remote->pages, 0, sizeof remote->pages);
}

static void forget(walk_memory_t *memory) {
  remote_forget((remote_t *)memory); /* its first member */
}

void remote_init(remote_t *remote, pid_t pid) {
  remote->memory = (walk_memory_t){.read = read_remote, .forget = forget};
  remote->pid = pid;
  remote_forget(remote);
}
