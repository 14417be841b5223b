/* SPDX-License-Identifier: MIT */
/* The writer's side of a live profile. Runs in hooks and signal handlers: no malloc, no locks, no stdio. */
#include "profile/live.h"

#include <string.h>

#include "profile/intern.h"
#include "profile/live_table.h"

enum { CHARGE_STEP = 64 * 1024 }; /* the shared budget is asked in steps, not for each entry */

/* -- room ------------------------------------------------------------------------------------------------ */

live_ref_t live_reserve(live_t *live, size_t bytes) {
  live_header_t *header = live->header;
  uint64_t at = atomic_load_explicit(&header->used, memory_order_relaxed);
  uint64_t end = at + ((bytes + 7) & ~(uint64_t)7);
  if (bytes > header->size || end > header->size || end / 8 > UINT32_MAX) return 0; /* 32 bits of reference */
  while (end > header->charged) {
    size_t step = CHARGE_STEP;
    if (header->charged + step > header->size) step = (size_t)(header->size - header->charged);
    if (live->charge != NULL && !live->charge(live->charge_context, step)) return 0;
    header->charged += step;
  }
  atomic_store_explicit(&header->used, end, memory_order_relaxed);
  return (live_ref_t)(at / 8);
}

static live_ref_t first(const live_slot_t *slot) {
  return atomic_load_explicit(slot, memory_order_relaxed); /* the writer reads its own stores */
}

static void publish(live_slot_t *slot, live_ref_t ref) {
  atomic_store_explicit(slot, ref, memory_order_release); /* what `ref` names is complete: readers may look */
}

/* -- set-up ---------------------------------------------------------------------------------------------- */

void live_prepare(void *memory, size_t size) {
  live_header_t *header = memory;
  header->magic = LIVE_MAGIC;
  header->size = size;
  atomic_store(&header->state, LIVE_WAITING);
}

static uint32_t most_buckets(size_t size) {
  uint32_t count = 1024; /* about one bucket per 512 bytes: 64 K of them for 32 MiB */
  while (count < 65536 && (size_t)count * 512 < size) count *= 2;
  return count;
}

static size_t count_types(const live_setup_t *setup) {
  size_t count = 0;
  while (count < PROFILE_MAX_TYPES && setup->types[count].type[0] != '\0') count++;
  return count;
}

live_ref_t live_pseudo(live_t *live, const char *name) {
  live_function_t function = {.name = live_string(live, name, strlen(name)), .kind = LIVE_PSEUDO};
  return function.name == 0 ? 0 : live_function(live, &function);
}

static live_ref_t new_cell(live_t *live, live_ref_t node, live_ref_t labels) {
  live_header_t *header = live->header;
  size_t counters = (size_t)header->value_count + header->hidden_count;
  live_ref_t ref = live_reserve(live, sizeof(live_cell_t) + counters * sizeof(uint64_t));
  if (ref == 0) return 0;
  live_cell_t *cell = live_at(header, ref);
  cell->node = node;
  cell->labels = labels;
  cell->previous = first(&header->last_cell);
  live_table_add(header, LIVE_CELLS, ref, live_cell_hash(node, labels));
  publish(&header->last_cell, ref);
  return ref;
}

static void add_heap_types(live_header_t *header, live_heap_mode_t mode) {
  header->heap_mode = mode;
  header->heap_first = header->value_count;
  if (mode == LIVE_NO_HEAP) return;
  header->hidden_count = HIDDEN_COUNT;
  for (int i = 0; i < heap_value_count(mode) && header->value_count < PROFILE_MAX_TYPES; i++) {
    live_type_t *type = &header->types[header->value_count++];
    strncpy(type->type, heap_value_names[i], sizeof type->type - 1);
    strncpy(type->unit, heap_value_unit(i), sizeof type->unit - 1);
  }
}

bool live_init(live_t *live, void *memory, size_t size, const live_setup_t *setup) {
  live_header_t *header = memory;
  if (size < LIVE_MIN_BYTES) return false;
  live_prepare(memory, size);
  live->header = header;
  header->value_count = (uint32_t)count_types(setup);
  header->default_type = (uint32_t)setup->default_type;
  memcpy(header->types, setup->types, sizeof header->types);
  add_heap_types(header, setup->heap);
  header->period_type = setup->period_type;
  header->period = setup->period;
  header->time_nanos = setup->time_nanos;
  atomic_store(&header->used, (sizeof *header + 7) & ~(uint64_t)7);
  for (int kind = 0; kind < LIVE_TABLES; kind++)
    if (!live_table_init(live, (live_table_kind_t)kind, most_buckets(size))) return false;
  live_ref_t overflow = live_child(live, LIVE_ROOT, live_pseudo(live, "[overflow]"), 0);
  header->overflow_cell = overflow == 0 ? 0 : new_cell(live, overflow, 0);
  return header->overflow_cell != 0;
}

