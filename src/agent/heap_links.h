/* SPDX-License-Identifier: MIT */
/* What heap_trail.h is to PUC Lua, for LuaJIT: its frames lie on the stack, each with a link that tells its caller and where that
 * will go on. A frame whose words are as they were, above frames that are, is the same call. */
#ifndef LUAPULSE_AGENT_HEAP_LINKS_H
#define LUAPULSE_AGENT_HEAP_LINKS_H

#include "walk/walk.h"

typedef struct {
  walk_link_t
      links[WALK_MAX_FRAMES];        /* root first; `frames` counts from the root, up to and with the frame */
  uint32_t count;                    /* 0: nothing is known */
  uint32_t begins[WALK_MAX_STATES];  /* the first of each of walk->states */
  walk_link_t seen[WALK_MAX_FRAMES]; /* by the walk, leaf first */
} heap_links_t;

/* As heap_trail_follow(). */
bool heap_links_follow(heap_links_t *known, walk_t *walk, uint32_t *kept);
void heap_links_learn(heap_links_t *known, const walk_t *walk);
static inline void heap_links_drop(heap_links_t *known) {
  known->count = 0;
}

#endif
