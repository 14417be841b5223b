/* SPDX-License-Identifier: MIT */
/* What the files about LuaJIT share. */
#ifndef LUAPULSE_WALK_FAMILY_LUAJIT_H
#define LUAPULSE_WALK_FAMILY_LUAJIT_H

#include "walk/bytes.h"
#include "walk/family.h"
#include "walk/machine.h"

enum {
  SLOT = 8,
  STACK_RESERVE = 64 * SLOT, /* slots kept above the end of a stack, and some */
  TYPE_STRING = 4,           /* of objects: the complement of a value's type */
  TYPE_THREAD = 6,
  TYPE_FUNCTION = 8,
  TYPE_TABLE = 11,
  FF_LUA = 0, /* ffid: Lua function, C function; built-ins above */
  FF_C = 1,
  MAX_STEPS = 4096,
  GUESSED_STEPS = 4
};

/* The lowest bits of a frame's link. */
enum {
  LINK_TYPE = 3,
  LINK_TYPE_P = 7,
  LINK_LUA = 0,  /* called by Lua code: the link is the caller's pc */
  LINK_C = 1,    /* called through the C interface */
  LINK_CP = 5,   /* the same, protected */
  LINK_CONT = 2, /* called for a metamethod: the pc stands in a slot below */
  LINK_VARG = 3  /* the same function again: its copy of a vararg frame */
};

enum { HOOK_GC = 0x40 };

/* Complement of g->vmstate when no trace runs. */
enum { VMST_INTERP, VMST_C, VMST_GC, VMST_EXIT, VMST_RECORD, VMST_OPT, VMST_ASM };

static inline bool two_slots(const walk_t *walk) {
  return layout_of(walk)->luajit.pointer == 8;
}

static inline uint64_t bottom_of(const walk_t *walk, const walk_state_t *state) {
  return state->stack + (two_slots(walk) ? SLOT : 0);
}

/* The link slot of the caller's frame, 0 when the link leads nowhere. */
WALK_PLACE uint64_t luajit_caller_of(walk_t *walk, uint64_t f, int64_t link, walk_trust_t trust);
WALK_APART_PLACE bool luajit_is_base(walk_t *walk, const walk_state_t *state, uint64_t base);
/* Where the topmost frame may be: walk->tops. */
WALK_PLACE void luajit_find_tops(walk_t *walk, const walk_state_t *state);
/* The frames from there up to that at `end`, 0: all. */
WALK_APART_PLACE walk_reason_t luajit_walk_from(walk_t *walk, const walk_state_t *state,
                                                const walk_top_t *top, bool running, uint64_t end);
WALK_PLACE void luajit_expect(walk_t *walk, const walk_state_t *state);
/* Calm: keeps the frame at f in walk->links. */
WALK_PLACE void luajit_keep_link(walk_t *walk, const walk_state_t *state, uint64_t f);

#endif
