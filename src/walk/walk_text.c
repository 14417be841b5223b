/* SPDX-License-Identifier: MIT */
/* What functions, coroutines and chunks tell of themselves, whatever the family; see walk.h. */
#include "walk/family.h"

static bool is_puc(const walk_t *walk) {
  return walk->layout->family == LAYOUT_PUC;
}

uint64_t walk_parsing(walk_t *walk) {
  if (!walk->calm || walk->state_count == 0) return 0;
  const walk_state_t *state = &walk->states[0];
  return is_puc(walk) ? puc_parsing(walk, state) : luajit_parsing(walk, state);
}

bool walk_prepares_finalizers(walk_t *walk) {
  return walk->calm && walk->state_count > 0 && is_puc(walk) && !walk->collector_marked &&
         puc_prepares_finalizers(walk, walk->states[0].global);
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
