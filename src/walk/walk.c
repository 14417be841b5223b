/* SPDX-License-Identifier: MIT */
/* A walk as a whole: frames of all running coroutines, and the choice between the families; see walk.h. */
#include "walk/walk.h"

#include "walk/family.h"

static bool is_puc(const walk_t *walk) {
  return walk->layout->family == LAYOUT_PUC;
}

bool walk_add_collector(walk_t *walk) {
  if (walk->frame_count == WALK_MAX_FRAMES) return false;
  walk->frames[walk->frame_count++] = (walk_frame_t){.kind = WALK_COLLECTOR};
  walk->collector_marked = true;
  return true;
}

/* Where the finalizer begins is not always told: then the collector stands at the root. */
static void mark_collector(walk_t *walk) {
  if (!walk->mark_collector || walk->collector_marked || walk->frame_count == 0 || walk->truncated) return;
  const walk_state_t *state = &walk->states[0];
  if (is_puc(walk) && walk->layout->puc.status_finalizer != LAYOUT_ABSENT)
    return; /* it would have been: a hook runs */
  if (is_puc(walk) ? puc_finalizes(walk, state) : luajit_finalizes(walk, state)) walk_add_collector(walk);
}

static void begin_frames(walk_t *walk) {
  walk->frame_count = 0;
  walk->collector_marked = walk->links_unsure = false;
  walk->link_count = 0;
  walk->truncated = false;
  walk->vmstate = WALK_VM_NONE;
  walk->trace = 0;
}

walk_reason_t walk_frames_of(walk_t *walk, const walk_state_t *state, bool running) {
  begin_frames(walk);
  return is_puc(walk) ? puc_frames(walk, state, running) : luajit_frames(walk, state, running);
}

walk_reason_t walk_frames(walk_t *walk) {
  begin_frames(walk);
  for (uint32_t i = 0; i < walk->state_count && !walk->truncated; i++) {
    walk_reason_t reason = is_puc(walk) ? puc_frames(walk, &walk->states[i], i == 0)
                                        : luajit_frames(walk, &walk->states[i], i == 0);
    if (reason != WALK_OK) return reason;
  }
  mark_collector(walk);
  return walk->frame_count > 0 ? WALK_OK : WALK_NO_STATE;
}

uint64_t walk_parsing(walk_t *walk) {
  if (!walk->calm || walk->state_count == 0) return 0;
  const walk_state_t *state = &walk->states[0];
  return is_puc(walk) ? puc_parsing(walk, state) : luajit_parsing(walk, state);
}

bool walk_state(walk_t *walk, uint64_t state, walk_trust_t trust, walk_state_t *out) {
  return is_puc(walk) ? puc_state(walk, state, trust, out) : luajit_state(walk, state, trust, out);
}

uint64_t walk_main_of(walk_t *walk, uint64_t global) {
  return is_puc(walk) ? puc_main_of(walk, global) : luajit_main_of(walk, global);
}

bool walk_proto(walk_t *walk, uint64_t proto, walk_trust_t trust, walk_proto_t *out) {
  return is_puc(walk) ? puc_proto(walk, proto, trust, out) : luajit_proto(walk, proto, trust, out);
}

int32_t walk_line(walk_t *walk, const walk_proto_t *proto, uint64_t pc) {
  return is_puc(walk) ? puc_line(walk, proto, pc) : luajit_line(walk, proto, pc);
}

bool walk_string(walk_t *walk, uint64_t string, char *to, size_t size, size_t *len) {
  return is_puc(walk) ? puc_string(walk, string, to, size, len) : luajit_string(walk, string, to, size, len);
}

uint64_t walk_body_offset(const layout_t *layout) {
  if (layout->family == LAYOUT_PUC) return 16; /* the first slot belongs to the coroutine's base call */
  return layout->luajit.pointer == 8 ? 2 * 8 : 1 * 8; /* the first frame belongs to the state itself */
}

uint64_t walk_body(walk_t *walk, const walk_state_t *state) {
  uint64_t body = 0;
  walk_read(walk->memory, &body, state->stack + walk_body_offset(walk->layout), sizeof body, WALK_GUESS);
  return body;
}

const char *walk_reason_name(walk_reason_t reason) {
  static const char *const names[WALK_REASONS] = {"ok",       "no state",    "bad call record",
                                                  "bad slot", "no function", "bad function",
                                                  "bad base", "bad link",    "endless"};
  return reason < WALK_REASONS ? names[reason] : "unknown";
}
