/* SPDX-License-Identifier: MIT */
/* The hook of traced VMs: finding the VM, and the short way through the usual event; see trace.h. Everything here runs at every
 * call and return of the program. */
#include <unistd.h>

#include "agent/lean.h"
#include "agent/stopwatch.h"
#include "agent/trace_usual.h"
#include "agent/vm_index.h"
#include "agent/walk_setup.h"

/* -- finding the VM ---------------------------------------------------------------------------------------------------- */

#define NO_VM 1u /* no address of a global_State */

/* The VM that began to be traced while no other was. Only a hook of that very VM gets past the comparison, on the thread that
 * runs it, so what is behind the pointers is alive. */
static struct {
  _Atomic uint64_t global; /* NO_VM: none */
  _Atomic(trace_t *) trace;
  _Atomic uint32_t offset; /* of the reference to global_State in lua_State */
} first = {.global = NO_VM};

bool trace_announce(trace_t *t) {
  vm_t *vm = t->vm;
  if (vm->global == 0) return true;
  if (!vm_index_add(&traced_vms, vm->global, vm)) return false;
  bool luajit = t->layout.family == LAYOUT_LUAJIT;
  if (vm_index_count(&traced_vms) != 1 || (luajit && !trace_is_usual_luajit(&t->layout.luajit))) return true;
  atomic_store(&first.trace, t);
  atomic_store(&first.offset, luajit ? t->layout.luajit.state_global : t->layout.puc.state_global);
  atomic_store(&first.global, vm->global);
  return true;
}

void trace_withdraw(trace_t *t) {
  vm_t *vm = t->vm;
  if (vm->global == 0) return;
  if (atomic_load(&first.trace) == t) {
    atomic_store(&first.global, NO_VM);
    atomic_store(&first.trace, NULL);
  }
  vm_index_remove(&traced_vms, vm->global);
}

