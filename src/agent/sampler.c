/* SPDX-License-Identifier: MIT */
/* Taking a sample; see sampler.h. */
#include "agent/sampler.h"

#include <string.h>

#include "agent/label.h"
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
  scratch_t *s = vm->scratch;
  live_ref_t node = LIVE_ROOT;
  size_t depth = 0;
  bool shared = true;
  size_t total = count + (cut ? 1 : 0);
  for (; depth < total; depth++) {
    size_t from_leaf = total - 1 - depth;
    captured_frame_t frame =
        from_leaf < count ? s->frames[from_leaf] : (captured_frame_t){vm->truncated_function, 0};
    shared = shared && depth < s->last_depth && s->last_path[depth].function == frame.function &&
             s->last_path[depth].line == frame.line;
    if (shared) {
      node = s->last_nodes[depth];
      continue;
    }
    node = live_child(&vm->live, node, frame.function, frame.line);
    if (node == 0) break;
    s->last_path[depth] = frame;
    s->last_nodes[depth] = node;
    s->last_depth = depth + 1;
  }
  if (node != 0) s->last_depth = depth;
  return node;
}

void sampler_take(vm_t *vm, lua_State *L, int level, uint64_t weight) {
  uint64_t values[PROFILE_MAX_TYPES] = {1, weight};
  bool cut = false, full = false;
  vm->now = time_monotonic();
  live_set_duration(&vm->live, (int64_t)(vm->now - vm->started));
  vm->samples++;
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
