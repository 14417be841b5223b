/* SPDX-License-Identifier: MIT */
/* What is made of the events of a traced VM; see trace.h.
 *
 * What the runtimes tell:
 * - 5.2 and later: calls, returns, and tail calls as such; up to 5.3 a tail call is announced one call record too high, before
 *   the frame is moved down in place of its caller's.
 * - 5.1: a tail call looks like a call; the next event shows the callee in its caller's place. Only a C function can catch an
 *   error, so a Lua function that is still there while its callee is gone without a return has been replaced by it.
 * - LuaJIT: functions written in Lua return, C functions and built-ins just end. A count hook of one instruction waits for the
 *   end of each, set for the instruction that will run next (luajit_dispatch.h) or, where that is not known, for all by lua_sethook.
 * No runtime has events while a finalizer or another hook runs: their time is that of the function they interrupted. On PUC Lua that holds for
 * the coroutine they run in; one that they resume has events, and its path goes on from the function they interrupted. */
#include <fnmatch.h>
#include <stdio.h>

#include "agent/label.h"
#include "agent/trace.h"

enum { TAKE_UP_MAX = 1024 };

/* Seldom needed: kept out of the hook's code, and its registers out of the hook's frame. */
#define COLD __attribute__((noinline, cold))

static bool at_bottom(const trace_t *t) {
  return t->top == t->current->chunk->frames && t->current->chunk->below == NULL;
}

/* -- the hook on coroutines ------------------------------------------------------------------------------------------- */

static int own_mask(const vm_t *vm) {
  return LUA_MASKCALL | LUA_MASKRET | (vm->host.function != NULL ? vm->host.mask : 0);
}

/* One where entries of the dispatch table are written: then the count hook's bit in the mask is all that lacks. */
int trace_hook_count(const vm_t *vm) {
  if (vm->host.function != NULL) return vm->host.count;
  return vm->trace->dispatch.opcodes != 0 ? 1 : 0;
}

void trace_arm(vm_t *vm, lua_State *L) {
  luajit_dispatch_release(&vm->trace->dispatch);
  lua_sethook(L, trace_on_event, own_mask(vm), trace_hook_count(vm));
}

/* Another hook than the one that was there at start is that coroutine's own: left alone. */
void trace_arm_if_free(vm_t *vm, lua_State *L) {
  lua_Hook hook = lua_gethook(L);
  if (hook == NULL || hook == vm->host.function) trace_arm(vm, L);
}

void trace_unhook(vm_t *vm, lua_State *L) {
  if (vm->trace != NULL) luajit_dispatch_release(&vm->trace->dispatch);
  if (lua_gethook(L) == trace_on_event) host_hook_restore(L, &vm->host, 0);
}

/* The coroutine that a yield goes back to, if the library has resumed it; C code may resume any other one next. */
static lua_State *resumer(const trace_t *t) {
  if (t->chain_length < 2) return NULL;
  const trace_coroutine_t *co = t->chain[t->chain_length - 2];
  return t->nodes[co->top->node].flags & (TRACE_RESUMES | TRACE_WRAPS) ? co->L : NULL;
}

/* The coroutine that goes on when the topmost function, of C, does what it is there for, or the coroutine has ended; NULL: not known. */
static lua_State *goes_on(const trace_t *t, lua_State *L) {
  const layout_luajit_t *l = &t->layout.luajit;
  uint32_t flags = t->nodes[t->top->node].flags;
  if (at_bottom(t)) return resumer(t);
  if (flags & TRACE_LEAVES) return NULL;
  if (flags & TRACE_YIELDS) return resumer(t);
  if ((flags & (TRACE_RESUMES | TRACE_WRAPS)) == 0) return L;
  if (site_luajit_is_lua(l, site_luajit_function(l, site_luajit_base(l, L)))) return NULL;
  lua_State *co = lua_tothread(L, flags & TRACE_RESUMES ? 1 : lua_upvalueindex(1));
  return co != NULL && lua_status(co) == LUA_YIELD ? co : L; /* one that begins is announced */
}

/* The one that will run next, where that is known; else whichever it will be. */
void trace_await_end(trace_t *t, lua_State *L) {
  if (t->counted || !t->may_count) return;
  lua_State *next = t->dispatch.opcodes != 0 ? goes_on(t, L) : NULL;
  uint64_t pc = next != NULL ? luajit_dispatch_next(&t->layout.luajit, next) : 0;
  if (pc != 0 && luajit_dispatch_arm(&t->dispatch, pc)) return;
  luajit_dispatch_release(&t->dispatch);
  lua_sethook(L, trace_on_event, own_mask(t->vm) | LUA_MASKCOUNT, 1);
  t->counted = true;
  t->cost += t->costs.sethook;
}

