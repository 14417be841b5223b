/* SPDX-License-Identifier: MIT */
/* Reading another process for a sample; see glance.h. */
#include "attach/glance.h"

#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

#include "attach/remote.h"

static size_t slot_of(uint64_t piece) {
  return piece % GLANCE_PIECES; /* neighbours have places of their own */
}

static bool is_here(const glance_t *glance, uint64_t piece) {
  const glance_slot_t *slot = &glance->slots[slot_of(piece)];
  return slot->piece == piece && slot->turn == glance->turn;
}

static int by_address(const void *a, const void *b) {
  uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return (x > y) - (x < y);
}

/* Whether a piece lies in the page of the one before it; then so many bytes are between them. */
static bool is_in_page_of_last(const uint64_t *pieces, size_t i, size_t *between) {
  enum { IN_PAGE = REMOTE_PAGE / GLANCE_PIECE };
  bool is = i > 0 && pieces[i] / IN_PAGE == pieces[i - 1] / IN_PAGE;
  *between = is ? (size_t)(pieces[i] - pieces[i - 1] - 1) * GLANCE_PIECE : 0;
  return is;
}

/* One call for all of them, which are sorted by it; what comes after the first that cannot be read does not come. A piece lies in one page:
 * it is read whole or not at all. What lies between those of a page is read along: to find the page again would take longer. */
static void fetch(glance_t *glance, uint64_t *pieces, size_t count) {
  static uint8_t nowhere[REMOTE_PAGE]; /* written by the kernel, never read */
  struct iovec here[2 * GLANCE_LAST], there[GLANCE_LAST];
  size_t into = 0, from = 0, between;
  qsort(pieces, count, sizeof *pieces, by_address);
  for (size_t i = 0; i < count; i++) {
    if (is_in_page_of_last(pieces, i, &between)) {
      if (between > 0) here[into++] = (struct iovec){nowhere, between};
      there[from - 1].iov_len += between + GLANCE_PIECE;
    } else {
      there[from++] = (struct iovec){(void *)(uintptr_t)(pieces[i] * GLANCE_PIECE), GLANCE_PIECE};
    }
    here[into++] = (struct iovec){glance->bytes[slot_of(pieces[i])], GLANCE_PIECE};
    glance->slots[slot_of(pieces[i])].turn = 0; /* it is being written over */
  }
  ssize_t got = process_vm_readv(glance->pid, here, into, there, from, 0);
  size_t left = got > 0 ? (size_t)got : 0;
  for (size_t i = 0; i < count; i++) {
    is_in_page_of_last(pieces, i, &between);
    if (left < between + GLANCE_PIECE) break;
    left -= between + GLANCE_PIECE;
    glance->slots[slot_of(pieces[i])] = (glance_slot_t){pieces[i], glance->turn, false};
  }
}

/* The piece, and the one after it if that will be wanted, too. */
static bool fetch_missing(glance_t *glance, uint64_t piece, bool next_wanted) {
  uint64_t pieces[2] = {piece, piece + 1};
  fetch(glance, pieces, next_wanted && !is_here(glance, piece + 1) ? 2 : 1);
  return is_here(glance, piece);
}

static void note(glance_t *glance, uint64_t piece) {
  glance_slot_t *slot = &glance->slots[slot_of(piece)];
  if (slot->used) return;
  slot->used = true;
  if (glance->last->count < GLANCE_LAST) glance->last->pieces[glance->last->count++] = piece;
}

static bool read_piecewise(walk_memory_t *memory, void *to, uint64_t from, uint32_t len, walk_trust_t trust) {
  glance_t *glance = (glance_t *)memory; /* its first member */
  uint8_t *target = to;
  (void)trust; /* here a load is never plain */
  if (!remote_may_be(from, len)) return false;
  while (len > 0) {
    uint64_t piece = from / GLANCE_PIECE;
    uint32_t at = (uint32_t)(from % GLANCE_PIECE), part = GLANCE_PIECE - at < len ? GLANCE_PIECE - at : len;
    if (!is_here(glance, piece) && !fetch_missing(glance, piece, part < len)) return false;
    memcpy(target, glance->bytes[slot_of(piece)] + at, part);
    note(glance, piece);
    target += part;
    from += part;
    len -= part;
  }
  return true;
}

static void forget(walk_memory_t *memory) {
  ((glance_t *)memory)->turn++; /* its first member */
}

void glance_begin(glance_t *glance, pid_t pid, glance_last_t *last) {
  glance_last_t before = *last;
  glance->memory = (walk_memory_t){.read = read_piecewise, .forget = forget};
  glance->pid = pid;
  glance->turn++;
  glance->last = last;
  last->count = 0;
  if (before.count > 0) fetch(glance, before.pieces, before.count);
}
