/* SPDX-License-Identifier: MIT */
/* The stacks of a profile as a tree of calls, in which frames that count as the same are one node.
 *
 * What "the same" means is the caller's: a key per frame. Costs are linear in the number of stacks, and no
 * walk uses the C stack: profiles hold hundreds of thousands of stacks, a thousand frames deep. */
#ifndef LUAPULSE_PROFILE_TREE_H
#define LUAPULSE_PROFILE_TREE_H

#include "profile/profile.h"

typedef struct {
  uint32_t parent;
  uint32_t key;         /* of its frame */
  uint32_t first_child; /* 0 when there is none, likewise below */
  uint32_t next_sibling;
} tree_node_t;

typedef struct {
  tree_node_t
      *nodes; /* [0] is the root, above every outermost frame; a parent always precedes its children */
  size_t count;
  uint32_t *node_of_stack; /* by stack of the profile */
} tree_t;

/* Siblings stand in order of appearance. NULL when memory is out. */
tree_t *tree_new(const profile_t *p, const uint32_t *key_of_frame);
void tree_free(tree_t *tree);

/* Puts siblings into the order in which they appear in `order`: every node but the root, once each. */
void tree_reorder(tree_t *tree, const uint32_t *order);

/* Puts siblings into ascending order of the ranks of their keys. False when memory is out: nothing changed.
 */
bool tree_sort(tree_t *tree, const uint32_t *rank_of_key);

/* By node: what the samples that end there are worth (self), and what they and all below are worth (total).
 * Both arrays have tree->count elements and are overwritten. Sums wrap. */
void tree_values(const tree_t *tree, const profile_t *p, size_t type, int64_t *self, int64_t *total);

/* Depth first, siblings in order, without the root. `leave` comes after all nodes below; it may be NULL. */
typedef void tree_visit_t(void *context, uint32_t node);
void tree_walk(const tree_t *tree, tree_visit_t *enter, tree_visit_t *leave, void *context);

/* a + b, wrapping: values come from files. */
int64_t tree_sum(int64_t a, int64_t b);

#endif
