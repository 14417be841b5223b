/* SPDX-License-Identifier: MIT */
/* What has survived collections; see live_survivors.h. */
#include "profile/live_survivors.h"

#include <string.h>

#include "profile/live_region.h"
#include "profile/mem.h"

static size_t first_slot(const survivors_t *s, live_ref_t site, uint32_t class) {
  uint64_t key = (uint64_t)site << 8 | class;
  return (size_t)(key * 0x9e3779b97f4a7c15u >> 32) & (s->room - 1);
}

static survivor_t *slot_of(const survivors_t *s, live_ref_t site, uint32_t class) {
  size_t at = first_slot(s, site, class);
  while (s->slots[at].site != 0 && (s->slots[at].site != site || s->slots[at].class != class))
    at = (at + 1) & (s->room - 1);
  return &s->slots[at];
}

static bool make_room(survivors_t *s) {
  if (2 * (s->used + 2) <= s->room) return true;
  survivors_t bigger = {.room = s->room > 0 ? 2 * s->room : 1024, .used = s->used};
  bigger.slots = mem_alloc(bigger.room * sizeof *bigger.slots);
  if (bigger.slots == NULL) return false;
  memset(bigger.slots, 0, bigger.room * sizeof *bigger.slots);
  for (size_t i = 0; i < s->room; i++)
    if (s->slots[i].site != 0) *slot_of(&bigger, s->slots[i].site, s->slots[i].class) = s->slots[i];
  mem_free(s->slots);
  *s = bigger;
  return true;
}

static survivor_t *enter(survivors_t *s, live_ref_t site, uint32_t class) {
  survivor_t *slot = slot_of(s, site, class);
  if (slot->site == 0) {
    slot->site = site;
    slot->class = class;
    s->used++;
  }
  return slot;
}

static bool count(survivors_t *s, const live_block_t *block, uint32_t age) {
  uint32_t class = 31u - (uint32_t)__builtin_clz(age);
  if (!make_room(s)) return false;
  enter(s, block->cell, SURVIVOR_CLASSES)->objects |= (uint64_t)1 << class;
  survivor_t *slot = enter(s, block->cell, class);
  slot->objects += block->objects;
  slot->bytes += block->bytes;
  return true;
}

bool survivors_read(survivors_t *s, const live_header_t *header, uint64_t size, bool *corrupt) {
  uint32_t room =
      atomic_load_explicit(&header->block_room, memory_order_acquire); /* first: the table is then as large */
  live_ref_t ref = atomic_load_explicit(&header->blocks, memory_order_acquire);
  uint32_t now = (uint32_t) * (const volatile uint64_t *)&header->heap.gc_cycles;
  *s = (survivors_t){0};
  if (room == 0 || ref == 0) return true;
  if ((uint64_t)ref * 8 < sizeof *header ||
      (uint64_t)ref * 8 + (uint64_t)room * sizeof(live_block_t) > size) {
    *corrupt = true;
    return false;
  }
  const live_block_t *blocks = live_at(header, ref);
  for (uint32_t i = 0; i < room; i++) {
    if (atomic_load_explicit(&blocks[i].address, memory_order_acquire) == 0) continue;
    live_block_t block = {.bytes = blocks[i].bytes, .objects = blocks[i].objects, .cell = blocks[i].cell};
    uint32_t age = now - blocks[i].born;
    if (block.cell == 0 || age == 0 || age > UINT32_MAX / 2) continue;
    if (!count(s, &block, age)) return false;
  }
  return true;
}

void survivors_free(survivors_t *s) {
  mem_free(s->slots);
  *s = (survivors_t){0};
}

const survivor_t *survivors_find(const survivors_t *s, live_ref_t site, uint32_t class) {
  const survivor_t *slot = s->room > 0 ? slot_of(s, site, class) : NULL;
  return slot != NULL && slot->site != 0 ? slot : NULL;
}
