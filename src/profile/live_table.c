/* SPDX-License-Identifier: MIT */
/* The hash tables of a live profile; see live_table.h. */
#include "profile/live_table.h"

#include "profile/intern.h"

enum { FIRST_BUCKETS = 64 };

uint32_t live_function_hash(const live_function_t *function) {
  uint32_t key[4] = {function->kind, function->file, (uint32_t)function->line, 0};
  if (function->kind == LIVE_C) key[3] = function->code;
  if (function->kind == LIVE_PSEUDO) key[3] = function->name;
  return hash_bytes(key, sizeof key, 1);
}

/* The product's upper bits are the best mixed. */
static uint32_t mix(uint64_t one, uint64_t other) {
  uint64_t hash = (one ^ other * 0x9e3779b97f4a7c15u) * 0xd6e8feb86659fd93u;
  return (uint32_t)(hash >> 32 ^ hash >> 58);
}

uint32_t live_node_hash(live_ref_t parent, live_ref_t function, int32_t line) {
  return mix((uint64_t)parent << 32 | function, (uint32_t)line);
}

uint32_t live_cell_hash(live_ref_t node, live_ref_t labels) {
  return mix(node, labels);
}

static live_ref_t *chain_of(const live_header_t *header, live_table_kind_t kind, live_ref_t entry) {
  void *at = live_at(header, entry);
  switch (kind) {
    case LIVE_STRINGS:
      return &((live_string_t *)at)->chain;
    case LIVE_FUNCTIONS:
      return &((live_function_entry_t *)at)->chain;
    case LIVE_NODES:
      return &((live_node_t *)at)->chain;
    default:
      return &((live_cell_t *)at)->chain;
  }
}

/* A pseudo-function is found by its name, which is never replaced. */
static uint32_t hash_of_function(const live_function_entry_t *entry) {
  return live_function_hash(
      &(live_function_t){.name = atomic_load_explicit(&entry->name, memory_order_relaxed),
                         .file = entry->file,
                         .line = entry->line,
                         .code = entry->code,
                         .kind = entry->kind});
}

static uint32_t hash_of(const live_header_t *header, live_table_kind_t kind, live_ref_t entry) {
  const void *at = live_at(header, entry);
  switch (kind) {
    case LIVE_STRINGS:
      return ((const live_string_t *)at)->hash;
    case LIVE_FUNCTIONS:
      return hash_of_function(at);
    case LIVE_NODES: {
      const live_node_t *node = at;
      return live_node_hash(node->parent, node->function, node->line);
    }
    default: {
      const live_cell_t *cell = at;
      return live_cell_hash(cell->node, cell->labels);
    }
  }
}

bool live_table_init(live_t *live, live_table_kind_t kind, uint32_t most) {
  live_table_t *table = &live->header->tables[kind];
  table->buckets = live_reserve(live, (size_t)most * sizeof(live_ref_t));
  table->most = most;
  table->used = most < FIRST_BUCKETS ? most : FIRST_BUCKETS;
  table->mask = table->used - 1;
  return table->buckets != 0;
}

/* One bucket more: what belongs into it is in the one whose number lacks its highest bit. */
static void split(live_header_t *header, live_table_kind_t kind) {
  live_table_t *table = &header->tables[kind];
  live_ref_t *buckets = live_at(header, table->buckets);
  uint32_t made = table->used++;
  if (made > table->mask) table->mask = table->mask * 2 + 1;
  live_ref_t *stays = &buckets[made & table->mask >> 1], *goes = &buckets[made];
  live_ref_t entry = *stays;
  *stays = *goes = 0;
  while (entry != 0) {
    live_ref_t *chain = chain_of(header, kind, entry), next = *chain;
    live_ref_t *bucket = (hash_of(header, kind, entry) & table->mask) == made ? goes : stays;
    *chain = *bucket;
    *bucket = entry;
    entry = next;
  }
}

void live_table_add(live_header_t *header, live_table_kind_t kind, live_ref_t entry, uint32_t hash) {
  live_table_t *table = &header->tables[kind];
  if (++table->entries > table->used && table->used < table->most) split(header, kind);
  uint32_t at = hash & table->mask;
  if (at >= table->used) at &= table->mask >> 1;
  live_ref_t *bucket = (live_ref_t *)live_at(header, table->buckets) + at;
  *chain_of(header, kind, entry) = *bucket;
  *bucket = entry;
}
