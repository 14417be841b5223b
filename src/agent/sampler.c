/* SPDX-License-Identifier: MIT */
/* Taking a sample; see sampler.h. */
#include "agent/sampler.h"

#include <string.h>

#include "agent/name.h"
#include "agent/time.h"

/* 5.1 keeps a level for each lost tail call, of which there may be millions in a row: all are skipped, by
 * doubling steps. */
static bool is_lost_tail_call(lua_State *L, int level) {
  lua_Debug ar;
  return lua_getstack(L, level, &ar) && lua_getinfo(L, "S", &ar) && strcmp(ar.what, "tail") == 0;
}

static int past_lost_tail_calls(lua_State *L, int level) {
  int step = 1;
  while (is_lost_tail_call(L, level + step)) step = step < (1 << 24) ? step * 2 : step;
  int low = level + step / 2, high = level + step; /* low is one of the lost, high is not */
  if (step == 1) return high;
  while (high - low > 1) {
    int middle = low + (high - low) / 2;
    if (is_lost_tail_call(L, middle))
      low = middle;
    else
      high = middle;
  }
  return high;
}

/* Frames of one coroutine, leaf first, appended at `count`. Sets *cut when there were more than fit. */
static size_t capture_state(vm_t *vm, lua_State *L, int level, size_t count, bool *cut, bool *full) {
  captured_frame_t *frames = vm->scratch->frames;
  lua_Debug ar;
  while (lua_getstack(L, level, &ar)) {
    if (count == CAPTURE_MAX_FRAMES) {
      *cut = true;
      break;
    }
    if (!lua_getinfo(L, "Slf", &ar)) break;
    if (strcmp(ar.what, "tail") == 0) {
      lua_pop(L, 1);
      level = past_lost_tail_calls(L, level);
      continue;
    }
    live_ref_t function = function_of_frame(vm, L, &ar, level);
    lua_pop(L, 1);
    if (function == 0) {
      *full = true;
      break;
    }
    frames[count++] = (captured_frame_t){function, ar.currentline > 0 ? ar.currentline : 0};
    level++;
  }
  return count;
}

static size_t capture(vm_t *vm, lua_State *L, int level, bool *cut, bool *full) {
  size_t count = capture_state(vm, L, level, 0, cut, full);
  if (vm->discover.works && L != vm->main) {
    for (L = discover_resumer(&vm->discover, L); L != NULL && !*cut && !*full;) {
      count = capture_state(vm, L, 0, count, cut, full);
      L = L != vm->main ? discover_resumer(&vm->discover, L) : NULL;
    }
    return count;
  }
  if (!vm->following || vm->running != L) return count; /* LuaJIT, or a coroutine resumed behind our back */
  for (resume_link_t *link = vm->links; link != NULL && !*cut && !*full; link = link->outer)
    count = capture_state(vm, link->from, 0, count, cut, full);
  return count;
}

/* The node of the path, root first. What it shares with the last sample's path needs no look-up. */
static live_ref_t enter_path(vm_t *vm, size_t count, bool cut) {
  const scratch_t *s = vm->scratch;
  path_t *path = &vm->scratch->path;
  live_ref_t node = LIVE_ROOT;
  size_t depth = 0;
  bool shared = true;
  size_t total = count + (cut ? 1 : 0);
  for (; depth < total; depth++) {
    size_t from_leaf = total - 1 - depth;
    captured_frame_t frame =
        from_leaf < count ? s->frames[from_leaf] : (captured_frame_t){vm->truncated_function, 0};
    path_step_t *step = &path->steps[depth];
    shared = shared && depth < path->depth && step->frame.function == frame.function &&
             step->frame.line == frame.line;
    if (shared) {
      node = step->node;
      continue;
    }
    node = live_child(&vm->live, node, frame.function, frame.line);
    if (node == 0) break;
    *step = (path_step_t){.frame = frame, .node = node};
    path->depth = depth + 1;
  }
  if (node != 0) path->depth = depth;
  return node;
}

static void begin_sample(vm_t *vm) {
  vm->now = time_monotonic();
  live_set_duration(&vm->live, (int64_t)(vm->now - vm->started));
  atomic_fetch_add_explicit(&vm->samples, 1, memory_order_relaxed);
}

