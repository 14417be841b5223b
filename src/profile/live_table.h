/* SPDX-License-Identifier: MIT */
/* The hash tables of a live profile: they find entries for the writer; readers go without them.
 *
 * Mental model. Linear hashing: a table begins with a few buckets and gets one more with each entry, as long as there is room for them,
 * by moving what belongs there out of one other bucket. So what is looked up in a small profile lies close together, where a table of
 * full size would take a page of memory for each look, and no entry ever waits for the rest to be moved. One writer; runs in hooks and
 * signal handlers: no malloc, no locks, no stdio. */
#ifndef LUAPULSE_PROFILE_LIVE_TABLE_H
#define LUAPULSE_PROFILE_LIVE_TABLE_H

#include "profile/live_region.h"

/* The first entry that may have this hash. */
static inline live_ref_t live_table_first(const live_header_t *header, live_table_kind_t kind,
                                          uint32_t hash) {
  const live_table_t *table = &header->tables[kind];
  uint32_t at = hash & table->mask;
  if (at >= table->used) at &= table->mask >> 1;
  return ((const live_ref_t *)live_at(header, table->buckets))[at];
}

/* Reserves the buckets; false when there is no room. */
bool live_table_init(live_t *live, live_table_kind_t kind, uint32_t most);
/* Enters what is complete but for its chain. */
void live_table_add(live_header_t *header, live_table_kind_t kind, live_ref_t entry, uint32_t hash);

/* What entries are found by. */
uint32_t live_function_hash(const live_function_t *function);
uint32_t live_node_hash(live_ref_t parent, live_ref_t function, int32_t line);
uint32_t live_cell_hash(live_ref_t node, live_ref_t labels);

#endif
