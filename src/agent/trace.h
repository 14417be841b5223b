/* SPDX-License-Identifier: MIT */
/* CPU tracing: every call of a VM, by call path, with exact counts and times.
 *
 * Mental model. Hooks tell of calls and returns. For each coroutine there is a stack of open frames, kept in step with Lua's own
 * by the identity of call records, so that frames left by an error are closed at the next event. Each frame stands on a node of
 * one tree of call paths; the path of a coroutine goes on from the function that resumed it. The time between two events belongs
 * to the node of the topmost frame: nothing else is ever added up, so exclusive times sum to the time that passed, and
 * inclusive ones are sums over the tree, made when it is read.
 *
 * Two clocks run beside each other: the raw one, and a corrected one that stands still while the profiler is at work, as far as
 * its cost was measured at start (trace_cost.c).
 *
 * All of it runs in hooks, on the thread that runs the VM: no allocation beyond what was mapped at start, nothing raised. */
#ifndef LUAPULSE_AGENT_TRACE_H
#define LUAPULSE_AGENT_TRACE_H

#include <stddef.h>

#include "agent/lean.h"
#include "agent/luajit_dispatch.h"
#include "agent/trace_site.h"
#include "agent/vm.h"
#include "profile/trace_values.h"
#include "walk/memory_own.h"

enum {
  TRACE_ROOT = 0,          /* time of nobody */
  TRACE_OVERFLOW = 1,      /* what found no room */
  TRACE_MAX_DEPTH = 1024,  /* of a path; deeper calls stand side by side below [truncated] */
  TRACE_COROUTINES = 4096, /* followed at once; one that is not is taken up anew when it runs */
  TRACE_CHAIN = 256,       /* coroutines that resumed each other */
  TRACE_CHUNK = 31,        /* frames of a stack are had in chunks */
  TRACE_COST_SHIFT = 8,    /* costs are kept in 256ths of a nanosecond */
  TRACE_CALIBRATION_NODES = 8,
  TRACE_GUESS_BITS = 10, /* of places where children of nodes are remembered */
  TRACE_RECHECK =
      4096 /* after so many calls of a path its function is looked at again: another may lie there */
};

#define TRACE_TAIL_KEY 1u /* of the pseudo function [tail call]; addresses are larger */

/* What a node's function does to coroutines. */
enum {
  TRACE_RESUMES = 1,
  TRACE_WRAPS = 2,
  TRACE_YIELDS = 4,
  TRACE_SHOWN = 8,   /* its calls go into the timeline … */
  TRACE_JUDGED = 16, /* … as was decided when it was first called */
  TRACE_LEAVES =
      32 /* LuaJIT: it does not return to where it was called from: error, or one that was seen not to */
};

typedef struct __attribute__((aligned(64))) { /* a line of the cache each */
  uint64_t key, check;                        /* of the site */
  _Atomic uint64_t *values;                   /* its counters for `labels` */
  live_ref_t labels;
  uint32_t flags;            /* beside the labels; see trace_is_plain() */
  live_ref_t node, function; /* in the live tables */
  uint32_t parent;
  uint32_t recent; /* the child last gone to */
  uint32_t next;   /* the other child of its parent that was gone to after it, when last it was */
  uint32_t chain;  /* next in its bucket */
  uint16_t depth;
  uint8_t kind; /* site_kind_t */
} trace_node_t;

enum {
  TRACE_FRAME_TAIL = 1,
  TRACE_FRAME_TAKEN_UP = 2, /* it ran before it was seen: its beginning is not known */
  TRACE_FRAME_OTHER = 4     /* LuaJIT: not of a function of Lua, so that its end has no event */
};

typedef struct {
  uint64_t id;         /* of its call record */
  uint64_t start;      /* raw time, ns */
  int64_t local_start; /* corrected time of its coroutine, fixed point */
  uint32_t node;
  uint32_t how; /* TRACE_FRAME_… */
} trace_frame_t;

typedef struct trace_chunk {
  struct trace_chunk *below, *above; /* of the same stack; a free one's next is `below` */
  trace_frame_t frames[TRACE_CHUNK];
} trace_chunk_t;

typedef struct {
  lua_State *L; /* NULL: free */
  trace_chunk_t *chunk;
  trace_frame_t *top; /* frames[0] of the first chunk stands for what is below the first call */
  uint64_t left;      /* raw time it last stopped running … */
  int64_t left_corrected;
  int64_t away;           /* … and corrected time it did not run in all, fixed point */
  live_ref_t labels;      /* its own, or else … */
  live_ref_t body_labels; /* … which body it runs */
  uint32_t track;         /* its number in the timeline, from 1 */
  uint32_t next;          /* in its bucket, or of the free ones */
  bool running;           /* in the chain */
} trace_coroutine_t;

