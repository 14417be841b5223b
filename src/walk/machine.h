/* SPDX-License-Identifier: MIT */
/* What a walk may use where it runs: in an ordinary process, or as a BPF program in the kernel.
 *
 * There the verifier has to see that every loop ends and that every place that is written lies within bounds; nothing is called
 * through a pointer that was read, and there are 512 bytes of stack. Hence in all of src/walk that is compiled for both: loops are
 * steps, larger buffers are part of walk_t, and the layout is asked for by layout_of(): in BPF it is constant data, set before the program
 * is loaded, so that the verifier knows every offset and leaves out what a runtime has no use for. */
#ifndef LUAPULSE_WALK_MACHINE_H
#define LUAPULSE_WALK_MACHINE_H

#include "walk/walk.h"

#define WALK_NO_INSTRUCTION UINT64_MAX

/* One step of a loop: anything but 0 ends it. */
typedef long walk_step_t(uint32_t i, void *context);

#if defined __bpf__

extern const volatile layout_t walk_layout; /* of the program */

static inline const layout_t *layout_of(const walk_t *walk) {
  const layout_t *layout = (const layout_t *)&walk_layout;
  (void)walk;
  __asm__("" : "+r"(layout)); /* what is in it is not known yet, whatever the compiler thinks of constants */
  return layout;
}

/* What stands apart begins with this: kernels before 6.8 verify it also where it is never called, for a layout of the other family. */
static inline bool walk_is_of(const walk_t *walk, layout_family_t family) {
  return layout_of(walk)->family == family;
}

#define walk_loop(most, step, context) bpf_loop(most, step, context, 0)

/* 0, as the verifier must not know: before Linux 6.7 it looks at a loop's step once, with what the context holds at first, and code that is not
 * reached then is taken out of the program. So whatever a step compares and changes begins with this. */
static inline uint64_t walk_zero(const walk_t *walk) {
  return walk->zero;
}

/* The value, which is at most so much: where the compiler knows that and the verifier does not. */
static inline uint32_t walk_bounded(uint32_t value, uint32_t most) {
  __asm__ volatile("" : "+r"(value));
  return value > most ? most : value;
}

/* One or two slots of a Lua stack. Frames are read from the top down and lie close together: a read costs less than the call for it, so
 * what lies below is taken along. */
WALK_LOCAL bool walk_read_slots(walk_t *walk, uint64_t *to, uint64_t from, uint32_t len, walk_trust_t trust) {
  enum { BYTES = WALK_WINDOW * 8, MOST = 16 };
  uint64_t below = from - walk->window.low;
  if (walk->window.low == 0 || below > BYTES - MOST || (below & 7) != 0) {
    below = BYTES - MOST;
    walk->window.low = from - below;
    if (!walk_read(walk->memory, walk->window.words, walk->window.low, BYTES, trust)) {
      walk->window.low = 0; /* there may be nothing below */
      return walk_read(walk->memory, to, from, len, trust);
    }
  }
  uint32_t i = walk_bounded((uint32_t)below / 8, WALK_WINDOW - 2);
  to[0] = walk->window.words[i];
  if (len > 8) to[1] = walk->window.words[i + 1];
  return true;
}

/* A call record, NULL when it cannot be read. Those of calls that went down without a pause were allocated one after the other, and the
 * array of 5.1 lies so: once two are near each other, what lies below is taken along. */
WALK_LOCAL const uint8_t *walk_read_call(walk_t *walk, uint64_t at, uint32_t len, walk_trust_t trust) {
  enum { LAST = WALK_CALLS_READ - WALK_CALL };
  uint64_t above = at - walk->calls.low;
  bool near = walk->calls.last - at <= 2 * WALK_CALL;
  walk->calls.last = at;
  if (walk->calls.low == 0 || above > LAST) {
    walk->calls.low = 0;
    if (!near || !walk_read(walk->memory, walk->calls.bytes, at - LAST, WALK_CALLS_READ, trust))
      return walk_read(walk->memory, walk->buffer, at, len, trust) ? walk->buffer : NULL;
    walk->calls.low = at - LAST;
    above = LAST;
  }
  return &walk->calls.bytes[walk_bounded((uint32_t)above, LAST)];
}

/* So much around an address that is in one page with it: what is there can be read if the address can. */
static inline uint64_t walk_within_page(uint64_t wanted, uint64_t at, uint32_t bytes) {
  enum { PAGE = 4096 };
  uint64_t page = at & ~(uint64_t)(PAGE - 1);
  if (wanted < page) return page;
  return wanted > page + PAGE - bytes ? page + PAGE - bytes : wanted;
}

/* A function object, if what was read along with others has it; NULL: it has to be read. Those that one piece of code made lie near each
 * other: once two do, what lies around is taken along. */
WALK_LOCAL const uint8_t *walk_object_nearby(walk_t *walk, uint64_t at, walk_trust_t trust) {
  enum { BYTES = WALK_OBJECTS_READ, LAST = BYTES - WALK_OBJECT };
  bool near = at - walk->objects.last + BYTES <= 2 * BYTES;
  walk->objects.last = at;
  if (walk->objects.low == 0 || at - walk->objects.low > LAST) {
    walk->objects.low = 0;
    if (!near) return NULL;
    uint64_t low = walk_within_page(at - BYTES / 2, at, BYTES);
    if (at - low > LAST || !walk_read(walk->memory, walk->objects.bytes, low, BYTES, trust)) return NULL;
    walk->objects.low = low;
  }
  return &walk->objects.bytes[walk_bounded((uint32_t)(at - walk->objects.low), LAST)];
}

