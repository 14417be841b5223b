/* SPDX-License-Identifier: MIT */
/* What the files about PUC Lua share. */
#ifndef LUAPULSE_WALK_FAMILY_PUC_H
#define LUAPULSE_WALK_FAMILY_PUC_H

#include "walk/bytes.h"
#include "walk/family.h"
#include "walk/machine.h"

enum {
  CLOSURE_BYTES = 48,
  SLOT_BYTES = 16,
  RESERVE = 64 * SLOT_BYTES /* slots kept above the end of a stack, and some */
};

typedef struct {
  uint64_t func;     /* its slot */
  uint64_t previous; /* the caller's record */
  uint64_t savedpc;
  uint16_t shift; /* as in walk_frame_t */
  bool tail;      /* it may have taken another's place; only asked for where functions are marked */
} puc_call_t;

WALK_PLACE bool puc_read_call(walk_t *walk, uint64_t at, puc_call_t *out);
/* The function of a call. `known`: so many of walk->frames are of this walk, and may have it already. */
WALK_PLACE walk_reason_t puc_read_called(walk_t *walk, const walk_state_t *state, uint64_t func,
                                         walk_trust_t trust, uint32_t known, walk_frame_t *frame);
WALK_PLACE void puc_expect(walk_t *walk, const walk_state_t *state);
/* Calm: the pc of the function that asks for memory. */
WALK_PLACE uint64_t puc_allocating_pc(walk_t *walk, const walk_state_t *state, const walk_proto_t *proto,
                                      uint64_t savedpc);

#endif
