/* SPDX-License-Identifier: MIT */
/* The hook of LuaJIT's VMs that are traced: the short way through the usual event; see trace_usual.h.
 *
 * Functions of Lua are announced and return, with an event each. Others are announced only: when the next instruction runs
 * (luajit_dispatch.h), or its caller returns, one has ended. Which function called is read from the frame, so that what errors have left
 * is noticed. The node that a call goes to is found in a small table by caller and callee: most of the programs that call much call
 * different functions in turn. */
#include "agent/lean.h"
#include "agent/trace_usual.h"

/* Where the child for the function at the site is remembered. */
LEAN_INLINE uint32_t *place_of_guess(trace_t *t, uint32_t parent, const site_t *site) {
  uint64_t hash = (site->key ^ site->key >> 6) + parent * (uint64_t)9;
  return &t->guesses[hash % (1u << TRACE_GUESS_BITS)];
}

/* Counts the call of the child at this index; false: it is another one, or not a usual one. TRACE_ROOT is no function's. */
LEAN_INLINE bool count_child(trace_t *t, uint32_t index, uint32_t parent, const site_t *site) {
  const trace_node_t *node = &t->nodes[index];
  return node->key == site->key && node->check == site->check && node->parent == parent &&
         count_as_usual(node, t->labels);
}

/* Of the call with this link and place, `id` being its caller's. */
LEAN_INLINE bool is_called_by(const layout_luajit_t *l, lua_State *L, uint64_t link, uint64_t place,
                              uint64_t id) {
  uint64_t below = site_luajit_below(l, link, place);
  return below == id || site_luajit_call_id(l, L, below) == id;
}

LEAN_INLINE void set_site(const layout_luajit_t *l, uint64_t base, site_kind_t kind, site_t *site) {
  uint64_t function = site_luajit_function(l, base);
  if (kind == SITE_LUA)
    site_set_luajit_lua(l, function, site);
  else
    site_set_luajit_c(l, function, site);
}

/* When a function of C is entered: its end will be told. */
LEAN_INLINE void await_end(trace_t *t, lua_State *L, uint64_t link) {
  if (!site_luajit_is_pc(link) || !luajit_dispatch_arm(&t->dispatch, link)) trace_await_end(t, L);
}

/* A call of a function of this kind. At the bottom of a coroutine, which is nobody's call, its id is no place with 8 bytes to a
 * reference. */
LEAN_INLINE bool take_call(trace_t *t, lua_State *L, const layout_luajit_t *l, site_kind_t kind, uint64_t id,
                           uint64_t now) {
  trace_frame_t *top = t->top;
  trace_node_t *node = node_on_top(t, L, now);
  uint64_t base = site_luajit_base(l, L), link = site_luajit_link(l, base);
  if (node == NULL || top + 1 == t->high || (!site_is_wide(l) && top == t->low) ||
      !is_called_by(l, L, link, id, top->id))
    return false;
  site_t site;
  set_site(l, base, kind, &site);
  uint32_t index = *place_of_guess(t, top->node, &site);
  if (!count_child(t, index, top->node, &site)) return false;
  push_as_usual(t, top, index, kind, id, node, now);
  if (kind != SITE_LUA) await_end(t, L, link);
  return true;
}

/* Below the first call of a coroutine. */
static bool is_below_all(const trace_t *t, const trace_frame_t *frame) {
  return frame == t->low && t->current->chunk->below == NULL;
}

/* … in place of the function that called. If it was called by another than that was, it is none: an error has left what was there. */
LEAN_INLINE bool take_tail_call(trace_t *t, lua_State *L, const layout_luajit_t *l, site_kind_t kind,
                                uint64_t id, uint64_t now) {
  trace_frame_t *top = t->top;
  trace_node_t *node = node_on_top(t, L, now);
  if (node == NULL || (top->how & TRACE_FRAME_OTHER) != 0 || !may_end(t, top, id)) return false;
  uint32_t parent = usual_tail_parent(t, node);
  if (parent == TRACE_ROOT) return false;
  uint64_t base = site_luajit_base(l, L), link = site_luajit_link(l, base);
  if (!is_called_by(l, L, link, id, top[-1].id) && !is_below_all(t, top - 1)) return false;
  site_t site;
  set_site(l, base, kind, &site);
  uint32_t index = *place_of_guess(t, parent, &site);
  if (!count_child(t, index, parent, &site)) return false;
  replace_top(t, top, index, kind, id, node, now);
  if (kind != SITE_LUA) await_end(t, L, link);
  return true;
}