/* An instruction of a caller, or WALK_NO_INSTRUCTION. Recursion calls by the same ones again. LuaJIT keeps a function's code behind its
 * prototype, which is wanted next: both are read by one call, unless they lie far from each other. The verifier need not know what comes of it:
 * hence apart. */
WALK_APART uint64_t walk_instruction(walk_t *walk, uint64_t at, walk_trust_t trust) {
  enum { LAST = WALK_CODE_READ - sizeof(uint32_t) };
  (void)trust; /* a read may always fail */
  if (!walk_given(walk) || (at & 3) != 0) return WALK_NO_INSTRUCTION;
  uint32_t met = walk_bounded(walk_slot(at, WALK_MET_BITS), WALK_MET - 1);
  if (walk->calling[met].at == at && walk->calling[met].turn == walk->turn)
    return walk->calling[met].instruction;
  uint64_t low = walk_within_page(at - LAST, at, WALK_CODE_READ);
  walk->code.low = 0;
  if (!walk_read(walk->memory, walk->code.bytes, low, WALK_CODE_READ, WALK_GUESS)) return WALK_NO_INSTRUCTION;
  walk->code.low = low;
  uint32_t i = walk_bounded((uint32_t)(at - low), LAST);
  walk->calling[met].at = at;
  walk->calling[met].turn = walk->turn;
  __builtin_memcpy(&walk->calling[met].instruction, &walk->code.bytes[i & ~3u], sizeof(uint32_t));
  return walk->calling[met].instruction;
}

/* Part of a prototype, NULL when it cannot be read. */
WALK_LOCAL const uint8_t *walk_read_proto(walk_t *walk, uint64_t at, uint32_t len, walk_trust_t trust) {
  uint64_t above = at - walk->code.low;
  uint32_t last = WALK_CODE_READ - len; /* known to the verifier, as the layout is */
  if (walk->code.low != 0 && above <= last) return &walk->code.bytes[walk_bounded((uint32_t)above, last)];
  return walk_read(walk->memory, walk->buffer, at, len, trust) ? walk->buffer : NULL;
}

/* What was taken along is of this walk alone. */
static inline void walk_forget_reads(walk_t *walk) {
  walk->window.low = walk->calls.low = walk->calls.last = 0;
  walk->objects.low = walk->objects.last = walk->code.low = 0;
  walk->turn++;
}

/* What only those use who live in the process. */
static inline bool is_calm(const walk_t *walk) {
  (void)walk;
  return false;
}
static inline bool marks_functions(const walk_t *walk) {
  (void)walk;
  return true;
}
static inline bool marks_collector(const walk_t *walk) {
  (void)walk;
  return false;
}
static inline walk_nature_t nature_of(const walk_t *walk, uint64_t code) {
  (void)walk;
  (void)code;
  return WALK_C_ANY;
}

#else

static inline const layout_t *layout_of(const walk_t *walk) {
  return walk->layout;
}

static inline bool walk_is_of(const walk_t *walk, layout_family_t family) {
  (void)walk;
  (void)family;
  return true;
}

__attribute__((always_inline)) static inline void walk_loop(uint32_t most, walk_step_t *step, void *context) {
  for (uint32_t i = 0; i < most && step(i, context) == 0; i++) {
  }
}

static inline uint64_t walk_zero(const walk_t *walk) {
  (void)walk;
  return 0;
}

static inline uint32_t walk_bounded(uint32_t value, uint32_t most) {
  (void)most;
  return value;
}

static inline bool walk_read_slots(walk_t *walk, uint64_t *to, uint64_t from, uint32_t len,
                                   walk_trust_t trust) {
  return walk_read(walk->memory, to, from, len, trust);
}

static inline const uint8_t *walk_read_call(walk_t *walk, uint64_t at, uint32_t len, walk_trust_t trust) {
  return walk_read(walk->memory, walk->buffer, at, len, trust) ? walk->buffer : NULL;
}

static inline const uint8_t *walk_object_nearby(walk_t *walk, uint64_t at, walk_trust_t trust) {
  (void)walk;
  (void)at;
  (void)trust;
  return NULL;
}

static inline uint64_t walk_instruction(walk_t *walk, uint64_t at, walk_trust_t trust) {
  uint32_t instruction;
  return walk_read(walk->memory, &instruction, at, sizeof instruction, trust) ? instruction
                                                                              : WALK_NO_INSTRUCTION;
}

static inline const uint8_t *walk_read_proto(walk_t *walk, uint64_t at, uint32_t len, walk_trust_t trust) {
  return walk_read(walk->memory, walk->buffer, at, len, trust) ? walk->buffer : NULL;
}

static inline void walk_forget_reads(walk_t *walk) {
  (void)walk;
}

static inline bool is_calm(const walk_t *walk) {
  return walk->calm;
}
static inline bool marks_functions(const walk_t *walk) {
  return walk->mark_functions;
}
static inline bool marks_collector(const walk_t *walk) {
  return walk->mark_collector;
}
static inline walk_nature_t nature_of(const walk_t *walk, uint64_t code) {
  return walk->nature != NULL ? walk->nature(walk->context, code) : WALK_C_ANY;
}

#endif

#endif
