/* SPDX-License-Identifier: MIT */
/* Coroutines that are alike; see snapshot_groups.h. */
#include "attach/snapshot_groups.h"

#include <stdlib.h>

#include "profile/mem.h"

/* What names and places come from; of C functions the object may tell a name, and is the same where they are alike. */
typedef struct {
  uint64_t words[4];
} likeness_t;

static likeness_t likeness_of(const snapshot_frame_t *frame) {
  if (frame->kind != WALK_LUA) return (likeness_t){{frame->kind, frame->code, frame->function, frame->ffid}};
  return (likeness_t){{frame->kind, frame->proto, frame->pc, frame->mark}};
}

static uint64_t mix(uint64_t hash, uint64_t word) {
  hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
  return hash ^ hash >> 29;
}

static uint64_t hash_of(const snapshot_t *snapshot, const snapshot_stack_t *stack) {
  uint64_t hash = mix(stack->count, (uint64_t)stack->status);
  for (size_t i = 0; i < stack->count; i++) {
    likeness_t likeness = likeness_of(&snapshot->frames[stack->first + i]);
    for (size_t k = 0; k < 4; k++) hash = mix(hash, likeness.words[k]);
  }
  return hash;
}

static bool are_alike(const snapshot_t *snapshot, const snapshot_stack_t *a, const snapshot_stack_t *b) {
  if (a->main || b->main || a->count != b->count || a->status != b->status || a->reason != b->reason ||
      a->status_known != b->status_known || a->truncated != b->truncated || a->runtime != b->runtime)
    return false;
  for (size_t i = 0; i < a->count; i++) {
    likeness_t of_a = likeness_of(&snapshot->frames[a->first + i]);
    likeness_t of_b = likeness_of(&snapshot->frames[b->first + i]);
    for (size_t k = 0; k < 4; k++)
      if (of_a.words[k] != of_b.words[k]) return false;
  }
  return true;
}

static int by_hash(const void *left, const void *right) {
  const snapshot_resting_t *a = left, *b = right;
  if (a->hash != b->hash) return a->hash < b->hash ? -1 : 1;
  return a->stack < b->stack ? -1 : a->stack > b->stack;
}

static int by_group(const void *left, const void *right) {
  const snapshot_resting_t *a = left, *b = right;
  if (a->alike != b->alike) return a->alike > b->alike ? -1 : 1;
  if (a->leader != b->leader) return a->leader < b->leader ? -1 : 1;
  return a->stack < b->stack ? -1 : a->stack > b->stack;
}

bool snapshot_group(const snapshot_t *snapshot, uint64_t global, snapshot_resting_t **resting,
                    size_t *count) {
  size_t used = 0;
  snapshot_resting_t *all = mem_alloc((snapshot->stack_count + 1) * sizeof *all);
  if (all == NULL) return false;
  for (size_t i = 0; i < snapshot->stack_count; i++) {
    const snapshot_stack_t *stack = &snapshot->stacks[i];
    if (stack->thread == 0 && stack->global == global)
      all[used++] = (snapshot_resting_t){hash_of(snapshot, stack), i, i, 1};
  }
  qsort(all, used, sizeof *all, by_hash);
  for (size_t i = 0, end; i < used; i = end) {
    const snapshot_stack_t *first = &snapshot->stacks[all[i].stack];
    for (end = i + 1; end < used && all[end].hash == all[i].hash; end++)
      if (!are_alike(snapshot, first, &snapshot->stacks[all[end].stack])) break;
    for (size_t k = i; k < end; k++) {
      all[k].leader = all[i].stack;
      all[k].alike = end - i;
    }
  }
  qsort(all, used, sizeof *all, by_group);
  *resting = all;
  *count = used;
  return true;
}