/* A function of Lua returns to one of Lua. Of those with variable arguments the event means the copy. */
LEAN_INLINE bool take_return(trace_t *t, lua_State *L, uint64_t id, uint64_t now) {
  trace_frame_t *top = t->top;
  trace_node_t *node = node_on_top(t, L, now);
  const uint32_t unusual = TRACE_FRAME_OTHER | TRACE_FRAME_TAKEN_UP;
  return node != NULL && top != t->low && ((top->how | (top[-1].how & TRACE_FRAME_OTHER)) & unusual) == 0 &&
         return_as_usual(t, top, id, node, t->costs.leave[SITE_LUA], now);
}

/* A C function has ended when its caller returns: both end now. */
static bool return_both(trace_t *t, trace_frame_t *top, trace_node_t *node, uint64_t now) {
  trace_node_t *caller = &t->nodes[top[-1].node];
  if (top - 1 == t->low || ((top->how | top[-1].how) & TRACE_FRAME_TAKEN_UP) != 0 ||
      !trace_is_plain(caller, t->labels))
    return false;
  t->top = top - 2;
  int64_t local = charge_as_usual(t, node->values, now, t->costs.leave[SITE_LUA]) - t->away;
  trace_note_end(node->values, local - top->local_start);
  trace_note_end(caller->values, local - top[-1].local_start);
  return true;
}

/* From a function that called another of C at its end, or to one of C. */
static bool take_other_return(trace_t *t, lua_State *L, uint64_t id, uint64_t now) {
  trace_frame_t *top = t->top;
  trace_node_t *node = node_on_top(t, L, now);
  if (node == NULL || top == t->low) return false;
  bool ended = (top->how & TRACE_FRAME_OTHER) == 0
                   ? return_as_usual(t, top, id, node, t->costs.leave[SITE_LUA], now)
                   : top[-1].id == id && return_both(t, top, node, now);
  if (ended && (t->top->how & TRACE_FRAME_OTHER) != 0) trace_await_end(t, L);
  return ended;
}

/* An instruction of the function that called the one on top, of C. */
LEAN_INLINE bool take_count(trace_t *t, lua_State *L, uint64_t id, uint64_t now) {
  trace_frame_t *top = t->top;
  trace_node_t *node = node_on_top(t, L, now);
  if (node == NULL || top == t->low || (top->how & TRACE_FRAME_OTHER) == 0 || top[-1].id != id ||
      !return_as_usual(t, top, top->id, node, t->costs.leave[SITE_C], now))
    return false;
  if (!luajit_dispatch_is_armed(&t->dispatch) || !luajit_dispatch_disarm(&t->dispatch))
    trace_await_no_more(t, L);
  return true;
}

/* -- any VM ------------------------------------------------------------------------------------------------------------ */

/* Whether the path has called the function before; it is remembered then. */
static bool remember_child(trace_t *t, uint32_t parent, const site_t *site) {
  uint32_t index = trace_look_up(t, parent, site->key, site->check);
  *place_of_guess(t, parent, site) = index;
  return index != TRACE_ROOT;
}

