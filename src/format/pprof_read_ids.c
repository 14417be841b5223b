/* SPDX-License-Identifier: MIT */
/* Ids to positions; see pprof_read_ids.h. Writers number from one, so a plain table nearly always does. */
#include <inttypes.h>
#include <stdlib.h>

#include "format/pprof_read_ids.h"
#include "profile/mem.h"

static int compare_ids(const void *a, const void *b) {
  uint64_t x = ((const pprof_id_t *)a)->id, y = ((const pprof_id_t *)b)->id;
  return (x > y) - (x < y);
}

bool pprof_ids_build(pprof_ids_t *ids, pprof_id_t *entries, size_t count, const char *what,
                     failure_t *failure) {
  *ids = (pprof_ids_t){.sorted = entries, .count = count};
  if (count == 0) return true;
  qsort(entries, count, sizeof *entries, compare_ids);
  if (entries[0].id == 0) return failure_set(failure, "a %s has the id 0", what);
  for (size_t i = 1; i < count; i++)
    if (entries[i].id == entries[i - 1].id)
      return failure_set(failure, "two %ss have the id %" PRIu64, what, entries[i].id);

  uint64_t largest = entries[count - 1].id;
  if (largest / 4 > count) return true; /* far apart: searched for instead */
  ids->dense_count = (size_t)largest + 1;
  ids->dense = mem_alloc(ids->dense_count * sizeof *ids->dense);
  if (ids->dense == NULL) return failure_set(failure, "out of memory");
  for (size_t i = 0; i < count; i++) ids->dense[entries[i].id] = entries[i].position + 1;
  return true;
}

void pprof_ids_free(pprof_ids_t *ids) {
  mem_free(ids->sorted);
  mem_free(ids->dense);
}

uint32_t pprof_ids_find(const pprof_ids_t *ids, uint64_t id) {
  if (ids->dense != NULL) return id < ids->dense_count ? ids->dense[id] - 1 : UINT32_MAX;
  if (ids->count == 0) return UINT32_MAX;
  pprof_id_t wanted = {.id = id};
  const pprof_id_t *found = bsearch(&wanted, ids->sorted, ids->count, sizeof wanted, compare_ids);
  return found != NULL ? found->position : UINT32_MAX;
}
