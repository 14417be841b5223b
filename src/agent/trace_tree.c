/* SPDX-License-Identifier: MIT */
/* The tree of call paths; see trace.h. A node is its parent and a function; most calls go where the last one from the same place
 * went, the others are found in a hash table. */
#include "agent/budget.h"
#include "agent/stopwatch.h"
#include "agent/time.h"
#include "agent/trace.h"
#include "agent/walked.h"

enum { CHARGE_STEP = 64 * 1024 };

#define TRUNCATED_KEY 2u /* of a pseudo function; addresses are larger */

static bool charge_nodes(trace_t *t) {
  size_t need = ((size_t)t->node_count + 1) * sizeof(trace_node_t);
  while (need > t->charged_nodes) {
    if (!budget_take(CHARGE_STEP, t->vm->options.max_process_memory_bytes)) return false;
    t->vm->charged += CHARGE_STEP;
    t->charged_nodes += CHARGE_STEP;
  }
  return true;
}

void trace_tree_clear(trace_t *t) {
  for (uint32_t i = 0; i <= t->bucket_mask; i++) t->buckets[i] = 0;
  memset(t->guesses, 0, sizeof t->guesses);
  t->nodes[TRACE_ROOT].recent = t->nodes[TRACE_OVERFLOW].recent = TRACE_ROOT;
  t->node_count = 2;
}

bool trace_tree_start(trace_t *t) {
  if (!charge_nodes(t)) return false;
  t->node_count = 2;
  if (!charge_nodes(t)) return false;
  t->nodes[TRACE_ROOT] = (trace_node_t){.values = t->nobody, .kind = SITE_PSEUDO, .parent = UINT32_MAX};
  t->nodes[TRACE_OVERFLOW] = (trace_node_t){
      .values = live_overflow_values(&t->vm->live), .kind = SITE_PSEUDO, .parent = UINT32_MAX, .depth = 1};
  trace_tree_clear(t);
  return true;
}

/* -- cells ---------------------------------------------------------------------------------------------------------- */

void trace_select_cell(trace_t *t, trace_node_t *node, live_ref_t labels) {
  node->labels = labels;
  if (node->node != 0 && !t->calibrating) node->values = live_values(&t->vm->live, node->node, labels);
}

/* -- making nodes --------------------------------------------------------------------------------------------------- */

static uint32_t add(trace_t *t, uint32_t parent, const trace_node_t *like) {
  if (t->node_count == t->node_max || !charge_nodes(t)) return TRACE_OVERFLOW;
  live_ref_t node = 0;
  _Atomic uint64_t *values = t->calibration[t->node_count % TRACE_CALIBRATION_NODES];
  if (!t->calibrating) {
    node = live_child(&t->vm->live, t->nodes[parent].node, like->function,
                      live_function_line(&t->vm->live, like->function));
    if (node == 0) return TRACE_OVERFLOW;
    values = live_values(&t->vm->live, node, t->current->labels);
  }
  uint32_t made = t->node_count++;
  uint32_t *first = trace_bucket(t, parent, like->key, like->check);
  t->nodes[made] = *like;
  t->nodes[made].node = node;
  t->nodes[made].values = values;
  t->nodes[made].labels = t->current->labels;
  t->nodes[made].parent = parent;
  t->nodes[made].recent = t->nodes[made].next = TRACE_ROOT;
  t->nodes[made].depth = (uint16_t)(t->nodes[parent].depth + 1);
  t->nodes[made].chain = *first;
  *first = made;
  return made;
}

static uint32_t pseudo_child(trace_t *t, uint32_t parent, uint64_t key, const char *name) {
  uint32_t found = trace_look_up(t, parent, key, 0);
  if (found != 0 || parent == TRACE_OVERFLOW) return found != 0 ? found : TRACE_OVERFLOW;
  trace_node_t like = {.key = key, .kind = SITE_PSEUDO, .function = live_pseudo(&t->vm->live, name)};
  return add(t, parent, &like);
}

