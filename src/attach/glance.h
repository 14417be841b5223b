/* SPDX-License-Identifier: MIT */
/* The memory of a process whose thread stands still for a sample, read by process_vm_readv.
 *
 * Mental model. A walk reads some twenty places, a hundred bytes each, and each call of the kernel costs as much as several of them. A
 * thread's stack is much the same from one sample to the next, or as it was some samples ago. So what the last walks have read is fetched
 * by one call, and only what is new by others. Pieces are small: what the process has in its processor's caches is slow to get from
 * there, for both sides. What is new is read by pages: its neighbours are likely to be asked for next. Guesses that are foreseen are
 * fetched by one call, too, and forgotten: the next ones are others.
 *
 * What is kept is of one glance: the process runs between two. Every read can fail. (For much memory, read once: remote.h.) */
#ifndef LUAPULSE_ATTACH_GLANCE_H
#define LUAPULSE_ATTACH_GLANCE_H

#include <sys/types.h>

#include "walk/memory.h"

enum { GLANCE_PIECE = 512, GLANCE_PIECES = 1024, GLANCE_LAST = 128, GLANCE_IDLE = 3 };

typedef struct {
  uint64_t piece; /* address by GLANCE_PIECE */
  uint32_t
      idle; /* for so many glances it was fetched in vain; after GLANCE_IDLE it is not fetched any more */
} glance_known_t;

/* Which pieces were read, of one thread, at its last glances. All zero: there were none. */
typedef struct {
  uint32_t count;
  glance_known_t known[GLANCE_LAST];
} glance_last_t;

typedef struct {
  uint64_t piece;
  uint64_t turn;  /* the glance it is of; any other: it is not here */
  uint64_t used;  /* the glance at which a walk has read it; any other: it was only fetched */
  uint32_t place; /* among those that are known, or any other */
  bool gone;      /* at that glance it could not be read */
} glance_slot_t;

typedef struct {
  walk_memory_t memory; /* first */
  pid_t pid;
  uint64_t turn;
  bool guessing; /* what is read now is likely to be of no use, now or later */
  glance_last_t *last;
  glance_slot_t slots[GLANCE_PIECES];
  uint8_t bytes[GLANCE_PIECES][GLANCE_PIECE];
} glance_t;

/* Begins a glance at a process: fetches what was read at the last ones, and notes in `last` what is read now. */
void glance_begin(glance_t *glance, pid_t pid, glance_last_t *last);

#endif