void trace_withdraw_all(void) {
  atomic_store(&first.global, NO_VM);
  atomic_store(&first.trace, NULL);
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

LEAN_INLINE bool is_first(lua_State *L) {
  uint64_t global = atomic_load_explicit(&first.global, memory_order_acquire);
  uint32_t offset = atomic_load_explicit(&first.offset, memory_order_relaxed);
  return __builtin_expect(site_load64((uint64_t)(uintptr_t)L + offset) == global, 1);
}

/* The VM if it is being traced. */
static vm_t *find_traced(lua_State *L) {
  return is_first(L) ? atomic_load(&first.trace)->vm : find_among_others(L);
}

/* -- the usual event of PUC Lua; see trace_usual.h ------------------------------------------------------------------------ */

/* The child of `parent` that is the function at the site, if it was called last from there, or after that the last time; its call is
 * counted. TRACE_ROOT: another one, or not a usual one. */
LEAN_INLINE uint32_t usual_child(trace_t *t, trace_node_t *parent, const site_t *site, live_ref_t labels) {
  trace_node_t *nodes = t->nodes;
  uint32_t index = parent->recent;
  if (nodes[index].key != site->key || nodes[index].check != site->check) {
    index = nodes[index].next;
    if (nodes[index].key != site->key || nodes[index].check != site->check) return TRACE_ROOT;
    parent->recent = index;
  }
  return count_as_usual(&nodes[index], labels) ? index : TRACE_ROOT;
}

LEAN_INLINE bool enter_as_usual(trace_t *t, trace_frame_t *top, const site_t *site, uint64_t id,
                                trace_node_t *node, uint64_t now) {
  uint32_t index = usual_child(t, node, site, t->labels);
  if (index == TRACE_ROOT) return false;
  push_as_usual(t, top, index, site->kind, id, node, now);
  return true;
}

/* In place of the topmost frame. */
__attribute__((noinline)) static bool replace_as_usual(trace_t *t, const site_t *site, uint64_t id,
                                                       trace_node_t *node, uint64_t now) {
  trace_frame_t *top = t->top;
  if (!may_end(t, top, id)) return false;
  uint32_t parent = usual_tail_parent(t, node);
  if (parent == TRACE_ROOT) return false;
  uint32_t index = usual_child(t, &t->nodes[parent], site, t->labels);
  if (index == TRACE_ROOT) return false;
  replace_top(t, top, index, site->kind, id, node, now);
  return true;
}

/* The call record. `ar` tells it, or its number on 5.1, where it is that of the state. */
LEAN_INLINE uint64_t call_record(const layout_puc_t *l, lua_State *L, const lua_Debug *ar) {
  return lv_calls_are_numbered() ? site_load64((uint64_t)(uintptr_t)L + l->state_ci) : lv_call_id(ar);
}

LEAN_INLINE bool take_usual_puc(trace_t *t, lua_State *L, const lua_Debug *ar, trace_node_t *node,
                                uint64_t now) {
  const layout_puc_t *l = &t->layout.puc;
  trace_frame_t *top = t->top;
  uint64_t id = lv_call_id(ar);
  if (ar->event == LUA_HOOKRET) return return_as_usual(t, top, id, node, t->costs.leave[node->kind], now);
  uint64_t ci = call_record(l, L, ar);
  site_t site;
  if (ar->event == LUA_HOOKCALL) {
    uint64_t previous = lv_calls_are_numbered() ? id - 1 : site_load64(ci + l->ci_previous);
    if (top + 1 == t->high || previous != top->id) return false;
    site_read_slot(l, site_load64(ci + l->ci_func), &site);
    return enter_as_usual(t, top, &site, id, node, now);
  }
  return false;
}

/* -- all the others ------------------------------------------------------------------------------------------------------- */

/* The path has called the function before, if not lately: it is expected to call it again. */
static bool expect_callee(trace_t *t, uint32_t parent, const site_t *site) {
  uint32_t index = trace_look_up(t, parent, site->key, site->check);
  if (index != TRACE_ROOT) trace_expect(t, parent, index);
  return index != TRACE_ROOT;
}

static bool take_less_usual_puc(trace_t *t, lua_State *L, const lua_Debug *ar, trace_node_t *node,
                                uint64_t now) {
  const layout_puc_t *l = &t->layout.puc;
  bool tail = lv_is_tail_call(ar->event);
  if (!tail && ar->event != LUA_HOOKCALL) return take_usual_puc(t, L, ar, node, now);
  uint32_t parent = tail ? usual_tail_parent(t, node) : t->top->node;
  site_t site;
  site_read_slot(l, site_load64(call_record(l, L, ar) + l->ci_func), &site);
  if ((tail && parent == TRACE_ROOT) || !expect_callee(t, parent, &site)) return false;
  return tail ? replace_as_usual(t, &site, lv_call_id(ar), node, now) : take_usual_puc(t, L, ar, node, now);
}

static bool take_less_usual(trace_t *t, lua_State *L, const lua_Debug *ar, uint64_t now) {
  trace_node_t *node = t->usual == TRACE_NONE_USUAL ? NULL : node_on_top(t, L, now);
  if (node == NULL) return false;
  if (t->usual == TRACE_USUAL_PUC) return take_less_usual_puc(t, L, ar, node, now);
  return lv_may_be_luajit() && trace_take_usual_luajit(t, L, ar, now);
}

/* Whatever is not usual, or of another VM than the first, or where a hook of the host's is to be called as well. */
void trace_take_other(lua_State *L, lua_Debug *ar, uint64_t now) {
  vm_t *vm = find_traced(L);
  int event = ar->event;
  if (vm != NULL) {
    if (!take_less_usual(vm->trace, L, ar, now) && !vm->paused) trace_take(vm->trace, L, ar, now);
  } else { /* a coroutine that slept through the end of the session */
    vm = vm_find(L);
    if (vm == NULL) lua_sethook(L, NULL, 0, 0);
    if (vm == NULL) return;
    trace_unhook(vm, L);
  }
  if (vm->host.function != NULL && (vm->host.mask & host_hook_mask_of(event)) != 0)
    vm->host.function(L, ar); /* last: it may raise an error */
}

__attribute__((noinline)) static void take_by_kernels_clock(lua_State *L, lua_Debug *ar) {
  trace_take_other(L, ar, stopwatch_now());
}

/* Whatever is called is called last, so that nothing has to be kept for it. */
LEAN void trace_on_event(lua_State *L, lua_Debug *ar) {
  if (__builtin_expect(!stopwatch_has_ticks(), 0)) {
    take_by_kernels_clock(L, ar);
    return;
  }
  uint64_t now = stopwatch_now_by_ticks(); /* all that follows is cost */
  if (!is_first(L)) {
    trace_take_other(L, ar, now);
    return;
  }
  trace_t *t = atomic_load_explicit(&first.trace, memory_order_relaxed);
  if (t->quick == TRACE_NONE_USUAL) {
    trace_take_other(L, ar, now);
  } else if (lv_may_be_luajit() && t->quick == TRACE_USUAL_LUAJIT) {
    trace_on_luajit_event(L, ar, now, t);
  } else {
    trace_node_t *node = node_on_top(t, L, now);
    if (node == NULL || !take_usual_puc(t, L, ar, node, now)) trace_take_other(L, ar, now);
  }
}