/* How calls are told apart, and with it what the events of the runtime mean; see trace_event.c. */
typedef enum {
  TRACE_BY_RECORD, /* 5.2 and later: the address of the call record */
  TRACE_BY_NUMBER, /* 5.1 */
  TRACE_BY_PLACE   /* LuaJIT: on the stack */
} trace_rules_t;

/* The short way through the usual event, where the VM's memory can be read and no pause is on; see trace_hook.c. */
typedef enum { TRACE_NONE_USUAL, TRACE_USUAL_PUC, TRACE_USUAL_LUAJIT } trace_usual_t;

/* What an event costs, in 256ths of a nanosecond, by event and kind of function. */
typedef struct {
  int64_t call[SITE_KINDS], leave[SITE_KINDS];
  int64_t sethook; /* LuaJIT: of lua_sethook for the count hook, where that is not the rule */
} trace_costs_t;

typedef struct trace {
  vm_t *vm;
  layout_t layout;
  site_reader_t site;
  trace_rules_t rules;
  trace_costs_t costs;

  /* now */
  trace_coroutine_t *current;            /* NULL: what runs could not be followed */
  lua_State *running;                    /* its L, or NULL … */
  live_ref_t labels;                     /* … its labels … */
  int64_t away;                          /* … and how long it was away, for the hook to have at hand */
  trace_frame_t *top, *low, *high;       /* of the running coroutine: topmost frame, bounds of its chunk */
  uint64_t begun;                        /* raw time of the start, ns */
  uint64_t last;                         /* … of the last event */
  int64_t last_corrected;                /* fixed point */
  int64_t cost;                          /* of all events so far, the last one included, fixed point */
  trace_coroutine_t *chain[TRACE_CHAIN]; /* outermost first; the last one runs */
  uint32_t chain_length;
  bool calibrating;
  trace_usual_t usual; /* which short way may be taken … */
  trace_usual_t quick; /* … by the hook itself, that is without a hook of the host's to be called after */
  bool timeline;
  char filter[4096]; /* patterns, one a line; "" takes all */
  bool counted;      /* LuaJIT: a count hook, set by lua_sethook, waits for the end of a C function … */
  bool may_count;
  luajit_dispatch_t dispatch; /* … or only the next instruction does */
  uint64_t coroutine_keys[3]; /* resume, what wrap returns, yield */
  uint64_t error_key;         /* error */

  /* the tree */
  trace_node_t *nodes;
  uint32_t node_count, node_max;
  uint32_t *buckets, bucket_mask;
  uint32_t guesses[1 << TRACE_GUESS_BITS]; /* LuaJIT: children that were called lately, TRACE_ROOT: none */
  _Atomic uint64_t nobody[TRACE_VALUES];
  _Atomic uint64_t calibration[TRACE_CALIBRATION_NODES][TRACE_VALUES];

  /* coroutines and their frames */
  trace_coroutine_t *coroutines;
  uint32_t *coroutine_buckets;
  uint32_t free_coroutine, used_coroutines, hand, tracks;
  char *chunks;
  size_t chunk_bytes, chunk_max;
  trace_chunk_t *free_chunk;

  void *memory; /* what all this lies in */
  size_t memory_size, charged_nodes, charged_chunks;

  walk_t walk; /* to read functions with */
  memory_own_t own;
} trace_t;

/* -- the tree (trace_tree.c) ------------------------------------------------------------------------------------ */

bool trace_tree_start(trace_t *t);
/* The child of `parent` for the function at the site, made when new; TRACE_OVERFLOW when there is no room. */
uint32_t trace_find_child(trace_t *t, uint32_t parent, const site_t *site);
/* The same for the function of another node. */
uint32_t trace_child_like(trace_t *t, uint32_t parent, uint32_t like);
/* Where calls stand that replaced the function of `node`, and those that replaced one called from `parent`. */
uint32_t trace_tail_parent(trace_t *t, uint32_t node);
uint32_t trace_tail_child(trace_t *t, uint32_t parent);
/* Makes node->values those of the labels. */
void trace_select_cell(trace_t *t, trace_node_t *node, live_ref_t labels);
/* Forgets all nodes but the first two. */
void trace_tree_clear(trace_t *t);
/* Another function may lie at the address by now: true when it is still the one of the node. */
bool trace_is_still(trace_t *t, uint32_t node, const site_t *site);