void trace_await_no_more(trace_t *t, lua_State *L) {
  if (!t->may_count) return;
  if (luajit_dispatch_is_armed(&t->dispatch) && luajit_dispatch_disarm(&t->dispatch)) return;
  trace_arm(t->vm, L);
  if (t->counted) t->cost += t->costs.sethook;
  t->counted = false;
}

/* A coroutine made before start has no hook yet; those made later inherit it. */
COLD static void arm_resumed(trace_t *t, lua_State *L, lua_Debug *ar, uint32_t how) {
  lua_State *co = NULL;
  int pushed = 0;
  if (how == TRACE_RESUMES) {
    pushed = lua_getlocal(L, ar, 1) != NULL ? 1 : 0;
  } else if (lua_getinfo(L, "f", ar)) {
    pushed = lua_getupvalue(L, -1, 1) != NULL ? 2 : 1;
  }
  if (pushed > 0) co = lua_tothread(L, -1);
  if (co != NULL && co != L) trace_arm_if_free(t->vm, co);
  lua_pop(L, pushed);
}

/* -- frames ----------------------------------------------------------------------------------------------------------- */

static void show(trace_t *t, const trace_coroutine_t *co, const trace_frame_t *frame, uint64_t until) {
  const trace_node_t *node = &t->nodes[frame->node];
  if ((node->flags & TRACE_SHOWN) && node->function != 0)
    live_event(&t->vm->live, node->function, co->track, frame->start, until - frame->start);
}

static void show_open(trace_t *t, const trace_coroutine_t *co, const trace_frame_t *top, uint64_t until) {
  const trace_chunk_t *chunk = co->chunk;
  for (const trace_frame_t *frame = top;; frame--) {
    if (frame == chunk->frames && chunk->below == NULL) return;
    show(t, co, frame, until);
    if (frame != chunk->frames) continue;
    chunk = chunk->below;
    frame = chunk->frames + TRACE_CHUNK;
  }
}

void trace_show_open(trace_t *t) {
  if (!t->timeline) return;
  trace_store(t);
  for (uint32_t i = 0; i < t->used_coroutines; i++) {
    const trace_coroutine_t *co = &t->coroutines[i];
    if (co->L != NULL) show_open(t, co, co->top, co->running ? t->last : co->left);
  }
}

static void close_top(trace_t *t) {
  const trace_frame_t *frame = t->top;
  if (t->timeline) show(t, t->current, frame, t->last);
  if ((frame->how & TRACE_FRAME_TAKEN_UP) == 0) {
    trace_node_t *node = &t->nodes[frame->node];
    if (node->labels != t->current->labels) trace_select_cell(t, node, t->current->labels);
    trace_note_end(node->values, trace_local_time(t) - frame->local_start);
  }
  trace_pop(t);
}

/* Whether a call is among the open ones, the bottom included. */
static bool is_open(const trace_t *t, uint64_t id) {
  const trace_chunk_t *chunk = t->current->chunk;
  for (const trace_frame_t *frame = t->top;; frame--) {
    if (frame->id == id) return true;
    if (frame != chunk->frames) continue;
    chunk = chunk->below;
    if (chunk == NULL) return false;
    frame = chunk->frames + TRACE_CHUNK;
  }
}

static void open_frame(trace_t *t, uint64_t id, uint32_t node, uint32_t how) {
  trace_frame_t *frame = trace_push(t);
  if (frame == NULL) { /* no room: what is open is given up, and taken up again from Lua's own stack */
    live_lose(&t->vm->live, LOSS_OVERFLOW, 1);
    while (!at_bottom(t)) trace_pop(t);
    frame = trace_push(t);
    if (frame == NULL) return;
  }
  if (t->nodes[node].kind != SITE_LUA) how |= TRACE_FRAME_OTHER;
  *frame = (trace_frame_t){
      .id = id, .start = t->last, .local_start = trace_local_time(t), .node = node, .how = how};
}

