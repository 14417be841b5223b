/* SPDX-License-Identifier: MIT */
/* The ids of a pprof file's messages: any non-zero 64-bit numbers, mapped back to positions. */
#ifndef LUAPULSE_FORMAT_PPROF_READ_IDS_H
#define LUAPULSE_FORMAT_PPROF_READ_IDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "profile/failure.h"

typedef struct {
  uint64_t id;
  uint32_t position;
} pprof_id_t;

typedef struct {
  pprof_id_t *sorted; /* by id */
  size_t count;
  uint32_t *dense; /* by id: position + 1, or 0; NULL when the ids are too far apart */
  size_t dense_count;
} pprof_ids_t;

/* Fills `ids` from entries[0 .. count), which it takes over in any case (mem_free'd by pprof_ids_free).
 * False when an id is zero or occurs twice, or memory is out; `what` names the messages in the failure. */
bool pprof_ids_build(pprof_ids_t *ids, pprof_id_t *entries, size_t count, const char *what,
                     failure_t *failure);
void pprof_ids_free(pprof_ids_t *ids);
/* The position, or UINT32_MAX. */
uint32_t pprof_ids_find(const pprof_ids_t *ids, uint64_t id);

#endif
