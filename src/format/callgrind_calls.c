/* SPDX-License-Identifier: MIT */
/* Costs of lines and calls; see callgrind_calls.h. One walk over the tree for each column. */
#include "format/callgrind_calls.h"

#include <string.h>

#include "profile/intern.h"
#include "profile/mem.h"

enum { NONE = UINT32_MAX };

typedef struct {
  calls_t *calls;
  const tree_t *tree;
  size_t column;
  int64_t *self, *totals; /* by node, of this column */
  uint32_t *edge_of_node; /* the call by which a node was reached, or NONE */
  uint32_t *called;       /* by node on the path: the call it is making, or NONE */
  uint32_t *shadowed;     /* by node on the path: the node of its function above it, or 0 */
  uint32_t *innermost;    /* by function: its lowest node on the path, or 0 */
} walk_t;

/* -- functions and their lines --------------------------------------------------------------------------- */

static bool function_equal(const void *owner, const void *wanted, uint32_t position) {
  const calls_function_t *have = &((const calls_t *)owner)->functions[position];
  const calls_function_t *want = wanted;
  return have->name == want->name && have->file == want->file;
}

static bool add_functions(calls_t *c, intern_t *index) {
  const profile_t *p = c->profile;
  for (size_t i = 0; i < c->lines->row_count; i++) {
    calls_function_t function = {c->lines->rows[i].name, c->lines->rows[i].file, 0, NONE};
    uint32_t words[2] = {function.name, function.file};
    uint32_t hash = hash_bytes(words, sizeof words, 9);
    uint32_t at = intern_find(index, hash, function_equal, c, &function);
    if (at == NONE) {
      at = (uint32_t)c->function_count;
      if (!intern_add(index, hash, at)) return false;
      c->functions[c->function_count++] = function;
    }
    c->function_of_row[i] = at;
    c->first_edge[i] = NONE;
  }
  for (size_t i = c->lines->row_count; i-- > 0;) {
    calls_function_t *function = &c->functions[c->function_of_row[i]];
    c->next_row[i] = function->first_row;
    function->first_row = (uint32_t)i;
  }
  for (size_t i = p->frame_count; i-- > 0;) /* of several definitions, the first seen */
    c->functions[c->function_of_row[c->lines->row_of_frame[i]]].start_line =
        p->functions[p->frames[i].function].start_line;
  return true;
}

/* -- calls ----------------------------------------------------------------------------------------------- */

static bool edge_equal(const void *owner, const void *wanted, uint32_t position) {
  const calls_edge_t *have = &((const calls_t *)owner)->edges[position];
  const calls_edge_t *want = wanted;
  return have->caller == want->caller && have->callee == want->callee;
}

static bool add_edges(calls_t *c, walk_t *walk, intern_t *index) {
  for (size_t i = 1; i < walk->tree->count; i++) {
    const tree_node_t *node = &walk->tree->nodes[i];
    walk->edge_of_node[i] = NONE;
    if (node->parent == 0) continue;
    calls_edge_t edge = {walk->tree->nodes[node->parent].key, c->function_of_row[node->key], NONE};
    if (c->function_of_row[edge.caller] == edge.callee) continue;
    uint32_t words[2] = {edge.caller, edge.callee};
    uint32_t hash = hash_bytes(words, sizeof words, 10);
    uint32_t at = intern_find(index, hash, edge_equal, c, &edge);
    if (at == NONE) {
      at = (uint32_t)c->edge_count;
      if (!intern_add(index, hash, at)) return false;
      c->edges[c->edge_count++] = edge;
    }
    walk->edge_of_node[i] = at;
  }
  for (size_t i = c->edge_count; i-- > 0;) {
    c->edges[i].next = c->first_edge[c->edges[i].caller];
    c->first_edge[c->edges[i].caller] = (uint32_t)i;
  }
  return true;
}

/* -- costs ----------------------------------------------------------------------------------------------- */

static void add_cost(int64_t *costs, const walk_t *walk, uint32_t position, int64_t value) {
  int64_t *cost = &costs[(size_t)position * walk->calls->columns + walk->column];
  *cost = tree_sum(*cost, value);
}

static void enter(void *context, uint32_t node) {
  walk_t *walk = context;
  calls_t *c = walk->calls;
  uint32_t row = walk->tree->nodes[node].key, edge = walk->edge_of_node[node];
  uint32_t *innermost = &walk->innermost[c->function_of_row[row]];
  add_cost(c->row_costs, walk, row, walk->self[node]);
  walk->called[walk->tree->nodes[node].parent] = edge;
  if (edge != NONE) add_cost(c->edge_costs, walk, edge, walk->totals[node]);
  if (*innermost != 0 && walk->called[*innermost] != NONE) /* no longer the innermost one for these samples */
    add_cost(c->edge_costs, walk, walk->called[*innermost], (int64_t) - (uint64_t)walk->totals[node]);
  walk->shadowed[node] = *innermost;
  *innermost = node;
}

static void leave(void *context, uint32_t node) {
  walk_t *walk = context;
  walk->innermost[walk->calls->function_of_row[walk->tree->nodes[node].key]] = walk->shadowed[node];
}