/* The frames of L as Lua has them, the innermost TAKE_UP_MAX of them: at start, and whenever ours do not fit. */
COLD void trace_take_up(trace_t *t, lua_State *L, int level) {
  lua_Debug ar;
  int count = 0;
  while (!at_bottom(t)) trace_pop(t);
  while (count < TAKE_UP_MAX && lua_getstack(L, level + count, &ar)) count++;
  for (int i = count - 1; i >= 0; i--) {
    site_t site;
    if (!lua_getstack(L, level + i, &ar) || lv_call_id(&ar) == 0 || !lua_getinfo(L, "f", &ar)) continue;
    if (lua_isfunction(L, -1)) { /* 5.1 has nothing to show for a lost tail call */
      site_of_function(t->vm, t->site, &t->layout, L, &ar, level + i, &site);
      open_frame(t, site.id, trace_child(t, t->top->node, &site), TRACE_FRAME_TAKEN_UP);
    }
    lua_pop(L, 1);
  }
}

/* The view by coroutine: each body is a label of its own, and there are not many bodies. */
COLD static void label_coroutine(trace_t *t, lua_State *L) {
  if (t->calibrating || L == t->vm->main || (uint64_t)(uintptr_t)L == t->vm->main_state) return;
  char text[256];
  lua_Debug ar;
  if (!lua_getstack(L, 0, &ar) || !lua_getinfo(L, "S", &ar)) return;
  int len = snprintf(text, sizeof text, "coroutine%c%s:%d", 0, ar.short_src, ar.linedefined);
  if (len <= 0 || (size_t)len >= sizeof text) return;
  live_ref_t set = live_string(&t->vm->live, text, (size_t)len + 1);
  if (set == 0) return;
  if (t->current->labels == t->current->body_labels) t->labels = t->current->labels = set;
  t->current->body_labels = set;
}

/* Whether calls of the node go into the timeline: one of the patterns fits the function's name, its file or the file's last
 * part. What the caller calls it is the only name there is in a hook. */
static bool fits(const char *filter, const char *text) {
  char pattern[256];
  for (const char *at = filter; *at != '\0';) {
    size_t len = strcspn(at, "\n");
    if (len > 0 && len < sizeof pattern) {
      memcpy(pattern, at, len);
      pattern[len] = '\0';
      if (fnmatch(pattern, text, 0) == 0) return true;
    }
    at += at[len] == '\n' ? len + 1 : len;
  }
  return false;
}

COLD static void judge(trace_t *t, lua_State *L, lua_Debug *ar, trace_node_t *node) {
  node->flags |= TRACE_JUDGED;
  ar->name = NULL;
  bool known = t->filter[0] != '\0' && lua_getinfo(L, "nS", ar);
  if (known && ar->source != NULL) {
    const char *file = ar->source[0] == '@' || ar->source[0] == '=' ? ar->source + 1 : ar->short_src;
    const char *slash = strrchr(file, '/');
    known = !fits(t->filter, file) && !(slash != NULL && fits(t->filter, slash + 1)) &&
            !(ar->name != NULL && fits(t->filter, ar->name));
  }
  if (!known) node->flags |= TRACE_SHOWN;
}

/* -- calls and returns ---------------------------------------------------------------------------------------------------- */

static void count_call(trace_t *t, uint32_t node) {
  trace_node_t *n = &t->nodes[node];
  if (n->labels != t->current->labels) trace_select_cell(t, n, t->current->labels);
  trace_add(&n->values[TRACE_CALLS], 1);
  if (node == TRACE_OVERFLOW) live_lose(&t->vm->live, LOSS_OVERFLOW, 1);
  if (n->depth > TRACE_MAX_DEPTH) live_lose(&t->vm->live, LOSS_TRUNCATED, 1);
}

static void enter(trace_t *t, lua_State *L, lua_Debug *ar, const site_t *site, bool tail) {
  uint32_t parent = tail ? trace_tail_parent(t, t->top->node) : t->top->node;
  uint64_t id = tail ? t->top->id : site->id;
  if (tail) close_top(t);
  uint32_t node = trace_child(t, parent, site);
  uint64_t calls = atomic_load_explicit(&t->nodes[node].values[TRACE_CALLS], memory_order_relaxed);
  if (calls % TRACE_RECHECK == TRACE_RECHECK - 1 && !trace_is_still(t, node, site))
    node = trace_child(t, parent, site);
  count_call(t, node);
  if (t->timeline && !(t->nodes[node].flags & TRACE_JUDGED)) judge(t, L, ar, &t->nodes[node]);
  open_frame(t, id, node, tail ? TRACE_FRAME_TAIL : 0);
  uint32_t flags = t->nodes[node].flags;
  if (flags & (TRACE_RESUMES | TRACE_WRAPS) && t->rules != TRACE_BY_PLACE)
    arm_resumed(t, L, ar, flags & (TRACE_RESUMES | TRACE_WRAPS));
  t->cost += t->costs.call[site->kind];
}

