/* SPDX-License-Identifier: MIT */
/* LuaJIT, seen from its allocator: the chunk that is being compiled, frames where they lie. The thread stands still there
 * (walk_t.calm). */
#include "walk/family_luajit.h"

/* A value is a reference with the complement of its type above it: 47 bits of 64 (GC64), or 32 (GC32). */
static bool is_object(const walk_t *walk, uint64_t value, uint32_t type) {
  return ~value >> (two_slots(walk) ? 47 : 32) == type;
}
static uint64_t object_of(const walk_t *walk, uint64_t value) {
  return value & (((uint64_t)1 << (two_slots(walk) ? 47 : 32)) - 1);
}

/* The parser runs in a protected C call, whose frame tells how high the stack was; there it puts the chunk's name, a table
 * above it. */
uint64_t luajit_parsing(walk_t *walk, const walk_state_t *state) {
  const layout_luajit_t *l = &walk->layout->luajit;
  uint64_t slots[2], slot;
  int32_t results;
  if (!walk_read(walk->memory, &results, state->place + l->cframe_results, sizeof results, WALK_GUESS) ||
      results >= 0)
    return 0;
  slot = state->stack + (uint64_t)(-(int64_t)results);
  if (slot < state->stack || slot + sizeof slots > state->stack_end || (slot & (SLOT - 1)) != 0) return 0;
  if (!walk_read(walk->memory, slots, slot, sizeof slots, WALK_GUESS)) return 0;
  bool is_name = is_object(walk, slots[0], TYPE_STRING) && is_object(walk, slots[1], TYPE_TABLE);
  return is_name ? object_of(walk, slots[0]) : 0;
}

void luajit_link(const walk_t *walk, const walk_state_t *state, uint64_t place, walk_link_t *out) {
  const uint64_t *f = (const uint64_t *)(uintptr_t)(state->stack + place);
  bool wide = two_slots(walk);
  *out = (walk_link_t){
      .place = place, .function = object_of(walk, wide ? f[-1] : f[0]), .link = wide ? f[0] : f[0] >> 32};
  if ((out->link & LINK_TYPE_P) == LINK_CONT) out->continuation = wide ? f[-2] : f[-1] >> 32;
}

uint64_t luajit_caller(walk_t *walk, const walk_state_t *state, const walk_link_t *link) {
  int64_t word = two_slots(walk) ? (int64_t)link->link : (int32_t)(uint32_t)link->link;
  uint64_t caller = luajit_caller_of(walk, state->stack + link->place, word, WALK_LIVE);
  return caller > bottom_of(walk, state) ? caller - state->stack : 0;
}

void luajit_keep_link(walk_t *walk, const walk_state_t *state, uint64_t f) {
  if (walk->links == NULL || walk->link_count == WALK_MAX_FRAMES) {
    walk->links_unsure = true;
    return;
  }
  walk_link_t *link = &walk->links[walk->link_count++];
  luajit_link(walk, state, f - state->stack, link);
  link->frames = walk->frame_count;
}

uint64_t luajit_top(walk_t *walk, const walk_state_t *state) {
  luajit_find_tops(walk, state);
  return luajit_is_base(walk, state, walk->tops[0].base) ? walk->tops[0].base : 0;
}

bool luajit_frames_above(walk_t *walk, const walk_state_t *state, uint64_t place) {
  walk->frame_count = walk->link_count = 0;
  walk->truncated = walk->collector_marked = walk->links_unsure = false;
  luajit_expect(walk, state);
  luajit_find_tops(walk, state);
  return walk->tops[0].base != 0 &&
         luajit_walk_from(walk, state, &walk->tops[0], true, state->stack + place) == WALK_OK &&
         !walk->truncated;
}
