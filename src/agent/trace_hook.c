/* SPDX-License-Identifier: MIT */
/* The hook of traced VMs: finding the VM, and the short way through the usual event; see trace.h. Everything here runs at every
 * call and return of the program. */
#include <unistd.h>

#include "agent/stopwatch.h"
#include "agent/trace.h"
#include "agent/vm_index.h"
#include "agent/walk_setup.h"

/* -- finding the VM ---------------------------------------------------------------------------------------------------- */

/* The VM that began to be traced while no other was. Only a hook of that very VM gets past the comparison, on the thread that
 * runs it, so what is behind the pointer is alive. */
static struct {
  _Atomic uint64_t global; /* 0: none */
  _Atomic(vm_t *) vm;
  _Atomic uint32_t offset; /* of the reference to global_State in lua_State */
} first;

bool trace_announce(trace_t *t) {
  vm_t *vm = t->vm;
  if (vm->global == 0) return true;
  if (!vm_index_add(&traced_vms, vm->global, vm)) return false;
  bool luajit = t->layout.family == LAYOUT_LUAJIT;
  if (vm_index_count(&traced_vms) != 1 || (luajit && t->layout.luajit.pointer != 8)) return true;
  atomic_store(&first.vm, vm);
  atomic_store(&first.offset, luajit ? t->layout.luajit.state_global : t->layout.puc.state_global);
  atomic_store(&first.global, vm->global);
  return true;
}

void trace_withdraw(trace_t *t) {
  vm_t *vm = t->vm;
  if (vm->global == 0) return;
  if (atomic_load(&first.vm) == vm) {
    atomic_store(&first.global, 0);
    atomic_store(&first.vm, NULL);
  }
  vm_index_remove(&traced_vms, vm->global);
}

void trace_withdraw_all(void) {
  atomic_store(&first.global, 0);
  atomic_store(&first.vm, NULL);
  vm_index_forget_all(&traced_vms);
}

__attribute__((noinline, cold)) static vm_t *find_among_others(lua_State *L) {
  const layout_t *layout = walk_setup_layout();
  vm_t *vm = layout->name[0] != '\0' ? vm_index_find(&traced_vms, site_global(layout, L)) : NULL;
  if (vm != NULL) return vm;
  /* one whose memory cannot be read, or one that is traced no more, or in a forked child */
  vm = vm_find(L);
  return vm == NULL || vm->trace == NULL || vm->global != 0 || vm->pid != getpid() ? NULL : vm;
}

/* The VM if it is being traced. */
static inline vm_t *find_traced(lua_State *L) {
  uint64_t global = atomic_load_explicit(&first.global, memory_order_acquire);
  uint32_t offset = atomic_load_explicit(&first.offset, memory_order_relaxed);
  if (global != 0 && site_load64((uint64_t)(uintptr_t)L + offset) == global)
    return atomic_load_explicit(&first.vm, memory_order_relaxed);
  return find_among_others(L);
}

/* -- the usual event ---------------------------------------------------------------------------------------------------- */

/* Nearly every event: a call of a function that this path has called before, or its return, with nothing out of the ordinary.
 * These do what trace_take() would do, in a third of the time; false: they did nothing. */
static inline bool return_as_usual(trace_t *t, uint64_t id, trace_node_t *node, uint64_t now) {
  trace_frame_t *top = t->top;
  if (id != top->id || top->taken_up || top == t->low || node->flags != 0) return false;
  trace_charge_node(t, node, now);
  trace_note_end(t, top, node);
  t->top = top - 1;
  t->last_cost = t->costs.leave[node->kind];
  return true;
}

/* Where the callee of a tail call stands, TRACE_ROOT when there is no such place yet. */
static inline uint32_t usual_tail_parent(trace_t *t, const trace_node_t *node) {
  uint32_t parent = node->parent;
  if (parent == UINT32_MAX) return TRACE_ROOT; /* of what found no room */
  if (t->nodes[parent].key == TRACE_TAIL_KEY) return parent;
  return trace_look_up(t, parent, TRACE_TAIL_KEY, 0);
}

