/* SPDX-License-Identifier: MIT */
/* What each family of runtimes does its own way; walk.c chooses by the layout. */
#ifndef LUAPULSE_WALK_FAMILY_H
#define LUAPULSE_WALK_FAMILY_H

#include "walk/machine.h"

enum { INSTRUCTION = 4 /* bytes, in all of them */ };

WALK_PLACE bool puc_state(walk_t *walk, uint64_t state, walk_trust_t trust, walk_state_t *out);
/* So many of its bytes are read. */
WALK_PLACE uint32_t puc_state_bytes(walk_t *walk);
WALK_PLACE uint64_t puc_main_of(walk_t *walk, uint64_t global);
WALK_PLACE bool puc_is_collecting(walk_t *walk, uint64_t global);
/* True when nothing else can run inside: its topmost function is written in Lua, or is inert. */
WALK_PLACE bool puc_runs_lua(walk_t *walk, const walk_state_t *state);
#if !defined __bpf__ /* there the nature of no C function is known */
/* The coroutine that its topmost function resumes; 0: none, or that is not known. It may be a stale word: a lead. */
uint64_t puc_resumed(walk_t *walk, const walk_state_t *state);
#endif
/* Appends the frames of one coroutine; `running` is the innermost. */
WALK_APART_PLACE walk_reason_t puc_frames(walk_t *walk, const walk_state_t *state, bool running);
WALK_PLACE bool puc_proto(walk_t *walk, uint64_t proto, walk_trust_t trust, walk_proto_t *out);
WALK_PLACE int32_t puc_line(walk_t *walk, const walk_proto_t *proto, uint64_t pc);
WALK_PLACE bool puc_string(walk_t *walk, uint64_t string, char *to, size_t size, size_t *len);

WALK_PLACE bool luajit_state(walk_t *walk, uint64_t state, walk_trust_t trust, walk_state_t *out);
WALK_PLACE uint64_t luajit_main_of(walk_t *walk, uint64_t global);
/* The state the VM says is the current one, 0 when it cannot be read. */
WALK_PLACE uint64_t luajit_current(walk_t *walk, uint64_t global);
WALK_PLACE bool luajit_runs_lua(walk_t *walk, const walk_state_t *state);
WALK_APART_PLACE walk_reason_t luajit_frames(walk_t *walk, const walk_state_t *state, bool running);
WALK_PLACE bool luajit_proto(walk_t *walk, uint64_t proto, walk_trust_t trust, walk_proto_t *out);
WALK_PLACE int32_t luajit_line(walk_t *walk, const walk_proto_t *proto, uint64_t pc);
WALK_PLACE bool luajit_string(walk_t *walk, uint64_t string, char *to, size_t size, size_t *len);

/* The base of the topmost frame; calm walks only. Sets walk->vmstate and walk->trace. */
WALK_PLACE uint64_t luajit_top(walk_t *walk, const walk_state_t *state);
/* The frame that lies at a place of the coroutine's stack; calm walks only. */
WALK_PLACE void luajit_link(const walk_t *walk, const walk_state_t *state, uint64_t place, walk_link_t *out);
/* The place of its caller's frame, 0 at the bottom. */
WALK_PLACE uint64_t luajit_caller(walk_t *walk, const walk_state_t *state, const walk_link_t *link);
/* The frames of the running coroutine above that at `place`, alone; calm walks only. */
WALK_PLACE bool luajit_frames_above(walk_t *walk, const walk_state_t *state, uint64_t place);
/* The frame of one call of the coroutine; calm walks only. */
WALK_PLACE bool puc_frame(walk_t *walk, const walk_state_t *state, uint64_t call, bool top,
                          walk_frame_t *frame);
WALK_PLACE uint64_t puc_parsing(walk_t *walk, const walk_state_t *state);
WALK_PLACE bool puc_prepares_finalizers(walk_t *walk, uint64_t global);
WALK_PLACE uint64_t luajit_parsing(walk_t *walk, const walk_state_t *state);
/* True when the coroutine runs a finalizer, as far as can be told. */
WALK_PLACE bool puc_finalizes(walk_t *walk, const walk_state_t *state);
WALK_PLACE bool luajit_finalizes(walk_t *walk, const walk_state_t *state);
/* walk_mark() of the next of a walk's frames: functions of a stack share their sources, whose hashes are read once. */
WALK_PLACE uint32_t walk_mark_frame(walk_t *walk, const walk_proto_t *proto);
/* The function's frame among the first `count`, which are of this walk, as far as it is remembered; NULL: not. What was read of it holds
 * as long as the walk does. */
static inline const walk_frame_t *walk_met(const walk_t *walk, uint64_t function, uint32_t count) {
  if (count == 0 || count > WALK_MAX_FRAMES || function == 0) return NULL;
  uint32_t at = walk_bounded(count - 1, WALK_MAX_FRAMES - 1);
  if (walk->frames[at].function == function) return &walk->frames[at]; /* recursion */
  at = walk_bounded(walk->met[walk_slot(function, WALK_MET_BITS)], WALK_MAX_FRAMES - 1);
  if (at >= count) return NULL;
  return walk->frames[at].function == function ? &walk->frames[at] : NULL;
}
static inline void walk_meet(walk_t *walk, uint64_t function, uint32_t at) {
  walk->met[walk_slot(function, WALK_MET_BITS)] = (uint16_t)at;
}
/* Adds a frame of the collector; false when there is no room. */
WALK_PLACE bool walk_add_collector(walk_t *walk);

#endif
