/* SPDX-License-Identifier: MIT */
/* The heap's part of a live profile; see live_heap.h. Runs inside an allocator: no allocation, no locks, no stdio.
 *
 * What was in use at some past moment (at the peak, when the last collection ended) is wanted for every site, but a site
 * cannot be copied at each of those moments. So each site keeps its own copy, made when it first changes after the moment:
 * until then what it has now is what it had. */
#include "profile/live_heap.h"

#include "profile/live_region.h"

enum { FIRST_BLOCKS = 1024 };

const char *const heap_value_names[HEAP_VALUES] = {"alloc_objects", "alloc_space",  "inuse_objects",
                                                   "inuse_space",   "peak_objects", "peak_space"};

const char *heap_value_unit(int value) {
  return value % 2 == 0 ? "count" : "bytes";
}

int heap_value_count(live_heap_mode_t mode) {
  return mode == LIVE_HEAP_TRACED ? HEAP_VALUES : mode == LIVE_HEAP_SAMPLED ? HEAP_PEAK_OBJECTS : 0;
}

live_heap_totals_t *live_heap_totals(const live_t *live) {
  return &live->header->heap;
}

live_ref_t live_heap_site(live_t *live, live_ref_t node, live_ref_t labels) {
  live_ref_t cell = live_find_cell(live, node, labels);
  return cell != 0 ? cell : live->header->overflow_cell;
}

live_ref_t live_heap_overflow_site(const live_t *live) {
  return live->header->overflow_cell;
}

/* -- the set of blocks ------------------------------------------------------------------------------------- */

static uint32_t first_slot(uint64_t address, uint32_t room) {
  return (uint32_t)((address >> 3) * 0x9e3779b97f4a7c15u >> 32) & (room - 1);
}

static uint64_t address_of(const live_block_t *block) {
  return atomic_load_explicit(&block->address, memory_order_relaxed);
}

static live_block_t *blocks_of(const live_header_t *header) {
  return live_at(header, atomic_load_explicit(&header->blocks, memory_order_relaxed));
}

static uint32_t room_of(const live_header_t *header) {
  return atomic_load_explicit(&header->block_room, memory_order_relaxed);
}

static void put(live_block_t *blocks, uint32_t room, const live_block_t *block, uint64_t address) {
  uint32_t at = first_slot(address, room);
  while (address_of(&blocks[at]) != 0) at = (at + 1) & (room - 1);
  blocks[at].bytes = block->bytes;
  blocks[at].objects = block->objects;
  blocks[at].cell = block->cell;
  blocks[at].born = block->born;
  atomic_store_explicit(&blocks[at].address, address, memory_order_release);
}

/* The old table stays where it is, unused: the region only grows. All old ones together are smaller than the new one. */
static bool grow(live_t *live) {
  live_header_t *header = live->header;
  uint32_t room = room_of(header) > 0 ? 2 * room_of(header) : FIRST_BLOCKS;
  live_ref_t ref = room <= UINT32_MAX / 2 ? live_reserve(live, (size_t)room * sizeof(live_block_t)) : 0;
  if (ref == 0) return false;
  live_block_t *bigger = live_at(header, ref);
  for (uint32_t i = 0; i < room_of(header); i++) {
    const live_block_t *block = &blocks_of(header)[i];
    if (address_of(block) != 0) put(bigger, room, block, address_of(block));
  }
  atomic_store_explicit(&header->blocks, ref, memory_order_release);
  atomic_store_explicit(&header->block_room, room,
                        memory_order_release); /* a reader with the smaller one stays inside */
  return true;
}

static bool has_room(live_t *live) {
  const live_header_t *header = live->header;
  if (room_of(header) == 0 || header->block_count >= room_of(header) / 8 * 5) grow(live);
  return room_of(header) > 0 && header->block_count < room_of(header) / 8 * 7;
}

static live_block_t *find(const live_header_t *header, uint64_t address) {
  if (room_of(header) == 0) return NULL;
  live_block_t *blocks = blocks_of(header);
  for (uint32_t at = first_slot(address, room_of(header));; at = (at + 1) & (room_of(header) - 1)) {
    uint64_t found = address_of(&blocks[at]);
    if (found == address) return &blocks[at];
    if (found == 0) return NULL;
  }
}

/* What follows in the same run of slots moves up, so that no look-up ends early at the gap. */
static void take_out(live_header_t *header, live_block_t *block) {
  live_block_t *blocks = blocks_of(header);
  uint32_t mask = room_of(header) - 1, gap = (uint32_t)(block - blocks);
  for (uint32_t at = (gap + 1) & mask; address_of(&blocks[at]) != 0; at = (at + 1) & mask) {
    uint32_t home = first_slot(address_of(&blocks[at]), room_of(header));
    if (((at - home) & mask) < ((at - gap) & mask)) continue; /* it lies between its home and here */
    blocks[gap].bytes = blocks[at].bytes;
    blocks[gap].objects = blocks[at].objects;
    blocks[gap].cell = blocks[at].cell;
    blocks[gap].born = blocks[at].born;
    atomic_store_explicit(&blocks[gap].address, address_of(&blocks[at]), memory_order_release);
    gap = at;
  }
  atomic_store_explicit(&blocks[gap].address, 0, memory_order_release);
  header->block_count--;
  header->heap.live_blocks = header->block_count;
}

