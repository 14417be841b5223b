/* SPDX-License-Identifier: MIT */
/* How the VMs of a process are: the size of their heaps, what their collectors are at, how many coroutines there are.
 *
 * Heaps and collectors are read as the process runs. Coroutines are counted while it is held, for a moment that is bounded. The VMs are
 * those that are known and still there. */
#ifndef LUAPULSE_ATTACH_VITALS_H
#define LUAPULSE_ATTACH_VITALS_H

#include "attach/runtime.h"

/* Of all versions, in one order. */
typedef enum {
  GC_UNKNOWN,
  GC_PAUSE,
  GC_MARK,
  GC_ATOMIC,
  GC_SWEEP,
  GC_FINALIZE,
  GC_GENERATIONAL /* between two collections */,
  GC_STATES
} gc_state_t;

typedef struct {
  size_t vms;
  uint64_t heap; /* bytes of all of them that the collector has to do with */
  gc_state_t gc; /* of the VM with the largest heap */
  bool coroutines_known;
  uint64_t coroutines; /* without main threads; with those that the collector has not taken yet */
  int64_t held_ns;     /* for counting them */
} vitals_t;

/* target->walk is ready to be aimed. */
void vitals_read(vitals_t *vitals, target_t *target, const runtimes_t *runtimes);
/* Counts the coroutines, for at most so long; when it takes longer they stay unknown. After vitals_read(). */
void vitals_count(vitals_t *vitals, target_t *target, const runtimes_t *runtimes, int64_t most_ns);

const char *gc_state_name(gc_state_t state);

#endif
