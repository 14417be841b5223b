/* SPDX-License-Identifier: MIT */
/* Reading another process for a sample; see glance.h. */
#include "attach/glance.h"

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

/* What is read of one page. */
typedef struct {
  uint64_t first, end; /* pieces */
} part_t;

static void set_here(glance_t *glance, const part_t *part, uint64_t turn) {
  for (uint64_t piece = part->first; piece < part->end; piece++) {
    glance_slot_t *slot = &glance->slots[slot_of(piece)];
    if (slot->piece != piece) *slot = (glance_slot_t){.piece = piece, .place = GLANCE_LAST};
    slot->turn = turn;
  }
}

/* Takes the next pieces that lie in one page, which are in order. What lies between them is read along: to find the page again would take
 * longer. Their places are in one row, for there are as many as fill whole pages. */
static size_t take_part(const glance_known_t *pieces, size_t count, part_t *part) {
  enum { IN_PAGE = REMOTE_PAGE / GLANCE_PIECE };
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
    set_here(glance, &parts[i], 0); /* it is being written over */
  }
  for (size_t i = 0; i < count; i++) { /* with each part that fails */
    ssize_t got = process_vm_readv(glance->pid, &here[i], count - i, &there[i], count - i, 0);
    for (size_t left = got > 0 ? (size_t)got : 0; i < count && left >= here[i].iov_len; i++) {
      left -= here[i].iov_len;
      set_here(glance, &parts[i], glance->turn);
    }
  }
}

/* The page, and the one after it if that will be wanted, too. */
static bool fetch_missing(glance_t *glance, uint64_t piece, bool next_wanted) {
  enum { IN_PAGE = REMOTE_PAGE / GLANCE_PIECE };
  uint64_t page = piece / IN_PAGE * IN_PAGE;
  part_t parts[2] = {{page, page + IN_PAGE}, {page + IN_PAGE, page + IN_PAGE * 2}};
  bool next_missing = next_wanted && piece + 1 == parts[1].first && !is_here(glance, piece + 1);
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
  if (slot->used == glance->turn) return;
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

static void forget(walk_memory_t *memory) {
  ((glance_t *)memory)->turn++; /* its first member */
}

void glance_begin(glance_t *glance, pid_t pid, glance_last_t *last) {
  glance->memory = (walk_memory_t){.read = read_piecewise, .forget = forget};
  glance->pid = pid;
  glance->turn++;
  glance->last = last;
  grow_older(last);
  fetch_known(glance);
}