/* -- entries --------------------------------------------------------------------------------------------- */

live_ref_t live_string(live_t *live, const char *data, size_t len) {
  live_header_t *header = live->header;
  uint32_t hash = hash_bytes(data, len, 0);
  for (live_ref_t ref = live_table_first(header, LIVE_STRINGS, hash); ref != 0;) {
    live_string_t *string = live_at(header, ref);
    if (string->hash == hash && string->len == len && memcmp(string->bytes, data, len) == 0) return ref;
    ref = string->chain;
  }
  if (len > UINT32_MAX - sizeof(live_string_t) - 8) return 0;
  live_ref_t ref = live_reserve(live, sizeof(live_string_t) + len);
  if (ref == 0) return 0;
  live_string_t *string = live_at(header, ref);
  string->hash = hash;
  string->len = (uint32_t)len;
  memcpy(string->bytes, data, len);
  live_table_add(header, LIVE_STRINGS, ref, hash);
  return ref;
}

static bool same_place(const live_function_entry_t *entry, const live_function_t *function) {
  return entry->file == function->file && entry->line == function->line && entry->kind == function->kind &&
         function->kind == LIVE_LUA;
}

/* Lua functions are told apart by place and code, C functions by code (their address), so that a better name
 * found later renames, not splits. */
static bool same_function(const live_function_entry_t *entry, const live_function_t *function) {
  switch ((live_kind_t)function->kind) {
    case LIVE_LUA:
      return same_place(entry, function) && entry->last_line == function->last_line &&
             entry->code == function->code;
    case LIVE_C:
      return entry->kind == LIVE_C && entry->file == function->file && entry->code == function->code;
    case LIVE_PSEUDO:
      break;
  }
  return entry->kind == function->kind && first(&entry->name) == function->name;
}

text_t live_text(const live_t *live, live_ref_t string) {
  const live_string_t *entry = live_at(live->header, string);
  return (text_t){entry->bytes, entry->len};
}

live_ref_t live_function(live_t *live, const live_function_t *function) {
  live_header_t *header = live->header;
  uint32_t generation = 1, hash = live_function_hash(function);
  for (live_ref_t ref = live_table_first(header, LIVE_FUNCTIONS, hash); ref != 0;) {
    live_function_entry_t *entry = live_at(header, ref);
    if (same_function(entry, function)) return ref;
    if (same_place(entry, function) && entry->generation >= generation) generation = entry->generation + 1;
    ref = entry->chain;
  }
  live_ref_t ref = live_reserve(live, sizeof(live_function_entry_t));
  if (ref == 0) return 0;
  live_function_entry_t *entry = live_at(header, ref);
  atomic_store_explicit(&entry->name, function->name, memory_order_relaxed);
  entry->file = function->file;
  entry->line = function->line;
  entry->last_line = function->last_line;
  entry->code = function->code;
  entry->kind = function->kind;
  entry->generation = generation;
  live_table_add(header, LIVE_FUNCTIONS, ref, hash);
  return ref;
}

void live_rename(live_t *live, live_ref_t function, live_ref_t name, uint32_t rank) {
  live_function_entry_t *entry = live_at(live->header, function);
  if (name == 0 || rank <= entry->name_rank) return;
  entry->name_rank = rank;
  publish(&entry->name, name);
}

int32_t live_function_line(const live_t *live, live_ref_t function) {
  return ((live_function_entry_t *)live_at(live->header, function))->line;
}

uint32_t live_name_rank(const live_t *live, live_ref_t function) {
  return ((live_function_entry_t *)live_at(live->header, function))->name_rank;
}