void sampler_take(vm_t *vm, lua_State *L, int level, uint64_t weight) {
  uint64_t values[PROFILE_MAX_TYPES] = {1, weight};
  bool cut = false, full = false;
  begin_sample(vm);
  size_t count = capture(vm, L, level, &cut, &full);
  if (count == 0 && !full) {
    live_lose(&vm->live, LOSS_UNATTRIBUTED, 1);
    live_add(&vm->live, vm->outside_node, 0, values);
    return;
  }
  if (cut) live_lose(&vm->live, LOSS_TRUNCATED, 1);
  live_ref_t node = full ? 0 : enter_path(vm, count, cut);
  if (node == 0)
    live_add_overflow(&vm->live, values);
  else
    live_add(&vm->live, node, label_get(vm, L), values);
  name_search(vm, L);
}

/* -- walked stacks ------------------------------------------------------------------------------------------- */

/* A frame that stands where it stood in the last sample, at the same instruction of the same function, needs neither names
 * nor lines; its function is looked at all the same, because addresses are reused. */
static bool is_as_before(vm_t *vm, walk_t *walk, const walk_frame_t *frame, const path_t *path, size_t depth,
                         uint64_t *checked) {
  uint64_t key = walked_key(frame);
  if (depth >= path->depth || path->steps[depth].key != key || path->steps[depth].pc != frame->pc)
    return false;
  if (*checked == key) return true; /* recursion */
  *checked = key;
  return walked_still(vm, walk, frame);
}

live_ref_t sampler_walked_node(vm_t *vm, walk_t *walk, path_t *path, size_t begin) {
  live_ref_t node = begin > 0 ? path->steps[begin - 1].node : LIVE_ROOT;
  size_t total = begin + walk->frame_count + (walk->truncated ? 1 : 0), kept = path->depth;
  uint64_t checked = 0;
  bool shared = true;
  static const walk_frame_t cut = {.kind = WALK_BUILTIN}; /* key of no built-in: they are numbered from 2 */
  for (size_t depth = begin; depth < total; depth++) {
    size_t from_leaf = total - 1 - depth;
    const walk_frame_t *frame = from_leaf < walk->frame_count ? &walk->frames[from_leaf] : &cut;
    shared = shared && is_as_before(vm, walk, frame, path, depth, &checked);
    if (!shared) {
      captured_frame_t captured = {vm->truncated_function, 0};
      if (depth < kept) kept = path->depth = depth; /* what follows is being rewritten */
      if (frame != &cut) captured.function = walked_function(vm, walk, frame, &captured.line);
      node = captured.function != 0 ? live_child(&vm->live, node, captured.function, captured.line) : 0;
      if (node == 0) return 0;
      path->steps[depth] = (path_step_t){walked_key(frame), frame->pc, captured, node};
      path->depth = depth + 1;
    }
    node = path->steps[depth].node;
  }
  path->depth = total;
  return node;
}

void sampler_take_walk(vm_t *vm, walk_t *walk, walk_reason_t reason, uint64_t weight, label_state_t state) {
  uint64_t values[PROFILE_MAX_TYPES] = {1, weight};
  begin_sample(vm);
  if (reason == WALK_OK) {
    if (walk->truncated) live_lose(&vm->live, LOSS_TRUNCATED, 1);
    vm->sampled_node = sampler_walked_node(vm, walk, &vm->scratch->path, 0);
    vm->sampled_labels = label_of_walk(vm, walk, state, LABEL_NO_TYPE);
    if (vm->sampled_node == 0)
      live_add_overflow(&vm->live, values);
    else
      live_add(&vm->live, vm->sampled_node, vm->sampled_labels, values);
    return;
  }
  atomic_fetch_add_explicit(&vm->rejects[reason], 1, memory_order_relaxed);
  walk->vmstate = WALK_VM_NONE;
  walk->states[0].state = 0; /* of no coroutine: no labels */
  vm->sampled_node = reason == WALK_NO_STATE ? vm->outside_node : vm->unreadable_node;
  vm->sampled_labels = label_of_walk(vm, walk, state, LABEL_NO_TYPE);
  if (reason != WALK_NO_STATE || state != LABEL_WAITING) live_lose(&vm->live, LOSS_UNATTRIBUTED, 1);
  live_add(&vm->live, vm->sampled_node, vm->sampled_labels, values);
}

void sampler_take_again(vm_t *vm, uint64_t weight) {
  uint64_t values[PROFILE_MAX_TYPES] = {1, weight};
  begin_sample(vm);
  if (vm->sampled_node == 0)
    live_add_overflow(&vm->live, values);
  else
    live_add(&vm->live, vm->sampled_node, vm->sampled_labels, values);
}
