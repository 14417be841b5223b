/* SPDX-License-Identifier: MIT */
/* The short way through the usual event: what the hooks of PUC Lua (trace_hook.c) and of LuaJIT (trace_luajit.c) share.
 *
 * Nearly every event is a call of a function that this path has called lately, or its return, with nothing out of the ordinary. These
 * do what trace_take() would do, in a quarter of the time; false: they did nothing. Every instruction counts: nothing is called, what is
 * read is read before anything is written, so that it has to be read once. */
#ifndef LUAPULSE_AGENT_TRACE_USUAL_H
#define LUAPULSE_AGENT_TRACE_USUAL_H

#include "agent/trace.h"

/* What an event that may be usual is about: the node on top; NULL if it is not. */
LEAN_INLINE trace_node_t *node_on_top(const trace_t *t, const lua_State *L, uint64_t now) {
  if (t->running != L || now < t->last)
    return NULL; /* counters of two processors may differ by a few ticks */
  trace_node_t *node = &t->nodes[t->top->node];
  return trace_is_plain(node, t->labels) ? node : NULL;
}

/* As trace_charge() does. The event that it is done at costs `next_cost`. Returns the corrected time. */
LEAN_INLINE int64_t charge_as_usual(trace_t *t, _Atomic uint64_t *values, uint64_t now, int64_t next_cost) {
  int64_t corrected = (int64_t)(now << TRACE_COST_SHIFT) - t->cost;
  int64_t passed = (corrected >> TRACE_COST_SHIFT) - (t->last_corrected >> TRACE_COST_SHIFT);
  uint64_t raw = now - t->last;
  t->cost += next_cost;
  t->last = now;
  t->last_corrected = corrected;
  trace_add(&values[TRACE_EXCLUSIVE_RAW], raw);
  trace_add(&values[TRACE_EXCLUSIVE], (uint64_t)passed);
  return corrected;
}

/* A frame that was not taken up, nor lies at the border of a chunk. */
LEAN_INLINE bool may_end(const trace_t *t, const trace_frame_t *top, uint64_t id) {
  return top->id == id && (top->how & TRACE_FRAME_TAKEN_UP) == 0 && top != t->low;
}

LEAN_INLINE bool return_as_usual(trace_t *t, trace_frame_t *top, uint64_t id, const trace_node_t *node,
                                 int64_t cost, uint64_t now) {
  if (!may_end(t, top, id)) return false;
  int64_t away = t->away, began = top->local_start;
  _Atomic uint64_t *values = node->values;
  t->top = top - 1;
  int64_t corrected = charge_as_usual(t, values, now, cost);
  trace_note_end(values, corrected - away - began);
  return true;
}

/* One more call of a node whose counters are those of the labels, and of which nothing else is to be done; false: not so. */
LEAN_INLINE bool count_as_usual(const trace_node_t *node, live_ref_t labels) {
  if (!trace_is_plain(node, labels)) return false;
  _Atomic uint64_t *calls = &node->values[TRACE_CALLS];
  uint64_t count = atomic_load_explicit(calls, memory_order_relaxed) + 1;
  if (count % TRACE_RECHECK == 0) return false;
  atomic_store_explicit(calls, count, memory_order_relaxed);
  return true;
}

/* A frame on the node `index`, whose call was counted, on top of that of `node`. */
LEAN_INLINE void push_as_usual(trace_t *t, trace_frame_t *top, uint32_t index, site_kind_t kind, uint64_t id,
                               const trace_node_t *node, uint64_t now) {
  int64_t away = t->away, cost = t->costs.call[kind];
  t->top = top + 1;
  int64_t corrected = charge_as_usual(t, node->values, now, cost);
  top[1].id =
      id; /* when it began, in raw time, only the timeline wants to know, of nodes that are not usual */
  top[1].local_start = corrected - away;
  top[1].node = index;
  top[1].how = kind == SITE_LUA ? 0 : TRACE_FRAME_OTHER;
}

/* … in place of it. */
LEAN_INLINE void replace_top(trace_t *t, trace_frame_t *top, uint32_t index, site_kind_t kind, uint64_t id,
                             trace_node_t *node, uint64_t now) {
  int64_t local = charge_as_usual(t, node->values, now, t->costs.call[kind]) - t->away;
  trace_note_end(node->values, local - top->local_start);
  *top = (trace_frame_t){.id = id,
                         .start = now,
                         .local_start = local,
                         .node = index,
                         .how = kind == SITE_LUA ? TRACE_FRAME_TAIL : TRACE_FRAME_TAIL | TRACE_FRAME_OTHER};
}

/* Where the callee of a tail call stands, TRACE_ROOT when there is no such place yet. */
static inline uint32_t usual_tail_parent(trace_t *t, const trace_node_t *node) {
  uint32_t parent = node->parent;
  if (parent == UINT32_MAX) return TRACE_ROOT; /* of what found no room */
  if (t->nodes[parent].key == TRACE_TAIL_KEY) return parent;
  return trace_look_up(t, parent, TRACE_TAIL_KEY, 0);
}

#endif