live_ref_t live_child(live_t *live, live_ref_t parent, live_ref_t function, int32_t line) {
  live_header_t *header = live->header;
  if (function == 0) return 0;
  uint32_t hash = live_node_hash(parent, function, line);
  for (live_ref_t ref = live_table_first(header, LIVE_NODES, hash); ref != 0;) {
    live_node_t *node = live_at(header, ref);
    if (node->parent == parent && node->function == function && node->line == line) return ref;
    ref = node->chain;
  }
  live_ref_t ref = live_reserve(live, sizeof(live_node_t));
  if (ref == 0) return 0;
  *(live_node_t *)live_at(header, ref) = (live_node_t){.parent = parent, .function = function, .line = line};
  live_table_add(header, LIVE_NODES, ref, hash);
  return ref;
}

/* -- counters -------------------------------------------------------------------------------------------- */

static void count(live_header_t *header, live_ref_t ref, const uint64_t *values) {
  live_cell_t *cell = live_at(header, ref);
  for (uint32_t i = 0; i < header->value_count; i++)
    atomic_fetch_add_explicit(&cell->values[i], values[i], memory_order_relaxed);
}

live_ref_t live_find_cell(live_t *live, live_ref_t node, live_ref_t labels) {
  live_header_t *header = live->header;
  for (live_ref_t ref = live_table_first(header, LIVE_CELLS, live_cell_hash(node, labels)); ref != 0;) {
    live_cell_t *cell = live_at(header, ref);
    if (cell->node == node && cell->labels == labels) return ref;
    ref = cell->chain;
  }
  return new_cell(live, node, labels);
}

_Atomic uint64_t *live_overflow_values(live_t *live) {
  return ((live_cell_t *)live_at(live->header, live->header->overflow_cell))->values;
}

_Atomic uint64_t *live_values(live_t *live, live_ref_t node, live_ref_t labels) {
  live_ref_t ref = live_find_cell(live, node, labels);
  return ref != 0 ? ((live_cell_t *)live_at(live->header, ref))->values : live_overflow_values(live);
}

void live_add(live_t *live, live_ref_t node, live_ref_t labels, const uint64_t *values) {
  live_header_t *header = live->header;
  live_ref_t ref = live_find_cell(live, node, labels);
  if (ref != 0)
    count(header, ref, values);
  else
    live_add_overflow(live, values);
}

void live_add_overflow(live_t *live, const uint64_t *values) {
  count(live->header, live->header->overflow_cell, values);
  live_lose(live, LOSS_OVERFLOW, 1);
}

bool live_keep_events(live_t *live, uint32_t room) {
  live_ref_t ref = live_reserve(live, (size_t)room * sizeof(live_event_t));
  if (ref == 0) return false;
  live->header->events = ref;
  live->header->event_room = room;
  return true;
}

void live_event(live_t *live, live_ref_t function, uint32_t track, uint64_t start, uint64_t duration) {
  live_header_t *header = live->header;
  uint64_t count = atomic_load_explicit(&header->event_count, memory_order_relaxed);
  live_event_t *ring = live_at(header, header->events);
  if (header->event_room == 0) return;
  ring[count % header->event_room] = (live_event_t){start, duration, function, track};
  atomic_store_explicit(&header->event_count, count + 1, memory_order_release);
}

void live_lose(live_t *live, loss_t reason, uint64_t count_lost) {
  atomic_fetch_add_explicit(&live->header->losses[reason], count_lost, memory_order_relaxed);
}

void live_comment(live_t *live, const char *text) {
  size_t len = strlen(text);
  live_ref_t ref =
      live_reserve(live, sizeof(live_string_t) + len); /* not interned: comments are a list of their own */
  if (ref == 0) return;
  live_string_t *string = live_at(live->header, ref);
  string->len = (uint32_t)len;
  memcpy(string->bytes, text, len);
  string->next = first(&live->header->last_comment);
  publish(&live->header->last_comment, ref);
}

void live_set_program(live_t *live, const char *name) {
  live_ref_t ref = live_string(live, name, strlen(name));
  if (ref != 0) publish(&live->header->program, ref);
}

void live_set_state(live_t *live, live_state_t state) {
  atomic_store_explicit(&live->header->state, state, memory_order_release);
}

void live_set_duration(live_t *live, int64_t nanos) {
  atomic_store_explicit(&live->header->duration_nanos, nanos, memory_order_relaxed);
}

void live_refuse(void *memory, size_t size, const char *why) {
  live_header_t *header = memory;
  if (size < sizeof *header) return;
  live_prepare(memory, size);
  strncpy(header->refusal, why, sizeof header->refusal - 1);
  atomic_store_explicit(&header->state, LIVE_REFUSED, memory_order_release);
}
