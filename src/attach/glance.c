/* SPDX-License-Identifier: MIT */
/* Reading another process for a sample; see glance.h. */
#include "attach/glance.h"

#include <string.h>
#include <sys/uio.h>

#include "attach/remote.h"

enum { IN_PAGE = REMOTE_PAGE / GLANCE_PIECE };

/* Neighbours have places of their own, and so have words that are alike but for their upper half: what is read together with half a
 * pointer looks like another one. */
static size_t slot_of(uint64_t piece) {
  enum { HALF = ((uint64_t)1 << 32) / GLANCE_PIECE };
  return (piece + piece / HALF * 7 * IN_PAGE) % GLANCE_PIECES;
}

/* Whether it was asked for in this glance. */
static bool is_answered(const glance_t *glance, uint64_t piece) {
  const glance_slot_t *slot = &glance->slots[slot_of(piece)];
  return slot->piece == piece && slot->turn == glance->turn;
}

static bool is_here(const glance_t *glance, uint64_t piece) {
  return is_answered(glance, piece) && !glance->slots[slot_of(piece)].gone;
}

/* What is read of one page. */
typedef struct {
  uint64_t first, end; /* pieces */
} part_t;

static void set_answered(glance_t *glance, const part_t *part, uint64_t turn, bool gone) {
  for (uint64_t piece = part->first; piece < part->end; piece++) {
    glance_slot_t *slot = &glance->slots[slot_of(piece)];
    if (slot->piece != piece) *slot = (glance_slot_t){.piece = piece, .place = GLANCE_LAST};
    slot->turn = turn;
    slot->gone = gone;
  }
}

/* Takes the next pieces that lie in one page, which are in order. What lies between them is read along: to find the page again would take
 * longer. Their places are in one row, for there are as many as fill whole pages. */
static size_t take_part(const glance_known_t *pieces, size_t count, part_t *part) {
  size_t taken = 1;
  while (taken < count && pieces[taken].piece / IN_PAGE == pieces[0].piece / IN_PAGE) taken++;
  *part = (part_t){pieces[0].piece, pieces[taken - 1].piece + 1};
  return taken;
}

/* One call for all of them; again for what comes after a page that cannot be read: at that the kernel ends. */
static void fetch(glance_t *glance, const part_t *parts, size_t count) {
  struct iovec here[GLANCE_LAST], there[GLANCE_LAST];
  for (size_t i = 0; i < count; i++) {
    size_t len = (size_t)(parts[i].end - parts[i].first) * GLANCE_PIECE;
    here[i] = (struct iovec){glance->bytes[slot_of(parts[i].first)], len};
    there[i] = (struct iovec){(void *)(uintptr_t)(parts[i].first * GLANCE_PIECE), len};
    set_answered(glance, &parts[i], 0, false); /* it is being written over */
  }
  for (size_t i = 0; i < count; i++) { /* with each part that fails */
    ssize_t got = process_vm_readv(glance->pid, &here[i], count - i, &there[i], count - i, 0);
    for (size_t left = got > 0 ? (size_t)got : 0; i < count && left >= here[i].iov_len; i++) {
      left -= here[i].iov_len;
      set_answered(glance, &parts[i], glance->turn, false);
    }
    if (i < count) set_answered(glance, &parts[i], glance->turn, true);
  }
}

/* The page, and the one after it if that will be wanted, too. */
static bool fetch_missing(glance_t *glance, uint64_t piece, bool next_wanted) {
  if (is_answered(glance, piece)) return false;
  uint64_t page = piece / IN_PAGE * IN_PAGE;
  part_t parts[2] = {{page, page + IN_PAGE}, {page + IN_PAGE, page + (uint64_t)2 * IN_PAGE}};
  bool next_missing = next_wanted && piece + 1 == parts[1].first && !is_answered(glance, piece + 1);
  fetch(glance, parts, next_missing ? 2 : 1);
  return is_here(glance, piece);
}

/* -- what is known of the last glances ------------------------------------------------------------------------------- */

/* A place for another one: the one that was fetched in vain for longest goes. Past the end: all are used. */
static uint32_t place_for_new(glance_last_t *last) {
  if (last->count < GLANCE_LAST) return last->count++;
  uint32_t place = 0;
  for (uint32_t i = 1; i < GLANCE_LAST; i++)
    if (last->known[i].idle > last->known[place].idle) place = i;
  return last->known[place].idle > 0 ? place : GLANCE_LAST;
}

