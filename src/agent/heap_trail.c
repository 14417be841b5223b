/* SPDX-License-Identifier: MIT */
/* The stack at the last allocation; see heap_trail.h. */
#include "agent/heap_trail.h"

#include "walk/family.h"
#include "walk/machine.h"

enum { MOST_NEW = 16 /* frames; with more a full walk costs no more */ };

static uint64_t load64(uint64_t address) {
  return *(const uint64_t *)(uintptr_t)address;
}

static uint64_t caller_of(const layout_puc_t *l, uint64_t call) {
  return l->ci_previous != LAYOUT_ABSENT ? load64(call + l->ci_previous) : call - l->ci_size;
}

static uint64_t first_call(const layout_puc_t *l, uint64_t state) {
  return l->ci_previous == LAYOUT_ABSENT ? load64(state + l->state_base_ci) : state + l->state_base_ci;
}

/* 5.1 keeps the pc of the running function in its state. */
static uint64_t pc_of(const layout_puc_t *l, uint64_t state, uint64_t call, bool top) {
  return top && l->state_savedpc != LAYOUT_ABSENT ? load64(state + l->state_savedpc)
                                                  : load64(call + l->ci_savedpc);
}

static bool is_same(const layout_puc_t *l, const heap_step_t *step, uint64_t state, uint64_t call, bool top) {
  return step->call == call && load64(load64(call + l->ci_func)) == step->function &&
         (step->pc == 0 || step->pc == pc_of(l, state, call, top));
}

/* -- the coroutines ------------------------------------------------------------------------------------------ */

/* A main thread is nobody's to resume. A coroutine may have been resumed by others since, from deeper or less deep: then its
 * innermost protected call lies elsewhere on the native stack. */
static bool runs_here(const layout_puc_t *l, const walk_t *walk, const walk_state_t *last) {
  uint64_t place = load64(last->state + l->state_jump);
  if (last->place == walk->stack_high - 1) return place == 0; /* unprotected, as it was */
  if (last->state != walk->likely_main && place != last->place) return false;
  return place >= walk->registers.sp && place < walk->stack_high;
}

/* While a stack is being moved (from 5.4.5 on) call records hold distances instead of addresses. */
static bool is_whole(const layout_puc_t *l, uint64_t state, uint64_t call) {
  return load64(call + l->ci_func) >= load64(state + l->state_stack);
}

/* A coroutine that resumed another one stands where it stood. */
static bool stands_still(const heap_trail_t *trail, const walk_t *walk, uint32_t i) {
  const layout_puc_t *l = &walk->layout->puc;
  const walk_state_t *last = &walk->states[i];
  uint64_t place = load64(last->state + l->state_jump), call = load64(last->state + l->state_ci);
  if (place != (last->place == walk->stack_high - 1 ? 0 : last->place) || !is_whole(l, last->state, call))
    return false;
  for (uint32_t at = trail->begins[i - 1]; at > trail->begins[i]; call = caller_of(l, call))
    if (!is_same(l, &trail->steps[--at], last->state, call, false)) return false;
  return call == first_call(l, last->state);
}

static bool may_run_others(walk_t *walk, const walk_frame_t *top) {
  return top->kind != WALK_LUA && nature_of(walk, top->code) != WALK_C_INERT;
}

/* -- following ------------------------------------------------------------------------------------------------ */

/* The trail's length up to and including the call, 0 when it is not on it: near its end, if at all. */
static uint32_t length_up_to(const heap_trail_t *trail, uint64_t call) {
  uint32_t lowest = trail->count > MOST_NEW ? trail->count - MOST_NEW : 0;
  if (lowest < trail->begins[0]) lowest = trail->begins[0];
  for (uint32_t at = trail->count; at > lowest; at--)
    if (trail->steps[at - 1].call == call) return at;
  return 0;
}

bool heap_trail_follow(heap_trail_t *trail, walk_t *walk, uint32_t *kept) {
  const layout_puc_t *l = &walk->layout->puc;
  walk_state_t *running = &walk->states[0];
  uint64_t calls[MOST_NEW], state = running->state;
  uint32_t above = 0, length = 0;
  if (trail->count == 0 || !walk->last_is_alive || !runs_here(l, walk, running) ||
      puc_finalizes(walk, running))
    return false;
  uint64_t call = load64(state + l->state_ci), first = first_call(l, state);
  if (call == first || !is_whole(l, state, call)) return false;
  running->call = call;
  running->stack = load64(state + l->state_stack); /* it may have been moved since */
  running->stack_end = load64(state + l->state_stack_last);
  while ((length = length_up_to(trail, call)) == 0) {
    if (above == MOST_NEW || call == first) return false;
    calls[above++] = call;
    call = caller_of(l, call);
  }
  *kept = length;
  for (uint32_t at = length; at > trail->begins[0]; at--, call = caller_of(l, call)) {
    if (trail->steps[at - 1].call != call) return false;
    if (is_same(l, &trail->steps[at - 1], state, call, at == length && above == 0)) continue;
    *kept = at - 1;
  }
  if (call != first) return false;
  for (uint32_t i = 1; i < walk->state_count; i++)
    if (!stands_still(trail, walk, i)) return false;
  if (length - *kept + above > MOST_NEW || length + above > WALK_MAX_FRAMES) return false;
  /* from the leaf down to what is kept: the frames above the trail's, and those of it that have changed; the topmost always,
   * whose pc may be elsewhere than in its record */
  if (above == 0 && *kept == length) --*kept;
  for (uint32_t at = length; at > *kept; at--) calls[above++] = trail->steps[at - 1].call;
  walk->frame_count = 0;
  for (uint32_t i = 0; i < above; i++) {
    if (!puc_frame(walk, running, calls[i], i == 0, &walk->frames[i])) return false;
    walk->frame_count++;
  }
  if (may_run_others(walk, &walk->frames[0])) return false;
  for (uint32_t i = 0; i < above; i++) {
    const walk_frame_t *frame = &walk->frames[above - 1 - i];
    bool top = i == above - 1;
    trail->steps[*kept + i] =
        (heap_step_t){calls[above - 1 - i], frame->function != 0 ? frame->function : frame->code,
                      frame->kind == WALK_LUA ? pc_of(l, state, calls[above - 1 - i], top) : 0};
  }
  trail->count = *kept + above;
  walk->truncated = walk->collector_marked = false;
  walk->vmstate = WALK_VM_NONE;
  return true;
}

/* -- learning -------------------------------------------------------------------------------------------------- */

void heap_trail_learn(heap_trail_t *trail, const walk_t *walk) {
  const layout_puc_t *l = &walk->layout->puc;
  uint32_t at = walk->frame_count; /* root first: filled from its end, leaf first as the frames are */
  trail->count = 0;
  if (walk->layout->family != LAYOUT_PUC || walk->truncated || walk->collector_marked ||
      walk->frame_count == 0)
    return;
  for (uint32_t i = 0; i < walk->state_count; i++) {
    const walk_state_t *state = &walk->states[i];
    uint64_t first = first_call(l, state->state);
    if (state->call != first && !is_whole(l, state->state, state->call)) return;
    for (uint64_t call = state->call; call != first; call = caller_of(l, call)) {
      if (at == 0) return; /* not the frames of these records */
      const walk_frame_t *frame = &walk->frames[walk->frame_count - at];
      trail->steps[--at] = (heap_step_t){
          call, frame->function != 0 ? frame->function : frame->code,
          frame->kind == WALK_LUA ? pc_of(l, state->state, call, i == 0 && call == state->call) : 0};
    }
    trail->begins[i] = at;
  }
  if (at == 0) trail->count = walk->frame_count;
}
