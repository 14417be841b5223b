/* SPDX-License-Identifier: MIT */
/* Coroutines that rest, those that are alike together: a server has thousands that wait in the same place. */
#ifndef LUAPULSE_ATTACH_SNAPSHOT_GROUPS_H
#define LUAPULSE_ATTACH_SNAPSHOT_GROUPS_H

#include "attach/snapshot.h"

typedef struct {
  uint64_t hash; /* of what makes stacks alike */
  size_t stack;  /* index into snapshot_t.stacks */
  size_t leader; /* the first stack of its group */
  size_t alike;  /* how many there are in the group */
} snapshot_resting_t;

/* The coroutines of a VM that are on no thread, group by group: the largest group first, of groups of one size that whose first is oldest; within
 * a group as they are in the snapshot. Alike are those with the same status and the same functions at the same instructions. The caller frees
 * *resting by mem_free(). False when memory is out. */
bool snapshot_group(const snapshot_t *snapshot, uint64_t global, snapshot_resting_t **resting, size_t *count);

#endif