bool trace_take_usual_luajit(trace_t *t, lua_State *L, const lua_Debug *ar, uint64_t now) {
  const layout_luajit_t *l = &t->layout.luajit;
  uint64_t base = site_luajit_base(l, L), place = lv_call_id(ar);
  if (ar->event == LUA_HOOKCALL) {
    bool tail = place == t->top->id;
    uint32_t parent = tail ? usual_tail_parent(t, &t->nodes[t->top->node]) : t->top->node;
    site_t site;
    site_set_luajit(l, site_luajit_function(l, base), &site);
    if (parent == TRACE_ROOT || !remember_child(t, parent, &site)) return false;
    return tail ? take_tail_call(t, L, l, site.kind, place, now) : take_call(t, L, l, site.kind, place, now);
  }
  uint64_t id = site_luajit_original(site_luajit_link(l, base), place);
  if (ar->event == LUA_HOOKRET) return take_other_return(t, L, id, now);
  return ar->event == LUA_HOOKCOUNT && take_count(t, L, id, now);
}

/* -- the first VM of the process ------------------------------------------------------------------------------------------ */

/* So that none keeps registers for another. Their arguments are where those of trace_take_other() are. */
#define ALONE __attribute__((noinline)) LEAN static

/* What the short way reads by; the same in all builds of LuaJIT 2.1 with 8 bytes to a reference. */
static const layout_luajit_t usual = {.pointer = 8,
                                      .state_base = 32,
                                      .state_stack = 56,
                                      .function_ffid = 10,
                                      .function_pc = 32,
                                      .function_code = 40,
                                      .proto_size = 104,
                                      .proto_code_count = 12,
                                      .proto_source = 64,
                                      .proto_line = 72};

bool trace_is_usual_luajit(const layout_luajit_t *l) {
  return l->pointer == usual.pointer && l->state_base == usual.state_base &&
         l->state_stack == usual.state_stack && l->function_ffid == usual.function_ffid &&
         l->function_pc == usual.function_pc && l->function_code == usual.function_code &&
         l->proto_size == usual.proto_size && l->proto_code_count == usual.proto_code_count &&
         l->proto_source == usual.proto_source && l->proto_line == usual.proto_line;
}

ALONE void on_tail_call(lua_State *L, lua_Debug *ar, uint64_t now, trace_t *t) {
  uint64_t id = lv_call_id(ar), function = site_luajit_function(&usual, site_luajit_base(&usual, L));
  bool taken = site_luajit_is_lua(&usual, function) ? take_tail_call(t, L, &usual, SITE_LUA, id, now)
                                                    : take_tail_call(t, L, &usual, SITE_C, id, now);
  if (!taken) trace_take_other(L, ar, now);
}

ALONE void on_other_call(lua_State *L, lua_Debug *ar, uint64_t now, trace_t *t) {
  if (t->running == L && lv_call_id(ar) == t->top->id)
    on_tail_call(L, ar, now, t);
  else
    trace_take_other(L, ar, now);
}

ALONE void on_c_call(lua_State *L, lua_Debug *ar, uint64_t now, trace_t *t) {
  if (!take_call(t, L, &usual, SITE_C, lv_call_id(ar), now)) on_other_call(L, ar, now, t);
}

ALONE void on_lua_call(lua_State *L, lua_Debug *ar, uint64_t now, trace_t *t) {
  if (!take_call(t, L, &usual, SITE_LUA, lv_call_id(ar), now)) on_other_call(L, ar, now, t);
}

ALONE void on_return(lua_State *L, lua_Debug *ar, uint64_t now, trace_t *t) {
  if (!take_return(t, L, lv_call_id(ar), now)) trace_take_other(L, ar, now);
}

ALONE void on_count(lua_State *L, lua_Debug *ar, uint64_t now, trace_t *t) {
  if (!take_count(t, L, lv_call_id(ar), now)) trace_take_other(L, ar, now);
}

LEAN void trace_on_luajit_event(lua_State *L, lua_Debug *ar, uint64_t now, trace_t *t) {
  if (ar->event == LUA_HOOKCALL) {
    if (site_luajit_is_lua(&usual, site_luajit_function(&usual, site_luajit_base(&usual, L))))
      on_lua_call(L, ar, now, t);
    else
      on_c_call(L, ar, now, t);
  } else if (ar->event == LUA_HOOKRET) {
    on_return(L, ar, now, t);
  } else if (ar->event == LUA_HOOKCOUNT) {
    on_count(L, ar, now, t);
  } else {
    trace_take_other(L, ar, now);
  }
}