static void find_stacks_with_value(const profile_t *p, bool *has_value) {
  for (size_t i = 0; i < p->sample_count; i++)
    if (!profile_sample_is_zero(p, &p->samples[i])) has_value[p->samples[i].stack] = true;
}

/* The number of samples: what the type "samples" says, or one for each stack that has values but none of that: where memory was
 * allocated no sample need have been taken. */
static bool count_samples(const walk_t *walk, const profile_t *p) {
  const tree_t *tree = walk->tree;
  uint32_t type = profile_find_type(p, "samples");
  bool *has_value = mem_alloc(p->stack_count);
  int64_t *sampled = mem_alloc(p->stack_count * sizeof *sampled);
  bool done = has_value != NULL && sampled != NULL;
  if (done) {
    find_stacks_with_value(p, has_value);
    for (size_t i = 0; i < p->sample_count && type != PROFILE_NONE; i++) {
      int64_t *sum = &sampled[p->samples[i].stack];
      *sum = tree_sum(*sum, p->samples[i].values[type]);
    }
    memset(walk->self, 0, tree->count * sizeof *walk->self);
    for (size_t i = 0; i < p->stack_count; i++) {
      int64_t *self = &walk->self[tree->node_of_stack[i]];
      *self = tree_sum(*self, sampled[i] == 0 && has_value[i] ? 1 : sampled[i]);
    }
    memcpy(walk->totals, walk->self, tree->count * sizeof *walk->totals);
    for (size_t i = tree->count; i-- > 1;) {
      int64_t *parent = &walk->totals[tree->nodes[i].parent];
      *parent = tree_sum(*parent, walk->totals[i]);
    }
  }
  mem_free(has_value);
  mem_free(sampled);
  return done;
}

static bool add_costs(calls_t *c, walk_t *walk) {
  size_t nodes = walk->tree->count;
  walk->self = mem_alloc(nodes * sizeof *walk->self);
  walk->totals = mem_alloc(nodes * sizeof *walk->totals);
  walk->called = mem_alloc(nodes * sizeof *walk->called);
  walk->shadowed = mem_alloc(nodes * sizeof *walk->shadowed);
  walk->innermost = mem_alloc((c->function_count + 1) * sizeof *walk->innermost);
  c->row_costs = mem_alloc((c->lines->row_count + 1) * c->columns * sizeof *c->row_costs);
  c->edge_costs = mem_alloc((c->edge_count + 1) * c->columns * sizeof *c->edge_costs);
  bool done = walk->self != NULL && walk->totals != NULL && walk->called != NULL && walk->shadowed != NULL &&
              walk->innermost != NULL && c->row_costs != NULL && c->edge_costs != NULL;
  for (size_t column = 0; done && column < c->columns; column++) {
    walk->column = column;
    if (column < c->profile->type_count)
      tree_values(walk->tree, c->profile, column, walk->self, walk->totals);
    else
      done = count_samples(walk, c->profile);
    if (done) tree_walk(walk->tree, enter, leave, walk);
  }
  mem_free(walk->self);
  mem_free(walk->totals);
  mem_free(walk->called);
  mem_free(walk->shadowed);
  mem_free(walk->innermost);
  return done;
}

static bool fill(calls_t *c) {
  c->lines = summary_new(c->profile, 0, SUMMARY_LINES);
  if (c->lines == NULL) return false;
  size_t rows = c->lines->row_count + 1, nodes = c->lines->tree->count;
  walk_t walk = {.calls = c, .tree = c->lines->tree};
  intern_t *function_index = intern_new(), *edge_index = intern_new();
  c->functions = mem_alloc(rows * sizeof *c->functions);
  c->function_of_row = mem_alloc(rows * sizeof *c->function_of_row);
  c->next_row = mem_alloc(rows * sizeof *c->next_row);
  c->first_edge = mem_alloc(rows * sizeof *c->first_edge);
  c->edges = mem_alloc(nodes * sizeof *c->edges);
  walk.edge_of_node = mem_alloc(nodes * sizeof *walk.edge_of_node);
  bool done = function_index != NULL && edge_index != NULL && c->functions != NULL &&
              c->function_of_row != NULL && c->next_row != NULL && c->first_edge != NULL &&
              c->edges != NULL && walk.edge_of_node != NULL && add_functions(c, function_index) &&
              add_edges(c, &walk, edge_index) && add_costs(c, &walk);
  intern_free(function_index);
  intern_free(edge_index);
  mem_free(walk.edge_of_node);
  return done;
}

calls_t *calls_new(const profile_t *p) {
  calls_t *c = mem_alloc(sizeof *c);
  if (c == NULL) return NULL;
  c->profile = p;
  c->columns = p->type_count + 1;
  if (fill(c)) return c;
  calls_free(c);
  return NULL;
}

void calls_free(calls_t *c) {
  if (c == NULL) return;
  summary_free(c->lines);
  mem_free(c->functions);
  mem_free(c->function_of_row);
  mem_free(c->next_row);
  mem_free(c->first_edge);
  mem_free(c->edges);
  mem_free(c->row_costs);
  mem_free(c->edge_costs);
  mem_free(c);
}