/* Below the greatest depth there is one more level, [truncated], and below that all deeper calls, side by side. */
static uint32_t parent_in_depth(trace_t *t, uint32_t parent) {
  if (t->nodes[parent].depth > TRACE_MAX_DEPTH + 1) return t->nodes[parent].parent;
  if (t->nodes[parent].depth == TRACE_MAX_DEPTH) return pseudo_child(t, parent, TRUNCATED_KEY, "[truncated]");
  return parent;
}

static uint32_t flags_of(const trace_t *t, uint64_t key) {
  static const uint8_t flags[] = {TRACE_RESUMES, TRACE_WRAPS, TRACE_YIELDS};
  for (size_t i = 0; i < sizeof flags; i++)
    if (key != 0 && key == t->coroutine_keys[i]) return flags[i];
  return key != 0 && key == t->error_key ? TRACE_LEAVES : 0;
}

static live_ref_t function_of(trace_t *t, const site_t *site) {
  if (t->calibrating) return 0;
  if (t->site == SITE_BY_INTERFACE) return (live_ref_t)site->key;
  int32_t line;
  site_t whole = *site;
  site_frame(&whole);
  t->vm->now = time_monotonic();
  memory_own_begin(&t->own, false, 0, 0);
  return walked_function(t->vm, &t->walk, &whole.frame, &line);
}

uint32_t trace_find_child(trace_t *t, uint32_t parent, const site_t *site) {
  if (parent == TRACE_OVERFLOW) return TRACE_OVERFLOW;
  uint32_t from = parent_in_depth(t, parent);
  uint32_t found = from == TRACE_OVERFLOW ? TRACE_OVERFLOW : trace_look_up(t, from, site->key, site->check);
  if (found == 0) {
    uint64_t begun = stopwatch_now();
    trace_node_t like = {.key = site->key, .check = site->check, .kind = (uint8_t)site->kind};
    like.function = function_of(t, site);
    like.flags = site->kind == SITE_C ? flags_of(t, site->key) : 0;
    found = like.function != 0 || t->calibrating ? add(t, from, &like) : TRACE_OVERFLOW;
    t->cost += (int64_t)(stopwatch_now() - begun) << TRACE_COST_SHIFT;
  }
  if (found != TRACE_OVERFLOW) trace_expect(t, from, found);
  return found;
}

uint32_t trace_child_like(trace_t *t, uint32_t parent, uint32_t like) {
  if (parent == TRACE_OVERFLOW || like == TRACE_OVERFLOW) return TRACE_OVERFLOW;
  parent = parent_in_depth(t, parent);
  if (parent == TRACE_OVERFLOW) return TRACE_OVERFLOW;
  uint32_t found = trace_look_up(t, parent, t->nodes[like].key, t->nodes[like].check);
  trace_node_t copy = t->nodes[like];
  return found != 0 ? found : add(t, parent, &copy);
}

uint32_t trace_tail_parent(trace_t *t, uint32_t node) {
  if (node == TRACE_OVERFLOW) return TRACE_OVERFLOW;
  uint32_t parent = t->nodes[node].parent;
  if (parent == UINT32_MAX) return TRACE_ROOT;
  if (t->nodes[parent].kind == SITE_PSEUDO && t->nodes[parent].key == TRACE_TAIL_KEY) return parent;
  return trace_tail_child(t, parent);
}

uint32_t trace_tail_child(trace_t *t, uint32_t parent) {
  return pseudo_child(t, parent, TRACE_TAIL_KEY, "[tail call]");
}

bool trace_is_still(trace_t *t, uint32_t node, const site_t *site) {
  if (site->kind != SITE_LUA || t->site == SITE_BY_INTERFACE || t->calibrating) return true;
  live_ref_t function = function_of(t, site);
  if (function == 0 || function == t->nodes[node].function) return true;
  t->nodes[node].check = ~t->nodes[node].check; /* nobody finds it any more; frames on it end there */
  return false;
}