/* Calls the function at the site from `parent`; in place of the topmost frame if it is a tail call. */
__attribute__((always_inline)) static inline bool enter_as_usual(trace_t *t, const site_t *site, uint64_t id,
                                                                 uint32_t parent, trace_node_t *node,
                                                                 bool tail, uint64_t now) {
  trace_frame_t *top = t->top;
  uint32_t index = t->nodes[parent].recent;
  trace_node_t *child = &t->nodes[index];
  if (child->key != site->key || child->check != site->check || child->parent != parent) {
    index = trace_look_up(t, parent, site->key, site->check);
    if (index == TRACE_ROOT) return false;
    t->nodes[parent].recent = index;
    child = &t->nodes[index];
  }
  if (child->labels != t->current->labels || child->flags != 0) return false;
  uint64_t calls = atomic_load_explicit(&child->values[TRACE_CALLS], memory_order_relaxed);
  if (calls % TRACE_RECHECK == TRACE_RECHECK - 1) return false;
  atomic_store_explicit(&child->values[TRACE_CALLS], calls + 1, memory_order_relaxed);
  trace_charge_node(t, node, now);
  if (tail) {
    trace_note_end(t, top, node);
    top--;
  }
  top[1] = (trace_frame_t){
      .id = id, .start = now, .local_start = trace_local_time(t), .node = index, .tail = tail};
  t->top = top + 1;
  t->last_cost = t->costs.call[child->kind];
  return true;
}

/* `ci` is the call record, `id` what it goes by. */
static inline bool call_as_usual(trace_t *t, uint64_t ci, uint64_t id, trace_node_t *node, bool tail,
                                 uint64_t now) {
  const layout_puc_t *l = &t->layout.puc;
  trace_frame_t *top = t->top;
  uint32_t parent = top->node;
  if (tail) {
    if (top->id != id || top->taken_up || top == t->low || node->flags != 0) return false;
    parent = usual_tail_parent(t, node);
    if (parent == TRACE_ROOT) return false;
  } else {
    uint64_t previous = lv_calls_are_numbered() ? id - 1 : site_load64(ci + l->ci_previous);
    if (top + 1 == t->high || previous != top->id) return false;
  }
  site_t site;
  site_read_slot(l, site_load64(ci + l->ci_func), &site);
  return enter_as_usual(t, &site, id, parent, node, tail, now);
}

/* LuaJIT: between functions written in Lua. Where others are concerned a count hook is needed, or it is no more. */
static inline bool take_usual_luajit(trace_t *t, lua_State *L, const lua_Debug *ar, uint64_t now) {
  const layout_luajit_t *l = &t->layout.luajit;
  trace_frame_t *top = t->top;
  trace_node_t *node = &t->nodes[top->node];
  uint64_t id = site_luajit_call_id(l, L, lv_call_id(ar));
  if (top == t->low || node->kind != SITE_LUA || node->labels != t->current->labels) return false;
  if (ar->event == LUA_HOOKRET)
    return t->nodes[top[-1].node].kind == SITE_LUA && return_as_usual(t, id, node, now);
  if (ar->event != LUA_HOOKCALL || id <= top->id || top + 1 == t->high) return false;
  site_t site;
  site_read_luajit(l, L, &site);
  return site.kind == SITE_LUA && enter_as_usual(t, &site, id, top->node, node, false, now);
}

static inline bool take_usual(trace_t *t, lua_State *L, const lua_Debug *ar, uint64_t now) {
  if (t->current == NULL || t->current->L != L || now < t->last) return false;
  if (t->usual == TRACE_USUAL_LUAJIT) return take_usual_luajit(t, L, ar, now);
  if (t->usual != TRACE_USUAL_PUC) return false;
  trace_node_t *node = &t->nodes[t->top->node];
  uint64_t ci = site_load64((uint64_t)(uintptr_t)L + t->layout.puc.state_ci);
  uint64_t id = lv_calls_are_numbered() ? lv_call_id(ar) : ci;
  if (node->labels != t->current->labels) return false;
  if (ar->event == LUA_HOOKRET) return return_as_usual(t, id, node, now);
  bool tail = lv_is_tail_call(ar->event);
  return (tail || ar->event == LUA_HOOKCALL) && call_as_usual(t, ci, id, node, tail, now);
}

void trace_on_event(lua_State *L, lua_Debug *ar) {
  uint64_t now = stopwatch_now(); /* first: all that follows is cost */
  vm_t *vm = find_traced(L);
  int event = ar->event;
  if (vm != NULL) {
    if (!take_usual(vm->trace, L, ar, now) && !vm->paused) trace_take(vm->trace, L, ar, now);
  } else { /* a coroutine that slept through the end of the session */
    vm = vm_find(L);
    if (vm == NULL) lua_sethook(L, NULL, 0, 0);
    if (vm == NULL) return;
    trace_unhook(vm, L);
  }
  if (vm->host.function != NULL && (vm->host.mask & host_hook_mask_of(event)) != 0)
    vm->host.function(L, ar); /* last: it may raise an error */
}
