/* SPDX-License-Identifier: MIT */
/* The memory of a process whose thread stands still for a sample, read by process_vm_readv.
 *
 * Mental model. A walk reads some twenty places, a hundred bytes each, and each call of the kernel costs as much as several of them. A
 * thread's stack is much the same from one sample to the next. So what the walk before has read is fetched by one call, and only what is
 * new by others. Pieces are small: what the process has in its processor's caches is slow to get from there, for both sides.
 *
 * What is kept is of one glance: the process runs between two. Every read can fail. (For much memory, read once: remote.h.) */
#ifndef LUAPULSE_ATTACH_GLANCE_H
#define LUAPULSE_ATTACH_GLANCE_H

#include <sys/types.h>

#include "walk/memory.h"

enum { GLANCE_PIECE = 512, GLANCE_PIECES = 1024, GLANCE_LAST = 128 };

/* Which pieces were read, of one thread, at its last glance. All zero: there was none. */
typedef struct {
  uint32_t count;
  uint64_t pieces[GLANCE_LAST]; /* addresses by GLANCE_PIECE */
} glance_last_t;

typedef struct {
  uint64_t piece;
  uint64_t turn; /* the glance it is of; any other: it is not here */
  bool used;     /* a walk has read it, it was not only fetched */
} glance_slot_t;

typedef struct {
  walk_memory_t memory; /* first */
  pid_t pid;
  uint64_t turn;
  glance_last_t *last;
  glance_slot_t slots[GLANCE_PIECES];
  uint8_t bytes[GLANCE_PIECES][GLANCE_PIECE];
} glance_t;

/* Begins a glance at a process: fetches what was read at the last one, and notes in `last` what is read now. */
void glance_begin(glance_t *glance, pid_t pid, glance_last_t *last);

#endif