static void note(glance_t *glance, uint64_t piece) {
  glance_slot_t *slot = &glance->slots[slot_of(piece)];
  if (slot->used == glance->turn || glance->guessing) return;
  slot->used = glance->turn;
  glance_last_t *last = glance->last;
  bool known = slot->place < GLANCE_LAST && last->known[slot->place].piece == piece;
  uint32_t place = known ? slot->place : place_for_new(last);
  if (place < GLANCE_LAST) last->known[place] = (glance_known_t){piece, 0};
}

/* One glance older, without those that were of no use, and in order, which they are but for the new ones. */
static void grow_older(glance_last_t *last) {
  uint32_t kept = 0;
  for (uint32_t i = 0; i < last->count; i++) {
    glance_known_t known = last->known[i];
    if (++known.idle > GLANCE_IDLE) continue;
    uint32_t at = kept++;
    for (; at > 0 && last->known[at - 1].piece > known.piece; at--) last->known[at] = last->known[at - 1];
    last->known[at] = known;
  }
  last->count = kept;
}

static void fetch_known(glance_t *glance) {
  part_t parts[GLANCE_LAST];
  glance_last_t *last = glance->last;
  size_t count = 0;
  for (size_t i = 0; i < last->count; count++)
    i += take_part(&last->known[i], last->count - i, &parts[count]);
  if (count > 0) fetch(glance, parts, count);
  for (uint32_t i = 0; i < last->count; i++) {
    glance_slot_t *slot = &glance->slots[slot_of(last->known[i].piece)];
    if (is_here(glance, last->known[i].piece))
      slot->place = i;
    else
      last->known[i].idle = GLANCE_IDLE; /* it is gone, or has no place of its own */
  }
}

/* -- the walk's reads ------------------------------------------------------------------------------------------------------ */

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

/* From the highest down: what leads nowhere is mostly low, and behind it the kernel has to be asked again. */
static void sort(uint64_t *sorted, const uint64_t *addresses, uint32_t count) {
  for (uint32_t i = 0; i < count; i++) {
    uint32_t at = i;
    for (; at > 0 && sorted[at - 1] < addresses[i]; at--) sorted[at] = sorted[at - 1];
    sorted[at] = addresses[i];
  }
}

/* Of guesses only what is wanted is fetched, by one call, and nothing of it the next time: most lead to something else. */
static void foresee(walk_memory_t *memory, const uint64_t *addresses, uint32_t count, uint32_t len) {
  glance_t *glance = (glance_t *)memory; /* its first member */
  uint64_t sorted[WALK_FORESEEN], lowest = UINT64_MAX;
  part_t parts[2 * WALK_FORESEEN];
  size_t used = 0;
  glance->guessing = count > 0;
  if (count > WALK_FORESEEN || len > GLANCE_PIECE) return; /* more than two pieces each */
  sort(sorted, addresses, count);
  for (uint32_t i = 0; i < count; i++) {
    if (!remote_may_be(sorted[i], len)) continue;
    uint64_t first = sorted[i] / GLANCE_PIECE, end = (sorted[i] + len - 1) / GLANCE_PIECE + 1;
    for (uint64_t piece = end < lowest ? end : lowest; piece-- > first;) {
      if (is_answered(glance, piece)) continue;
      if (used > 0 && parts[used - 1].first == piece + 1 && (piece + 1) % IN_PAGE != 0)
        parts[used - 1].first = piece;
      else
        parts[used++] = (part_t){piece, piece + 1};
    }
    if (first < lowest) lowest = first;
  }
  if (used > 0) fetch(glance, parts, used);
}

static void forget(walk_memory_t *memory) {
  ((glance_t *)memory)->turn++; /* its first member */
}

void glance_begin(glance_t *glance, pid_t pid, glance_last_t *last) {
  glance->memory = (walk_memory_t){.read = read_piecewise, .foresee = foresee, .forget = forget};
  glance->pid = pid;
  glance->turn++;
  glance->guessing = false;
  glance->last = last;
  grow_older(last);
  fetch_known(glance);
}
