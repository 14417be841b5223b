/* SPDX-License-Identifier: MIT */
/* Where the code of PUC Lua's collector is, by symbols: its VM does not tell when it collects. Stripped programs have none, unless their
 * debug files are installed.
 *
 * Limit: what the collector calls elsewhere (free, for one) is not in it, so time in its code is the least it takes. */
#ifndef LUAPULSE_ATTACH_COLLECTOR_H
#define LUAPULSE_ATTACH_COLLECTOR_H

#include "attach/runtime.h"

enum { COLLECTOR_RANGES = 64 };

typedef struct {
  walk_range_t ranges[COLLECTOR_RANGES];
  size_t count; /* 0: not known */
} collector_t;

/* Of all PUC Luas of the process. */
void collector_find(collector_t *collector, const target_t *target, const runtimes_t *runtimes);
bool collector_has(const collector_t *collector, uint64_t pc);

#endif
