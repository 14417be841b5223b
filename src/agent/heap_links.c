/* SPDX-License-Identifier: MIT */
/* LuaJIT's stack at the last allocation; see heap_links.h. */
#include "agent/heap_links.h"

#include <string.h>

#include "walk/family.h"

static bool is_same(const walk_link_t *a, const walk_link_t *b) {
  return a->place == b->place && a->function == b->function && a->link == b->link &&
         a->continuation == b->continuation;
}

/* The number of links of the coroutine i, from the root, that lie there unchanged; `state` is how it is now, `place` its
 * topmost. */
static uint32_t count_same(const heap_links_t *known, walk_t *walk, uint32_t i, const walk_state_t *state,
                           uint64_t place) {
  uint32_t begin = known->begins[i], end = i > 0 ? known->begins[i - 1] : known->count, at = end, same = 0;
  for (uint32_t steps = 0; place != 0 && steps < WALK_MAX_FRAMES; steps++) {
    walk_link_t now;
    luajit_link(walk, state, place, &now);
    while (at > begin && known->links[at - 1].place > place) at--;
    bool known_here = at > begin && known->links[at - 1].place == place;
    if (known_here && is_same(&known->links[at - 1], &now)) {
      if (same == 0) same = at;
      place = at - 1 > begin ? known->links[at - 2].place : 0;
      if (at - 1 == begin && luajit_caller(walk, state, &now) != 0) return 0;
    } else {
      same = 0;
      place = luajit_caller(walk, state, &now);
    }
  }
  return same;
}

/* Resumers stand where they stood, and so do their C frames. */
static bool stand_still(const heap_links_t *known, walk_t *walk) {
  for (uint32_t i = 1; i < walk->state_count; i++) {
    walk_state_t now;
    const walk_state_t *last = &walk->states[i];
    if (!luajit_state(walk, last->state, WALK_LIVE, &now) || now.place != last->place) return false;
    uint64_t place = now.call - now.stack - sizeof(uint64_t);
    if (count_same(known, walk, i, &now, place) != known->begins[i - 1]) return false;
  }
  return true;
}

/* Appends what the walk saw to the first `count` links, of which the first `frames` frames are. */
static bool append(heap_links_t *known, const walk_t *walk, uint32_t count, uint32_t frames) {
  uint32_t total = frames + walk->frame_count;
  if (count + walk->link_count > WALK_MAX_FRAMES || walk->links_unsure) return false;
  for (uint32_t i = walk->link_count; i > 0; i--) {
    walk_link_t *link = &known->links[count++];
    *link = known->seen[i - 1];
    link->frames = total - link->frames; /* those before it, from the leaf, are above */
  }
  known->count = count;
  return true;
}

bool heap_links_follow(heap_links_t *known, walk_t *walk, uint32_t *kept) {
  walk_state_t *running = &walk->states[0], now;
  if (known->count == 0 || !walk->last_is_alive || walk->state_count == 0) return false;
  if (luajit_current(walk, running->global) != running->state || luajit_finalizes(walk, running))
    return false;
  if (!luajit_state(walk, running->state, WALK_LIVE, &now)) return false;
  if (now.place < walk->registers.sp || now.place >= walk->stack_high) return false;
  /* a coroutine whose C frame lies elsewhere may have been resumed by another one; nobody resumes a main thread */
  if (now.state != walk->likely_main && now.place != running->place) return false;
  uint64_t top = luajit_top(walk, &now);
  if (top == 0 || !stand_still(known, walk)) return false;
  uint32_t same = count_same(known, walk, 0, &now, top - sizeof(uint64_t) - now.stack);
  /* the topmost of them has its pc in the link of the frame above, which is another: it is looked at again */
  if (same <= known->begins[0] + 1) return false;
  const walk_link_t *last = &known->links[same - 2];
  *kept = last->frames;
  walk->links = known->seen;
  *running = now; /* from here on it is this stack, whatever comes of it */
  bool ok = luajit_frames_above(walk, running, last->place) && append(known, walk, same - 1, *kept);
  walk->links = NULL;
  return ok && walk->frame_count > 0;
}

void heap_links_learn(heap_links_t *known, const walk_t *walk) {
  known->count = 0;
  if (walk->truncated || walk->collector_marked || walk->frame_count == 0) return;
  if (!append(known, walk, 0, 0)) known->count = 0;
  /* where each coroutine begins: the walk saw the innermost first, and places rise towards its leaf */
  uint32_t state = walk->state_count, at = 0;
  while (state > 0 && at < known->count) {
    known->begins[--state] = at++;
    while (at < known->count && known->links[at].place > known->links[at - 1].place) at++;
  }
  if (state > 0 || at < known->count) known->count = 0;
}