/* -- sites --------------------------------------------------------------------------------------------------- */

static uint64_t get(_Atomic uint64_t *value) {
  return atomic_load_explicit(value, memory_order_relaxed);
}

static void set(_Atomic uint64_t *value, uint64_t to) {
  atomic_store_explicit(value, to, memory_order_relaxed);
}

static void add(_Atomic uint64_t *value, uint64_t more) { /* there is one writer */
  set(value, get(value) + more);
}

/* Before what is in use at the site changes: keeps what readers may want to know of an earlier moment. */
static void keep(live_header_t *header, _Atomic uint64_t *values, _Atomic uint64_t *hidden) {
  live_heap_totals_t *heap = &header->heap;
  if (get(&hidden[HIDDEN_CYCLE]) != heap->gc_cycles) {
    for (int i = HIDDEN_YOUNG_OBJECTS; i <= HIDDEN_FREED_SPACE; i++) set(&hidden[i], 0);
    set(&hidden[HIDDEN_CYCLE], heap->gc_cycles);
  }
  if (get(&hidden[HIDDEN_CHANGED]) <= heap->peak_event) {
    set(&hidden[HIDDEN_PEAK_OBJECTS], get(&values[HEAP_INUSE_OBJECTS]));
    set(&hidden[HIDDEN_PEAK_SPACE], get(&values[HEAP_INUSE_SPACE]));
  }
  set(&hidden[HIDDEN_CHANGED], ++heap->event);
}

static live_cell_t *cell_at(const live_header_t *header, live_ref_t ref, _Atomic uint64_t **values,
                            _Atomic uint64_t **hidden) {
  live_cell_t *cell = live_at(header, ref);
  *values = cell->values + header->heap_first;
  *hidden = cell->values + header->value_count;
  return cell;
}

bool live_heap_add(live_t *live, live_ref_t site, uint64_t address, uint32_t objects, uint64_t bytes) {
  live_header_t *header = live->header;
  live_heap_totals_t *heap = &header->heap;
  _Atomic uint64_t *values, *hidden;
  cell_at(header, site, &values, &hidden);
  add(&values[HEAP_ALLOC_OBJECTS], objects);
  add(&values[HEAP_ALLOC_SPACE], bytes);
  bool may_follow = has_room(live);
  /* Here alone, so that a block that has neither a site nor room counts once. */
  if (!may_follow || site == header->overflow_cell) live_lose(live, LOSS_OVERFLOW, 1);
  if (!may_follow) return false;
  keep(header, values, hidden);
  live_block_t block = {.bytes = bytes, .objects = objects, .cell = site, .born = (uint32_t)heap->gc_cycles};
  put(blocks_of(header), room_of(header), &block, address);
  heap->live_blocks = ++header->block_count;
  add(&values[HEAP_INUSE_OBJECTS], objects);
  add(&values[HEAP_INUSE_SPACE], bytes);
  add(&hidden[HIDDEN_YOUNG_OBJECTS], objects);
  add(&hidden[HIDDEN_YOUNG_SPACE], bytes);
  heap->live_bytes += bytes;
  if (heap->live_bytes <= heap->peak_bytes) return true;
  heap->peak_bytes = heap->live_bytes;
  heap->peak_event = heap->event;
  return true;
}

bool live_heap_remove(live_t *live, uint64_t address) {
  live_header_t *header = live->header;
  live_heap_totals_t *heap = &header->heap;
  live_block_t *block = find(header, address);
  if (block == NULL) return false;
  _Atomic uint64_t *values, *hidden;
  cell_at(header, block->cell, &values, &hidden);
  keep(header, values, hidden);
  bool young = block->born == (uint32_t)heap->gc_cycles;
  add(&values[HEAP_INUSE_OBJECTS], -(uint64_t)block->objects);
  add(&values[HEAP_INUSE_SPACE], -block->bytes);
  add(&hidden[young ? HIDDEN_YOUNG_OBJECTS : HIDDEN_FREED_OBJECTS],
      young ? -(uint64_t)block->objects : block->objects);
  add(&hidden[young ? HIDDEN_YOUNG_SPACE : HIDDEN_FREED_SPACE], young ? -block->bytes : block->bytes);
  heap->live_bytes -= block->bytes;
  take_out(header, block);
  return true;
}

void live_heap_end_cycle(live_t *live) {
  live->header->heap.gc_cycles++;
}

void live_heap_take_back_cycle(live_t *live) {
  live_heap_totals_t *heap = &live->header->heap;
  if (heap->gc_cycles > 0) heap->gc_cycles--;
}

void live_heap_show_completed(live_t *live, bool completed) {
  live->header->completed_only = completed;
}