/* The child of `parent` for a function, 0 when there is none yet. */
static inline uint32_t *trace_bucket(trace_t *t, uint32_t parent, uint64_t key, uint64_t check) {
  uint64_t hash = (key ^ check * 0x9e3779b97f4a7c15u ^ (uint64_t)parent << 32) * 0xff51afd7ed558ccdu;
  return &t->buckets[(uint32_t)(hash >> 40) & t->bucket_mask];
}

static inline uint32_t trace_look_up(trace_t *t, uint32_t parent, uint64_t key, uint64_t check) {
  for (uint32_t i = *trace_bucket(t, parent, key, check); i != 0; i = t->nodes[i].chain)
    if (t->nodes[i].key == key && t->nodes[i].check == check && t->nodes[i].parent == parent) return i;
  return 0;
}

/* Calls from `parent` are expected to go to this child, and after the one they went to before. */
static inline void trace_expect(trace_t *t, uint32_t parent, uint32_t child) {
  uint32_t before = t->nodes[parent].recent;
  if (before != TRACE_ROOT) t->nodes[before].next = child;
  t->nodes[parent].recent = child;
}

/* Its counters are those of the labels, and nothing is to be done about its function but to count. */
LEAN_INLINE bool trace_is_plain(const trace_node_t *node, live_ref_t labels) {
  uint64_t both;
  _Static_assert(offsetof(trace_node_t, flags) == offsetof(trace_node_t, labels) + 4, "read as one");
  memcpy(&both, &node->labels, sizeof both); /* little-endian, as all machines that are walked are */
  return both == labels;
}

static inline uint32_t trace_child(trace_t *t, uint32_t parent, const site_t *site) {
  uint32_t recent = t->nodes[parent].recent;
  const trace_node_t *node = &t->nodes[recent];
  if (node->key == site->key && node->check == site->check && node->parent == parent) return recent;
  return trace_find_child(t, parent, site);
}

/* One writer: a plain addition that readers never see half done. */
LEAN_INLINE void trace_add(_Atomic uint64_t *value, uint64_t amount) {
#if defined __x86_64__ && !defined __SANITIZE_THREAD__ && !defined __SANITIZE_ADDRESS__
  /* as one instruction, which compilers do not make of an atomic's load and store */
  __asm__("addq %1, %0" : "+m"(*(uint64_t *)value) : "er"(amount) : "cc");
#else
  atomic_store_explicit(value, atomic_load_explicit(value, memory_order_relaxed) + amount,
                        memory_order_relaxed);
#endif
}

/* -- coroutines and frames (trace_stack.c) ------------------------------------------------------------------------ */

bool trace_stack_start(trace_t *t);
trace_coroutine_t *trace_coroutine(trace_t *t, lua_State *L); /* NULL when it is not followed */
trace_coroutine_t *trace_new_coroutine(trace_t *t, lua_State *L,
                                       uint64_t now); /* may give up another; NULL: no room */
void trace_forget_coroutine(trace_t *t, trace_coroutine_t *co);
/* Makes its stack the running one, and back. */
void trace_load(trace_t *t, trace_coroutine_t *co);
void trace_store(trace_t *t);
void trace_unload(trace_t *t); /* none runs that is followed */
/* A frame on top of the running stack, NULL when there is no room. */
trace_frame_t *trace_grow(trace_t *t);
void trace_shrink(trace_t *t);

static inline trace_frame_t *trace_push(trace_t *t) {
  if (t->top + 1 == t->high) return trace_grow(t);
  return ++t->top;
}

static inline void trace_pop(trace_t *t) {
  if (t->top == t->low)
    trace_shrink(t);
  else
    t->top--;
}

/* -- the hook (trace_hook.c) ---------------------------------------------------------------------------------------- */

void trace_on_event(lua_State *L, lua_Debug *ar);
/* Events that take longer. */
void trace_take_other(lua_State *L, lua_Debug *ar, uint64_t now);
/* LuaJIT (trace_luajit.c): the short ways, for the first VM of a process, if its layout is the usual one, and for any. The second one
 * returns false if it did nothing. */
bool trace_is_usual_luajit(const layout_luajit_t *l);
void trace_on_luajit_event(lua_State *L, lua_Debug *ar, uint64_t now, trace_t *t);
bool trace_take_usual_luajit(trace_t *t, lua_State *L, const lua_Debug *ar, uint64_t now);
/* The hook finds the VM from now on, and no more. The first of a process it finds fastest. */
bool trace_announce(trace_t *t);
void trace_withdraw(trace_t *t);
void trace_withdraw_all(void); /* in a forked child: its parent's sessions are not its own */

