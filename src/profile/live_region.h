/* SPDX-License-Identifier: MIT */
/* Layout of a live profile's region, shared by its writer (live.c) and its reader (live_snapshot.c). */
#ifndef LUAPULSE_PROFILE_LIVE_REGION_H
#define LUAPULSE_PROFILE_LIVE_REGION_H

#include "profile/live.h"
#include "profile/live_heap.h"

#define LIVE_MAGIC 0x4c50756fu /* changes when the layout does */

typedef _Atomic uint32_t
    live_slot_t; /* a reference that readers may follow: published by release, read by acquire */

typedef struct {
  uint32_t hash;
  uint32_t len;
  live_ref_t chain; /* next in the bucket */
  live_ref_t next;  /* comments only: the one before */
  char bytes[];
} live_string_t;

typedef struct {
  live_slot_t name; /* may be replaced by a better one while readers look */
  live_ref_t file;
  int32_t line, last_line;
  uint32_t code;
  uint32_t kind;
  live_ref_t chain;
  uint32_t name_rank;
  uint32_t generation; /* 1 for the first code seen at (file, line), 2 for the next, … */
} live_function_entry_t;

typedef struct {
  live_ref_t parent;
  live_ref_t function;
  int32_t line;
  live_ref_t chain;
} live_node_t;

typedef struct {
  live_ref_t node;
  live_ref_t labels; /* string of key NUL value NUL …, or 0 */
  live_ref_t chain;
  live_ref_t previous;       /* the cell made before this one: how readers find them all */
  _Atomic uint64_t values[]; /* value_count of them, then hidden_count for the writer's own use */
} live_cell_t;

/* A block of memory that is in use, with what it counts for at its site. */
typedef struct {
  _Atomic uint64_t address; /* 0: free */
  uint64_t bytes;
  uint32_t objects;
  live_ref_t cell;
  uint32_t born; /* in which cycle of the collector */
  uint32_t reserved;
} live_block_t;

/* What a cell keeps for the heap behind its values; see live_heap.c. */
enum {
  HIDDEN_CYCLE, /* of the collector, that the next four are of */
  HIDDEN_YOUNG_OBJECTS,
  HIDDEN_YOUNG_SPACE, /* made in it and still in use */
  HIDDEN_FREED_OBJECTS,
  HIDDEN_FREED_SPACE,  /* made before it, freed in it */
  HIDDEN_CHANGED,      /* number of the last event here */
  HIDDEN_PEAK_OBJECTS, /* in use at the last peak before it */
  HIDDEN_PEAK_SPACE,
  HIDDEN_COUNT
};

typedef struct {
  uint64_t start, duration; /* ns */
  live_ref_t function;
  uint32_t track;
} live_event_t;

typedef enum { LIVE_STRINGS, LIVE_FUNCTIONS, LIVE_NODES, LIVE_CELLS, LIVE_TABLES } live_table_kind_t;

/* See live_table.h. */
typedef struct {
  live_ref_t buckets; /* references to their first entries */
  uint32_t used;      /* of them */
  uint32_t most;      /* that there is room for */
  uint32_t mask;      /* the least power of two that is not less than used, less one */
  uint32_t entries;
} live_table_t;

struct live_header {
  uint32_t magic;
  _Atomic uint32_t state; /* live_state_t */
  uint64_t size;          /* of the region, bytes */
  _Atomic uint64_t used;  /* bytes handed out from the start of the region */
  uint64_t charged;       /* bytes asked of the shared budget so far */
  uint32_t value_count;
  uint32_t hidden_count; /* of counters behind the values of a cell */
  uint32_t default_type;
  live_type_t types[PROFILE_MAX_TYPES];
  live_type_t period_type;
  int64_t period;
  int64_t time_nanos;
  _Atomic int64_t duration_nanos;
  _Atomic uint64_t losses[LOSS_COUNT];
  live_slot_t last_cell;
  live_slot_t last_comment;
  live_slot_t program;
  live_ref_t overflow_cell;
  live_ref_t events;            /* a ring of the newest calls, 0: none */
  uint32_t event_room;          /* that it has */
  _Atomic uint64_t event_count; /* written so far, all of them */
  uint32_t heap_first;          /* value of alloc_objects, followed by the others of the heap */
  uint32_t heap_mode;           /* live_heap_mode_t */
  live_slot_t blocks;           /* open addressing; replaced by a larger one as it fills */
  _Atomic uint32_t block_room;  /* slots of it, a power of two; published after the table */
  uint32_t block_count;         /* slots in use */
  uint32_t completed_only;      /* readers are shown what was in use when the last collection ended */
  live_heap_totals_t heap;
  char refusal[256];
  live_table_t tables[LIVE_TABLES];
};

/* The writer's, for its other parts. */
live_ref_t live_reserve(live_t *live, size_t bytes);
live_ref_t live_find_cell(live_t *live, live_ref_t node, live_ref_t labels);

static inline void *live_at(const live_header_t *header, live_ref_t ref) {
  return (char *)header + (size_t)ref * 8;
}

#endif
