/* SPDX-License-Identifier: MIT */
/* Whether PUC Lua's collector is at work. From 5.4.3 on its VM tells (walk_is_collecting()), before it does not. In all versions where its code is
 * tells: by symbols, or where there are none by who calls whom, from the functions on that others may link with (call_graph.h).
 *
 * Limit: what the collector calls elsewhere (free, for one) is not in its code; of what the VM tells, the beginning of a collection of the young and
 * the change to that kind are missing. So it is the least that it takes. */
#ifndef LUAPULSE_ATTACH_COLLECTOR_H
#define LUAPULSE_ATTACH_COLLECTOR_H

#include "attach/runtime.h"

enum { COLLECTOR_RANGES = 64 };

typedef struct {
  walk_range_t ranges[COLLECTOR_RANGES];
  size_t count;  /* 0: not known */
  bool by_state; /* a VM tells */
} collector_t;

/* Of all PUC Luas of the process. */
void collector_find(collector_t *collector, const target_t *target, const runtimes_t *runtimes);
bool collector_has(const collector_t *collector, uint64_t pc);

#endif