/* -- events (trace_event.c) ------------------------------------------------------------------------------------------ */

/* What the hook does with an event at `now`. */
void trace_take(trace_t *t, lua_State *L, lua_Debug *ar, uint64_t now);
void trace_arm(vm_t *vm, lua_State *L);
/* … unless the coroutine has a hook of its own. */
void trace_arm_if_free(vm_t *vm, lua_State *L);
void trace_unhook(vm_t *vm, lua_State *L);
/* LuaJIT: tells at the next instruction that the C function has ended; in its call, or when what it called returns. */
void trace_await_end(trace_t *t, lua_State *L);
void trace_await_no_more(trace_t *t, lua_State *L);
/* LuaJIT: the count that the hook is set with. */
int trace_hook_count(const vm_t *vm);
/* L runs from now on, its path going on from `parent`. */
void trace_resume(trace_t *t, lua_State *L, uint32_t parent);
void trace_leave_innermost(trace_t *t);
/* The frames of L as Lua has them, from `level` down to the root, TAKE_UP_MAX at most. */
void trace_take_up(trace_t *t, lua_State *L, int level);
void trace_labels_changed(vm_t *vm, lua_State *L);
/* Puts the calls under way into the timeline, as if they ended now. */
void trace_show_open(trace_t *t);

int trace_guard_forks(void); /* errno or 0; see fork_guard.h */

/* -- what it costs (trace_cost.c) ----------------------------------------------------------------------------------- */

/* Measures the costs of events on this VM, by tracing empty functions on a coroutine of its own. False when memory is out; may
 * raise a memory error as well. */
bool trace_calibrate(trace_t *t, lua_State *L, lua_Hook hook);

/* -- the clock -------------------------------------------------------------------------------------------------------- */

static inline int64_t trace_local_time(const trace_t *t) {
  return t->last_corrected - t->current->away;
}

static inline void trace_charge_node(trace_t *t, trace_node_t *node, uint64_t now) {
  int64_t corrected = (int64_t)(now << TRACE_COST_SHIFT) - t->cost;
  trace_add(&node->values[TRACE_EXCLUSIVE_RAW], now - t->last);
  trace_add(&node->values[TRACE_EXCLUSIVE],
            (uint64_t)((corrected >> TRACE_COST_SHIFT) - (t->last_corrected >> TRACE_COST_SHIFT)));
  t->last = now;
  t->last_corrected = corrected;
}

/* The time since the last event belongs to the topmost function. */
static inline void trace_charge(trace_t *t, uint64_t now) {
  if (now < t->last) now = t->last; /* counters of two processors may differ by a few ticks */
  trace_node_t *node = &t->nodes[t->top->node];
  if (node->labels != t->current->labels) trace_select_cell(t, node, t->current->labels);
  trace_charge_node(t, node, now);
}

/* A new extreme. 0 stands for none. */
static inline void trace_note_extreme(_Atomic uint64_t *values, int64_t took) {
  int64_t shortest = (int64_t)atomic_load_explicit(&values[TRACE_MIN], memory_order_relaxed);
  int64_t longest = (int64_t)atomic_load_explicit(&values[TRACE_MAX], memory_order_relaxed);
  if (took == 0) took = 1;
  if (shortest == 0 || took < shortest)
    atomic_store_explicit(&values[TRACE_MIN], (uint64_t)took, memory_order_relaxed);
  if (longest == 0 || took > longest)
    atomic_store_explicit(&values[TRACE_MAX], (uint64_t)took, memory_order_relaxed);
}

/* How long the call took, in corrected time, fixed point, goes into the extremes of its node. */
LEAN_INLINE void trace_note_end(_Atomic uint64_t *values, int64_t took) {
  uint64_t nanoseconds = (uint64_t)(took >> TRACE_COST_SHIFT);
  uint64_t shortest = atomic_load_explicit(&values[TRACE_MIN], memory_order_relaxed);
  uint64_t longest = atomic_load_explicit(&values[TRACE_MAX], memory_order_relaxed);
  /* between the two, by one comparison; and if there are none yet both are 0 */
  if (nanoseconds - shortest > longest - shortest || nanoseconds == 0)
    trace_note_extreme(values, (int64_t)nanoseconds);
}

/* … or the time since the last event belongs to nobody: nothing of the VM ran. */
static inline void trace_skip(trace_t *t, uint64_t now) {
  if (now < t->last) now = t->last;
  t->last = now;
  t->last_corrected = (int64_t)(now << TRACE_COST_SHIFT) - t->cost;
}

#endif