/* 5.1: the topmost function has replaced its caller, which shows only now. It began when the caller ended. */
COLD static void replace_caller(trace_t *t) {
  trace_frame_t callee = *t->top;
  trace_add(&t->nodes[callee.node].values[TRACE_CALLS], (uint64_t)-1);
  trace_pop(t);
  uint64_t id = t->top->id;
  uint32_t parent = trace_tail_parent(t, t->top->node);
  close_top(t);
  callee.id = id;
  callee.node = trace_child_like(t, parent, callee.node);
  callee.how |= TRACE_FRAME_TAIL;
  count_call(t, callee.node);
  trace_frame_t *frame = trace_push(t);
  if (frame != NULL) *frame = callee;
}

static bool is_lua(const trace_t *t, const trace_frame_t *frame) {
  return t->nodes[frame->node].kind == SITE_LUA;
}

static const trace_frame_t *below_top(const trace_t *t) {
  if (t->top != t->low) return t->top - 1;
  const trace_chunk_t *below = t->current->chunk->below;
  return below != NULL ? &below->frames[TRACE_CHUNK - 1] : t->top;
}

/* 5.1: brings ours into step before the time is charged. `id` is the call the event is about; `entered`: it is new. */
static void settle_array(trace_t *t, uint64_t id, bool entered) {
  uint64_t remaining = entered ? id - 1 : id; /* the topmost call that was there before */
  while (!at_bottom(t) && t->top->id > remaining) {
    const trace_frame_t *caller = below_top(t);
    bool in_its_place = t->top->id == caller->id + 1 && caller->id <= remaining; /* else an error left both */
    if (in_its_place && caller->id != 0 && is_lua(t, caller) && is_lua(t, t->top))
      replace_caller(t);
    else
      break;
  }
}

static void on_call(trace_t *t, lua_State *L, lua_Debug *ar, const site_t *site, bool tail) {
  switch (t->rules) {
    case TRACE_BY_NUMBER:
      while (!at_bottom(t) && t->top->id >= site->id) close_top(t);
      if (t->top->id != site->previous) trace_take_up(t, L, 1);
      break;
    case TRACE_BY_PLACE: {
      while (!at_bottom(t) && t->top->id > site->id) close_top(t);
      if (!at_bottom(t) && t->top->id == site->id) {
        /* a Lua function that has not returned, in whose place another one is called, has called it as a tail; or an error has
         * left it, and who caught the error now calls: seldom the one that had called it, which must be C code */
        bool by_another =
            t->site == SITE_BY_LUAJIT && below_top(t)->id != site->previous && is_open(t, site->previous);
        tail = is_lua(t, t->top) && !by_another;
        if (!tail) close_top(t);
      }
      if (!tail && t->site == SITE_BY_LUAJIT && is_open(t, site->previous)) /* errors have left those above */
        while (t->top->id != site->previous) close_top(t);
      lua_Debug caller;
      if (at_bottom(t) && lua_getstack(L, 1, &caller)) trace_take_up(t, L, 1);
      break;
    }
    case TRACE_BY_RECORD:
      if (tail) { /* its record is the caller's, or (up to 5.3) the one above, from which it will be moved */
        if (t->top->id != site->id && t->top->id != site->previous) {
          uint64_t there = is_open(t, site->id) ? site->id : site->previous;
          if (is_open(t, there))
            while (t->top->id != there) close_top(t);
          else
            trace_take_up(t, L, 1);
        }
        if (at_bottom(t)) tail = false;
      } else if (t->top->id != site->previous) {
        if (is_open(t, site->previous))
          while (t->top->id != site->previous) close_top(t);
        else
          trace_take_up(t, L, 1);
      }
      break;
  }
  if (at_bottom(t)) label_coroutine(t, L);
  enter(t, L, ar, site, tail);
  if (t->rules == TRACE_BY_PLACE && site->kind != SITE_LUA) trace_await_end(t, L);
}

/* LuaJIT, when its memory is not read: the frame of a function with variable arguments, copied upwards since it was called. */
static bool is_copy_of_top(trace_t *t, uint64_t id) {
  if (t->rules != TRACE_BY_PLACE || t->site != SITE_BY_INTERFACE) return false;
  while (!at_bottom(t) && t->top->id > id) close_top(t);
  return !at_bottom(t) && t->top->id < id && is_lua(t, t->top);
}

