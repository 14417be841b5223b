/* SPDX-License-Identifier: MIT */
/* The tree of calls; see tree.h. */
#include "profile/tree.h"

#include <stdlib.h>

#include "profile/intern.h"
#include "profile/mem.h"

int64_t tree_sum(int64_t a, int64_t b) {
  return (int64_t)((uint64_t)a + (uint64_t)b);
}

static bool node_equal(const void *owner, const void *wanted, uint32_t position) {
  const tree_node_t *have = &((const tree_t *)owner)->nodes[position];
  const tree_node_t *want = wanted;
  return have->parent == want->parent && have->key == want->key;
}

static bool add_nodes(tree_t *tree, const profile_t *p, const uint32_t *key_of_frame, intern_t *index) {
  tree->count = 1;
  for (size_t i = 1; i < p->stack_count; i++) {
    const profile_stack_t *stack = &p->stacks[i];
    tree_node_t node = {.parent = tree->node_of_stack[stack->parent], .key = key_of_frame[stack->frame]};
    uint32_t words[2] = {node.parent, node.key};
    uint32_t hash = hash_bytes(words, sizeof words, 6);
    uint32_t at = intern_find(index, hash, node_equal, tree, &node);
    if (at == UINT32_MAX) {
      at = (uint32_t)tree->count;
      if (!intern_add(index, hash, at)) return false;
      tree->nodes[tree->count++] = node;
    }
    tree->node_of_stack[i] = at;
  }
  return true;
}

static int compare_words(const void *a, const void *b) {
  uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return (x > y) - (x < y);
}

/* Puts a node in front of its siblings. */
static void link_first(tree_t *tree, uint32_t node) {
  tree_node_t *parent = &tree->nodes[tree->nodes[node].parent];
  tree->nodes[node].next_sibling = parent->first_child;
  parent->first_child = node;
}

void tree_reorder(tree_t *tree, const uint32_t *order) {
  for (size_t i = 0; i < tree->count; i++) tree->nodes[i].first_child = 0;
  for (size_t i = tree->count - 1; i-- > 0;) link_first(tree, order[i]);
}

bool tree_sort(tree_t *tree, const uint32_t *rank_of_key) {
  uint64_t *words = mem_alloc(tree->count * sizeof *words); /* rank, then node */
  uint32_t *order = mem_alloc(tree->count * sizeof *order);
  bool done = words != NULL && order != NULL;
  if (done) {
    for (size_t i = 1; i < tree->count; i++)
      words[i - 1] = (uint64_t)rank_of_key[tree->nodes[i].key] << 32 | i;
    qsort(words, tree->count - 1, sizeof *words, compare_words);
    for (size_t i = 0; i + 1 < tree->count; i++) order[i] = (uint32_t)words[i];
    tree_reorder(tree, order);
  }
  mem_free(words);
  mem_free(order);
  return done;
}

tree_t *tree_new(const profile_t *p, const uint32_t *key_of_frame) {
  tree_t *tree = mem_alloc(sizeof *tree);
  intern_t *index = intern_new();
  bool done = false;
  if (tree != NULL && index != NULL) {
    tree->nodes = mem_alloc(p->stack_count * sizeof *tree->nodes);
    tree->node_of_stack = mem_alloc(p->stack_count * sizeof *tree->node_of_stack);
    done = tree->nodes != NULL && tree->node_of_stack != NULL && add_nodes(tree, p, key_of_frame, index);
    if (done)
      for (size_t i = tree->count; i-- > 1;) link_first(tree, (uint32_t)i);
  }
  intern_free(index);
  if (done) return tree;
  tree_free(tree);
  return NULL;
}

void tree_free(tree_t *tree) {
  if (tree == NULL) return;
  mem_free(tree->nodes);
  mem_free(tree->node_of_stack);
  mem_free(tree);
}

void tree_values(const tree_t *tree, const profile_t *p, size_t type, int64_t *self, int64_t *total) {
  for (size_t i = 0; i < tree->count; i++) self[i] = 0;
  for (size_t i = 0; i < p->sample_count; i++) {
    uint32_t node = tree->node_of_stack[p->samples[i].stack];
    self[node] = tree_sum(self[node], p->samples[i].values[type]);
  }
  for (size_t i = 0; i < tree->count; i++) total[i] = self[i];
  for (size_t i = tree->count; i-- > 1;) {
    uint32_t parent = tree->nodes[i].parent;
    total[parent] = tree_sum(total[parent], total[i]);
  }
}

void tree_walk(const tree_t *tree, tree_visit_t *enter, tree_visit_t *leave, void *context) {
  const tree_node_t *nodes = tree->nodes;
  uint32_t node = nodes[0].first_child;
  while (node != 0) {
    enter(context, node);
    if (nodes[node].first_child != 0) {
      node = nodes[node].first_child;
      continue;
    }
    if (leave != NULL) leave(context, node);
    while (node != 0 && nodes[node].next_sibling == 0) {
      node = nodes[node].parent;
      if (node != 0 && leave != NULL) leave(context, node);
    }
    node = nodes[node].next_sibling; /* the root has none: the walk ends */
  }
}
