/* SPDX-License-Identifier: MIT */
/* A profile while it is being taken: strings, functions, a call tree and counters in one flat region of
 * memory.
 *
 * Mental model. The region is handed in zeroed and holds offsets, never pointers, so it may be shared with
 * another process or outlive its writer. It only grows: an entry is written whole, then published with a
 * release store, so a reader at any moment (also after the writer was killed) finds a consistent profile.
 * Nodes are the call tree: a node is its parent node plus (function, line); node LIVE_ROOT is the empty
 * stack. A cell is (node, label set) with its counters.
 *
 * One writer at a time; it allocates nothing, takes no lock and may be interrupted, but not re-entered.
 * When the region is full new stacks are counted in the [overflow] cell. Readers trust nothing: every offset
 * is checked. */
#ifndef LUAPULSE_PROFILE_LIVE_H
#define LUAPULSE_PROFILE_LIVE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "profile/failure.h"
#include "profile/profile.h"

typedef uint32_t live_ref_t; /* offset in units of 8 bytes; 0 is none */

#define LIVE_ROOT 0u
#define LIVE_MIN_BYTES ((size_t)256 * 1024)

typedef enum {
  LIVE_WAITING, /* made, no writer yet */
  LIVE_RUNNING, /* a writer is at work (or was killed) */
  LIVE_ENDED,   /* the writer finished in good order */
  LIVE_REFUSED  /* the writer could not start: see `refusal` */
} live_state_t;

typedef struct {
  char type[24], unit[24];
} live_type_t;

typedef enum { LIVE_LUA, LIVE_C, LIVE_PSEUDO } live_kind_t;

typedef struct {
  live_ref_t name, file; /* strings */
  int32_t line;          /* of definition, 0 unknown */
  int32_t last_line;
  uint32_t
      code; /* fingerprint of the code: functions reloaded with other code at the same place keep apart */
  uint32_t kind; /* live_kind_t */
} live_function_t;

typedef struct live_header live_header_t;

typedef struct {
  live_header_t *header;
  /* Asks for `bytes` more of a shared budget before they are first used; false refuses. NULL: the region's
   * size is the only bound. */
  bool (*charge)(void *context, size_t bytes);
  void *charge_context;
} live_t;

typedef enum { LIVE_NO_HEAP, LIVE_HEAP_SAMPLED, LIVE_HEAP_TRACED } live_heap_mode_t;

typedef struct {
  live_type_t types[PROFILE_MAX_TYPES]; /* ended by an empty name; those of the heap are added to them */
  size_t default_type;
  live_type_t period_type;
  int64_t period;
  int64_t time_nanos; /* Unix time of the start */
  live_heap_mode_t heap;
} live_setup_t;

/* Lays out a zeroed region of at least LIVE_MIN_BYTES. False when it is too small or the first bytes are
 * refused. */
bool live_init(live_t *live, void *memory, size_t size, const live_setup_t *setup);
/* Opens a region another one laid out, for reading. */
bool live_open(live_t *live, void *memory, size_t size, failure_t *failure);
/* A region without a writer yet: LIVE_WAITING, recognisable by live_open. */
void live_prepare(void *memory, size_t size);

/* Writer's calls. Those that return a reference answer 0 when the region is full. */
live_ref_t live_string(live_t *live, const char *data, size_t len);
text_t live_text(const live_t *live, live_ref_t string); /* of a string the writer itself made */
live_ref_t live_function(live_t *live, const live_function_t *function);
/* What stands for no function: "[overflow]". */
live_ref_t live_pseudo(live_t *live, const char *name);
/* Renames the function when the rank of the name beats that of the one it has. A new function has rank 0. */
void live_rename(live_t *live, live_ref_t function, live_ref_t name, uint32_t rank);
int32_t live_function_line(const live_t *live, live_ref_t function); /* of definition */
uint32_t live_name_rank(const live_t *live, live_ref_t function);
live_ref_t live_child(live_t *live, live_ref_t parent, live_ref_t function, int32_t line);
/* Adds to the counters of (node, labels); on a full region to those of [overflow], counting the loss by
 * values[0]. */
void live_add(live_t *live, live_ref_t node, live_ref_t labels, const uint64_t *values);
/* The counters of (node, labels), those of [overflow] when there is no room: for a writer that adds to them often, and takes
 * care itself of losses. They stay where they are. */
_Atomic uint64_t *live_values(live_t *live, live_ref_t node, live_ref_t labels);
_Atomic uint64_t *live_overflow_values(live_t *live);
/* Makes room for a timeline of the newest `room` calls. False when there is none. */
bool live_keep_events(live_t *live, uint32_t room);
void live_event(live_t *live, live_ref_t function, uint32_t track, uint64_t start, uint64_t duration);
void live_add_overflow(live_t *live, const uint64_t *values);
void live_lose(live_t *live, loss_t reason, uint64_t count);
void live_comment(live_t *live, const char *text);
void live_set_program(live_t *live, const char *name);
void live_set_state(live_t *live, live_state_t state);
void live_set_duration(live_t *live, int64_t nanos);
void live_refuse(void *memory, size_t size, const char *why); /* LIVE_REFUSED with a reason for the reader */

/* Reader's calls. */
live_state_t live_state(const live_t *live);
const char *live_refusal(const live_t *live);
size_t live_used(const live_t *live); /* bytes in use */
uint64_t live_lost(const live_t *live, loss_t reason);
/* A copy as a profile, while the writer goes on. NULL with a failure when memory is out or the region is
 * corrupt. */
profile_t *live_snapshot(const live_t *live, failure_t *failure);

/* A copy of the region as it is now, to measure from later; its memory is the caller's to mem_free(header).
 * False when memory is out. */
bool live_save(const live_t *live, live_t *copy);
/* What has come since `before` was saved of the same region. */
profile_t *live_snapshot_since(const live_t *live, const live_t *before, failure_t *failure);

#endif