static void on_return(trace_t *t, lua_State *L, const site_t *site) {
  if (is_copy_of_top(t, site->id)) {
    /* closed below */
  } else if (t->top->id != site->id) {
    if (!is_open(t, site->id))
      return; /* it began before it was followed; the next call shows where it stands */
    while (t->top->id != site->id) close_top(t);
  }
  if (at_bottom(t)) return;
  site_kind_t kind = (site_kind_t)t->nodes[t->top->node].kind;
  close_top(t);
  t->cost += t->costs.leave[kind];
  if (t->rules == TRACE_BY_PLACE && !is_lua(t, t->top)) trace_await_end(t, L);
}

/* LuaJIT: an instruction runs, so whatever was above its function has ended. */
COLD static void on_count(trace_t *t, lua_State *L, const site_t *site) {
  if (!is_copy_of_top(t, site->id) && !is_open(t, site->id)) trace_take_up(t, L, 0);
  while (!at_bottom(t) && t->top->id > site->id) close_top(t);
  trace_await_no_more(t, L);
  t->cost += t->costs.leave[SITE_C];
}

/* LuaJIT: the event shows that the topmost function, of C, has raised an error or yielded: another instruction ran than the one that was
 * waited for. From now on any will be waited for when this path calls it. */
COLD static void note_leaving(trace_t *t, lua_State *L, int event, const site_t *site) {
  const uint32_t known = TRACE_RESUMES | TRACE_WRAPS | TRACE_YIELDS;
  if (!luajit_dispatch_is_armed(&t->dispatch) || is_lua(t, t->top) || at_bottom(t) ||
      (t->nodes[t->top->node].flags & known) != 0)
    return;
  bool leaves = t->current->L != L;
  if (!leaves && event == LUA_HOOKCALL) {
    leaves = site->id != t->top->id && site->previous < t->top->id && is_open(t, site->previous);
  } else if (!leaves) {
    const trace_chunk_t *chunk = t->current->chunk;
    const trace_frame_t *frame =
        t->top; /* its caller in Lua: what called it in between is of C, like pcall */
    while (frame != chunk->frames && !is_lua(t, frame)) frame--;
    leaves = frame->id != site->id && is_lua(t, frame);
  }
  if (leaves) t->nodes[t->top->node].flags |= TRACE_LEAVES;
}

/* -- coroutines --------------------------------------------------------------------------------------------------------- */

/* It stops running: resumed again, its clock goes on where it stood. */
static void suspend(trace_t *t, trace_coroutine_t *co) {
  co->left = t->last;
  co->left_corrected = t->last_corrected;
  co->running = false;
  if (co->top == co->chunk->frames && co->chunk->below == NULL)
    trace_forget_coroutine(t, co); /* it has ended */
}

void trace_leave_innermost(trace_t *t) {
  trace_coroutine_t *co = t->chain[--t->chain_length];
  suspend(t, co);
}

/* Its frames go on below another path than before. */
COLD static void move_path(trace_t *t, uint32_t parent) {
  const trace_chunk_t *first = t->current->chunk;
  while (first->below != NULL) first = first->below;
  if (first->frames[0].node == parent) return;
  for (trace_chunk_t *chunk = (trace_chunk_t *)(uintptr_t)first;; chunk = chunk->above) {
    trace_frame_t *end = chunk == t->current->chunk ? t->top + 1 : chunk->frames + TRACE_CHUNK;
    for (trace_frame_t *frame = chunk->frames; frame < end; frame++) {
      if (chunk == first && frame == chunk->frames) {
        frame->node = parent;
        continue;
      }
      if (frame->how & TRACE_FRAME_TAIL) parent = trace_tail_child(t, parent);
      frame->node = parent = trace_child_like(t, parent, frame->node);
    }
    if (chunk == t->current->chunk) return;
  }
}

COLD void trace_resume(trace_t *t, lua_State *L, uint32_t parent) {
  trace_coroutine_t *co = trace_coroutine(t, L);
  if (co == NULL) co = trace_new_coroutine(t, L, t->last);
  if (co == NULL || t->chain_length == TRACE_CHAIN) { /* no room: it counts as part of what runs */
    trace_unload(t);
    if (t->chain_length == 0) return;
    trace_load(t, t->chain[t->chain_length - 1]);
    return;
  }
  co->away += t->last_corrected - co->left_corrected;
  co->running = true;
  t->chain[t->chain_length++] = co;
  trace_load(t, co);
  move_path(t, parent);
}

