/* SPDX-License-Identifier: MIT */
/* Which function is that? For frames read from raw memory, in a signal handler: metadata is copied into the live tables at
 * first sight, and a bounded cache leads from the prototype (or the C function's address) to its entry. Addresses are
 * reused when code is collected and reloaded, so every hit is checked. */
#ifndef LUAPULSE_AGENT_WALKED_H
#define LUAPULSE_AGENT_WALKED_H

#include "profile/live.h"
#include "walk/walk.h"

struct vm;

typedef struct {
  uint64_t key;                    /* prototype, address of a C function, or number of a built-in; 0: free */
  uint64_t source, code, code_end; /* of a prototype, compared, never followed */
  int32_t line, last_line;
  uint32_t fingerprint;
  live_ref_t function;
  uint64_t checked; /* monotonic time of the last look at the code, ns */
  uint32_t sightings;
} walked_entry_t;

enum { WALKED_SETS = 512, WALKED_WAYS = 4, WALKED_TEXT = 32768 };

typedef struct {
  walked_entry_t entries[WALKED_SETS][WALKED_WAYS];
  char text[WALKED_TEXT]; /* of a source, while it is looked at */
} walked_cache_t;

#define WALKED_BUILTIN ((uint64_t)1 << 63) /* of the key of a built-in function; the rest is its number */
uint64_t walked_key(const walk_frame_t *frame);
/* The live function and the line of the frame; 0 when the tables are full. */
live_ref_t walked_function(struct vm *vm, walk_t *walk, const walk_frame_t *frame, int32_t *line);
/* The function that stands for the parser at work on the chunk of that source. */
live_ref_t walked_parser(struct vm *vm, walk_t *walk, uint64_t source);
/* True when the entry made for the frame still stands: `frame` was seen before with the same key. */
bool walked_still(struct vm *vm, walk_t *walk, const walk_frame_t *frame);
/* The entry of a key, or NULL. */
walked_entry_t *walked_find(struct vm *vm, uint64_t key);
/* Enters a C function or built-in under a name found before it was seen. */
void walked_announce(struct vm *vm, uint64_t key, const char *name, size_t len, uint32_t rank);

#endif