/* The running coroutine has yielded or ended at the last event, and was not resumed by the library: since then ran the function of C that
 * had resumed it, or what had interrupted the topmost function; or nothing of the VM, if there was none. */
COLD static void charge_resumer(trace_t *t, uint64_t now) {
  int64_t from = t->last_corrected;
  const trace_coroutine_t *resumer = t->chain_length < 2 ? NULL : t->chain[t->chain_length - 2];
  if (resumer != NULL && now >= t->last) {
    trace_node_t *node = &t->nodes[resumer->top->node];
    if (node->labels != resumer->labels) trace_select_cell(t, node, resumer->labels);
    trace_charge_node(t, node, now);
  } else {
    trace_skip(t, now);
  }
  t->away = t->current->away += t->last_corrected - from;
}

/* The event is in another coroutine than the last one: it was resumed, or the one that ran has yielded or ended. */
COLD static void change_coroutine(trace_t *t, lua_State *L, uint64_t now) {
  bool has_yielded = t->nodes[t->top->node].flags & TRACE_YIELDS, has_ended = at_bottom(t);
  trace_store(t);
  for (uint32_t i = t->chain_length; i-- > 0;) {
    if (t->chain[i]->L != L) continue;
    if (i + 2 == t->chain_length && (has_ended || (has_yielded && resumer(t) == NULL)))
      charge_resumer(t, now);
    else
      trace_charge(t, now);
    while (t->chain_length > i + 1) trace_leave_innermost(t);
    trace_load(t, t->chain[i]);
    return;
  }
  if (has_yielded || has_ended) { /* to C code, which has now resumed another one */
    charge_resumer(t, now);
    if (t->chain_length > 0) trace_leave_innermost(t);
  } else {
    trace_charge(t, now);
  }
  uint32_t parent = TRACE_ROOT;
  if (t->chain_length > 0) {
    trace_load(t, t->chain[t->chain_length - 1]);
    parent = t->top->node;
  }
  trace_resume(t, L, parent);
}

/* -- labels --------------------------------------------------------------------------------------------------------------- */

void trace_labels_changed(vm_t *vm, lua_State *L) {
  trace_t *t = vm->trace;
  trace_coroutine_t *co = trace_coroutine(t, L);
  live_ref_t own = label_get(vm, L);
  if (co == NULL) return;
  co->labels = own != 0 ? own : co->body_labels;
  if (co == t->current) t->labels = co->labels;
}

/* -- the event ---------------------------------------------------------------------------------------------------------- */

COLD void trace_take(trace_t *t, lua_State *L, lua_Debug *ar, uint64_t now) {
  site_t site;
  if (t->current == NULL) { /* there was no room to follow what ran */
    trace_skip(t, now);
    trace_resume(t, L, TRACE_ROOT);
    if (t->current == NULL) return;
  }
  if (lv_is_tail_return(ar->event)) { /* 5.1: the callee's return has said it all */
    trace_charge(t, now);
    return;
  }
  live_set_duration(&t->vm->live, (int64_t)(now - t->begun)); /* for whoever reads while it runs */
  site_read(t->vm, t->site, &t->layout, L, ar, ar->event != LUA_HOOKRET, &site);
  if (t->rules == TRACE_BY_NUMBER) site.previous = site.id - 1; /* Lua tells of lost tail calls in between */
  if (t->rules == TRACE_BY_PLACE) note_leaving(t, L, ar->event, &site);
  if (t->current->L != L)
    change_coroutine(t, L, now);
  else if (ar->event == LUA_HOOKRET && t->nodes[t->top->node].flags & TRACE_YIELDS && t->top->id == site.id)
    charge_resumer(t, now); /* nobody saw who resumed it: C code did, at some time of its own */
  else if (t->rules == TRACE_BY_NUMBER)
    settle_array(t, site.id, ar->event == LUA_HOOKCALL);
  if (t->current == NULL) return; /* no room for a coroutine, and none that it could count for */
  trace_charge(t, now);
  switch (ar->event) {
    case LUA_HOOKRET:
      on_return(t, L, &site);
      break;
    case LUA_HOOKCOUNT:
      if (t->rules == TRACE_BY_PLACE) on_count(t, L, &site);
      break;
    case LUA_HOOKLINE:
      break;
    default:
      on_call(t, L, ar, &site, lv_is_tail_call(ar->event));
  }
}
