/* SPDX-License-Identifier: MIT */
/* PUC Lua 5.1 to 5.5: states, call records, functions. Version differences are in the layout. Compiled for BPF, too. */
#include "walk/family_puc.h"
#include "walk/registers.h"

#define PUC_FUNCTION 6u /* the lower half of a tag is the type, the same in all versions */

static inline uint32_t most(uint32_t a, uint32_t b) {
  return a > b ? a : b;
}

/* -- states ------------------------------------------------------------------------------------------------ */

static uint32_t head_bytes(const layout_puc_t *l) {
  uint32_t last = most(most(l->state_jump, l->state_global), most(l->state_ci, l->state_stack));
  last = most(last, most(l->state_tag, l->state_stack_last));
  if (l->state_savedpc != LAYOUT_ABSENT) last = most(last, l->state_savedpc);
  if (l->ci_previous == LAYOUT_ABSENT) last = most(last, l->state_base_ci);
  return last + 8 <= WALK_BUFFER ? last + 8 : 0;
}

WALK_PLACE bool puc_state(walk_t *walk, uint64_t state, walk_trust_t trust, walk_state_t *out) {
  const layout_puc_t *l = &layout_of(walk)->puc;
  const uint8_t *head = walk->buffer;
  uint32_t len = head_bytes(l);
  if (len == 0 || !walk_read(walk->memory, walk->buffer, state, len, trust)) return false;
  if (head[l->state_tag] != l->tag_thread) return false;
  *out = (walk_state_t){
      .state = state,
      .global = bytes_u64(head, l->state_global),
      .place = bytes_u64(head, l->state_jump),
      .call = bytes_u64(head, l->state_ci),
      .first = l->ci_previous == LAYOUT_ABSENT ? bytes_u64(head, l->state_base_ci) : state + l->state_base_ci,
      .stack = bytes_u64(head, l->state_stack),
      .stack_end = bytes_u64(head, l->state_stack_last),
      .savedpc = l->state_savedpc != LAYOUT_ABSENT ? bytes_u64(head, l->state_savedpc) : 0,
  };
  bytes_clear(walk->buffer, l->state_tag, 1); /* in the own process the copy must not be taken for a state */
  bytes_clear(walk->buffer, l->state_global, 8);
  return true;
}

WALK_PLACE uint32_t puc_state_bytes(walk_t *walk) {
  return head_bytes(&layout_of(walk)->puc);
}

WALK_PLACE uint64_t puc_main_of(walk_t *walk, uint64_t global) {
  const layout_puc_t *l = &layout_of(walk)->puc;
  uint64_t main = 0;
  if (l->global_main_inside != LAYOUT_ABSENT) return global + l->global_main_inside;
  if (global == walk->likely_global && walk->likely_main != 0) return walk->likely_main;
  return walk_read(walk->memory, &main, global + l->global_main, sizeof main, WALK_GUESS) ? main : 0;
}

/* As lgc.c has it: a step of a collection that goes on by steps holds off emergency collections, but for finalizers. A collection of the
 * young is one step that does not; the state of one between two of these is that of the beginning. */
WALK_PLACE bool puc_is_collecting(walk_t *walk, uint64_t global) {
  enum { PROPAGATE = 0, ATOMIC = 2, GENERATIONAL = 1 };
  const layout_puc_t *l = &layout_of(walk)->puc;
  uint8_t stops = 0, state = 0, kind = 0;
  if (l->global_gc_stop == LAYOUT_ABSENT || l->global_gc_state == LAYOUT_ABSENT ||
      l->global_gc_kind == LAYOUT_ABSENT ||
      !walk_read(walk->memory, &stops, global + l->global_gc_stop, 1, WALK_GUESS) ||
      !walk_read(walk->memory, &state, global + l->global_gc_state, 1, WALK_GUESS) ||
      !walk_read(walk->memory, &kind, global + l->global_gc_kind, 1, WALK_GUESS))
    return false;
  return stops != 0 || state == ATOMIC || (kind == GENERATIONAL && state != PROPAGATE);
}

WALK_PLACE void puc_expect(walk_t *walk, const walk_state_t *state) {
#if !defined __bpf__
  const layout_puc_t *l = &walk->layout->puc;
  if (walk->memory->expect == NULL) return;
  uint64_t end = state->stack_end + RESERVE;
  walk->calm_low = state->stack;
  walk->calm_high = state->stack_end;
  walk->memory->expect(walk->memory, WALK_SLOTS, state->stack, end > state->stack ? end : state->stack);
  bool linked = l->ci_previous != LAYOUT_ABSENT;
  walk->memory->expect(walk->memory, WALK_CALLS, linked ? 0 : state->first,
                       linked || state->call < state->first ? 0 : state->call + l->ci_size);
#else
  (void)walk;
  (void)state;
#endif
}

/* -- one call ------------------------------------------------------------------------------------------------ */

typedef struct {
  uint32_t offset, bytes; /* 4: how many it took the place of; 1: bits of the byte; 0: not told */
  uint32_t mask;
} tail_field_t;

/* Where a call record tells whether its function took another's place, instead of being called by that of the record below. */
static inline tail_field_t tail_field(const walk_t *walk, const layout_puc_t *l) {
  tail_field_t none = {0, 0, 0};
  if (!marks_functions(walk)) return none;
  if (l->ci_tail_calls != LAYOUT_ABSENT) return (tail_field_t){l->ci_tail_calls, 4, 0};
  if (l->ci_status == LAYOUT_ABSENT || l->status_tail == LAYOUT_ABSENT) return none;
  uint32_t mask = 1u << l->status_tail % 8; /* both bits are in one byte */
  if (l->status_tail_else != LAYOUT_ABSENT) mask |= 1u << l->status_tail_else % 8;
  return (tail_field_t){l->ci_status + l->status_tail / 8u, 1, mask};
}

static uint16_t shift_of(uint64_t count) {
  return count < WALK_NO_SHIFT ? (uint16_t)count : WALK_NO_SHIFT;
}

WALK_PLACE bool puc_read_call(walk_t *walk, uint64_t at, puc_call_t *out) {
  const layout_puc_t *l = &layout_of(walk)->puc;
  bool linked = l->ci_previous != LAYOUT_ABSENT;
  uint32_t len = most(l->ci_func, l->ci_savedpc) + 8;
  if (linked) len = most(len, l->ci_previous + 8u);
  tail_field_t tail = tail_field(walk, l);
  len = most(len, tail.offset + tail.bytes);
  if (l->ci_base != LAYOUT_ABSENT) len = most(len, l->ci_base + 8u);
  if (l->ci_extra != LAYOUT_ABSENT) len = most(len, l->ci_extra + 4u);
  /* Records in a list live as long as their coroutine; the array of 5.1 is reallocated and dangles for a moment. */
  if (len > WALK_CALL) return false;
  const uint8_t *bytes = walk_read_call(walk, at, len, linked ? WALK_LIVE : WALK_LEAD);
  if (bytes == NULL) return false;
  *out =
      (puc_call_t){bytes_u64(bytes, l->ci_func), linked ? bytes_u64(bytes, l->ci_previous) : at - l->ci_size,
                   bytes_u64(bytes, l->ci_savedpc), WALK_NO_SHIFT, true};
  if (l->ci_base != LAYOUT_ABSENT)
    out->shift = shift_of((bytes_u64(bytes, l->ci_base) - out->func) / SLOT_BYTES);
  else if (l->ci_extra != LAYOUT_ABSENT)
    out->shift = shift_of(bytes_u32(bytes, l->ci_extra));
  if (tail.bytes == 4) out->tail = bytes_u32(bytes, tail.offset) != 0;
  if (tail.bytes == 1) out->tail = (bytes[tail.offset] & tail.mask) != 0;
  return true;
}

static bool is_proto(walk_t *walk, walk_frame_t *frame, walk_trust_t trust) {
  const layout_puc_t *l = &layout_of(walk)->puc;
  if (marks_functions(walk)) {
    walk_proto_t *proto = &walk->marked.proto;
    if (!puc_proto(walk, frame->proto, trust, proto)) return false;
    frame->mark = walk_mark_frame(walk, proto);
    return true;
  }
  uint8_t tag;
  return walk_read(walk->memory, &tag, frame->proto + l->proto_tag, 1, trust) && tag == l->tag_proto;
}

static walk_reason_t read_closure(walk_t *walk, uint64_t closure, uint32_t tag, walk_trust_t trust,
                                  walk_frame_t *frame) {
  const layout_puc_t *l = &layout_of(walk)->puc;
  uint32_t len = most(l->closure_proto, l->closure_code) + 8;
  if (len > WALK_OBJECT || (closure & 7) != 0) return WALK_BAD_FUNCTION;
  const uint8_t *bytes = walk_object_nearby(walk, closure, trust);
  if (bytes == NULL) {
    if (!walk_read(walk->memory, walk->buffer, closure, len, trust)) return WALK_BAD_FUNCTION;
    bytes = walk->buffer;
  }
  if ((bytes[l->closure_tag] & 15) != PUC_FUNCTION) return WALK_BAD_FUNCTION;
  bool is_c = l->tag_lua == l->tag_c ? bytes[l->closure_is_c] != 0 : tag == l->tag_c;
  frame->function = closure;
  if (is_c) {
    frame->code = bytes_u64(bytes, l->closure_code);
    return WALK_OK;
  }
  frame->kind = WALK_LUA;
  frame->proto = bytes_u64(bytes, l->closure_proto);
  return is_proto(walk, frame, trust) ? WALK_OK : WALK_BAD_FUNCTION;
}

/* The function in a slot. `trust` is for what the slot leads to: the slot itself is always a guess. */
static walk_reason_t read_slot(walk_t *walk, uint64_t slot, walk_trust_t trust, uint32_t known,
                               walk_frame_t *frame) {
  const layout_puc_t *l = &layout_of(walk)->puc;
  uint64_t words[SLOT_BYTES / 8];
  /* while calm a slot inside the stack is whole; outside it is a distance, of a stack that is being moved (5.4.5 on) */
  walk_trust_t slot_trust =
      is_calm(walk) && slot >= walk->calm_low && slot < walk->calm_high ? WALK_LIVE : WALK_LEAD;
  if (!walk_read_slots(walk, words, slot, SLOT_BYTES, slot_trust)) return WALK_BAD_SLOT;
  uint64_t value = words[0];
  uint32_t tag = l->tag_bytes == 1 ? (uint8_t)words[1] : (uint32_t)words[1];
  *frame = (walk_frame_t){.kind = WALK_C};
  if (l->tag_light != LAYOUT_ABSENT && tag == l->tag_light) {
    frame->code = value;
    return value >= 65536 && value < WALK_HIGHEST ? WALK_OK : WALK_BAD_FUNCTION;
  }
  if (tag != l->tag_lua && tag != l->tag_c) return WALK_NO_FUNCTION;
  const walk_frame_t *met = walk_met(walk, value, known);
  if (met != NULL) {
    *frame = *met;
    return WALK_OK;
  }
  return read_closure(walk, value, tag, trust, frame);
}

/* While a stack moves, call records name slots of the old one, or (from 5.4.5 on) distances from its bottom, which they become one by
 * one before it is moved. The record below the first call is changed last, and names the bottom itself. */
static uint64_t slot_in_new_stack(walk_t *walk, const walk_state_t *state, uint64_t func) {
  const layout_puc_t *l = &layout_of(walk)->puc;
  uint64_t bottom;
  if (l->ci_previous == LAYOUT_ABSENT) return 0;
  if (state->stack_end > state->stack && func < state->stack_end - state->stack) return state->stack + func;
  if (!walk_read(walk->memory, &bottom, state->first + l->ci_func, sizeof bottom, WALK_LIVE)) return 0;
  if (bottom == state->stack || func <= bottom) return 0;
  return state->stack + (func - bottom);
}

WALK_PLACE walk_reason_t puc_read_called(walk_t *walk, const walk_state_t *state, uint64_t func,
                                         walk_trust_t trust, uint32_t known, walk_frame_t *frame) {
  walk_reason_t reason = read_slot(walk, func, trust, known, frame);
  if (reason == WALK_OK) return reason;
  uint64_t slot = slot_in_new_stack(walk, state, func);
  return slot != 0 ? read_slot(walk, slot, trust, known, frame) : reason;
}

static bool read_topmost(walk_t *walk, const walk_state_t *state, puc_call_t *call, walk_frame_t *frame) {
  puc_expect(walk, state);
  if (state->call == state->first || !puc_read_call(walk, state->call, call)) return false;
  return puc_read_called(walk, state, call->func, is_calm(walk) ? WALK_LIVE : WALK_LEAD, 0, frame) == WALK_OK;
}

WALK_PLACE bool puc_runs_lua(walk_t *walk, const walk_state_t *state) {
  puc_call_t call;
  walk_frame_t frame;
  if (!read_topmost(walk, state, &call, &frame)) return false;
  return frame.kind == WALK_LUA || nature_of(walk, frame.code) == WALK_C_INERT;
}

#if !defined __bpf__
uint64_t puc_resumed(walk_t *walk, const walk_state_t *state) {
  const layout_puc_t *l = &layout_of(walk)->puc;
  puc_call_t call;
  walk_frame_t frame;
  uint64_t at, value[SLOT_BYTES / 8];
  if (!read_topmost(walk, state, &call, &frame) || frame.kind != WALK_C) return 0;
  walk_nature_t nature = nature_of(walk, frame.code);
  if (nature == WALK_C_RESUMES_ARGUMENT)
    at = call.func + SLOT_BYTES;
  else if (nature == WALK_C_RESUMES_UPVALUE && frame.function != 0)
    at = frame.function + l->closure_code + 8; /* upvalues follow the address of the code */
  else
    return 0;
  bool sure = is_calm(walk) && (nature == WALK_C_RESUMES_UPVALUE ||
                                (at >= walk->calm_low && at + SLOT_BYTES <= walk->calm_high));
  if (!walk_read(walk->memory, value, at, SLOT_BYTES, sure ? WALK_LIVE : WALK_LEAD)) return 0;
  return (value[1] & 15) == (l->tag_thread & 15) ? value[0] : 0;
}
#endif

/* -- the pc of the running function -------------------------------------------------------------------------- */

/* 5.1 and from 5.4 on savedpc is written only before what may raise an error or call; meanwhile the pc is in a register, the same
 * one wherever that build of the VM runs. It points to the next instruction. Most builds take a register that C code called by the VM
 * keeps for it; 5.5 as gcc compiles it one that is the VM's own until it calls. Others may hold an earlier pc for long, above all one
 * that a function went on from. So a register has a vote for each time it moved within a function to something else than savedpc.
 * Most votes win, at first whatever is not savedpc. Where the winner holds no pc, it is in use by what the VM has called, and those with
 * far fewer votes are not asked in its stead. 5.2 and 5.3 keep savedpc itself up to date: there no register qualifies but by chance. */
typedef struct {
  walk_t *walk;
  uint64_t code, code_end, savedpc;
  uint64_t pc;                /* the best so far, 0: none */
  uint32_t votes, most_votes; /* its own, and those of any register */
  bool same_function;         /* as in the last walk */
} election_t;

static long step_elect(uint32_t i, void *context) {
  election_t *e = context;
  walk_t *walk = e->walk;
  if (i >= REGISTERS_ALL || i >= walk->registers.count || i >= WALK_MAX_REGISTERS) return 1;
  uint64_t value = walk->registers.values[i];
  uint32_t *last = &walk->pc_register.last[i], *votes = &walk->pc_register.votes[i];
  if (*votes > e->most_votes) e->most_votes = *votes;
  if (value <= e->code || value > e->code_end || (value & 3) != 0) return 0;
  if (e->pc == 0 || *votes > e->votes || (*votes == e->votes && e->pc == e->savedpc)) {
    e->pc = value;
    e->votes = *votes;
  }
  if (e->same_function && (uint32_t)value != *last && value != e->savedpc) ++*votes;
  *last = (uint32_t)value;
  return 0;
}

static uint64_t running_pc(walk_t *walk, const walk_proto_t *proto, uint64_t savedpc) {
  uint8_t language = layout_of(walk)->language;
  election_t e = {.walk = walk,
                  .code = proto->code,
                  .code_end = proto->code_end,
                  .savedpc = savedpc,
                  .pc = walk_zero(walk),
                  .votes = (uint32_t)walk_zero(walk),
                  .most_votes = (uint32_t)walk_zero(walk),
                  .same_function = walk->pc_register.code == proto->code};
  if (language == 52 || language == 53 || walk->registers.count < REGISTERS_SAVED) return savedpc;
  walk->pc_register.code = proto->code;
  walk_loop(WALK_MAX_REGISTERS, step_elect, &e);
  return e.pc != 0 && e.votes >= e.most_votes - e.most_votes / 2 ? e.pc : savedpc;
}

/* -- all calls of a coroutine --------------------------------------------------------------------------------- */

/* A tail call moves the callee into its caller's place, record by record: for a moment both records hold the callee, and the
 * pc of the lower one is still the caller's, or has run nothing yet. */
static bool is_half_made(walk_t *walk, const walk_frame_t *frame, uint64_t savedpc) {
  walk_proto_t proto;
  if (walk->frame_count != 2 || walk->frames[0].function != frame->function) return false;
  return puc_proto(walk, frame->proto, WALK_LIVE, &proto) &&
         (savedpc <= proto.code || savedpc > proto.code_end);
}

/* Hooks are off while a finalizer runs (and while a hook does). */
WALK_PLACE bool puc_finalizes(walk_t *walk, const walk_state_t *state) {
  const layout_puc_t *l = &layout_of(walk)->puc;
  uint8_t allowed = 1;
  if (l->state_allowhook == LAYOUT_ABSENT) return false;
  return walk_read(walk->memory, &allowed, state->state + l->state_allowhook, 1, WALK_LIVE) && allowed == 0;
}

/* True when the function of the call record was interrupted by a finalizer. */
static bool was_interrupted(walk_t *walk, uint64_t call) {
  const layout_puc_t *l = &layout_of(walk)->puc;
  uint8_t bits = 0;
  if (l->ci_status == LAYOUT_ABSENT || l->status_finalizer == LAYOUT_ABSENT) return false;
  if (!walk_read(walk->memory, &bits, call + l->ci_status + l->status_finalizer / 8u, 1, WALK_LIVE))
    return false;
  return (bits >> l->status_finalizer % 8 & 1) != 0;
}

typedef struct {
  walk_t *walk;
  const walk_state_t *state;
  uint64_t at; /* the next call record */
  walk_reason_t reason;
  bool running, finalizes;
} calls_t;

static uint64_t top_pc(const calls_t *calls, const walk_frame_t *frame, uint64_t savedpc,
                       walk_trust_t trust) {
  walk_t *walk = calls->walk;
  walk_proto_t proto;
  if (calls->state->savedpc != 0) savedpc = calls->state->savedpc;
  if (!calls->running || !puc_proto(walk, frame->proto, trust, &proto)) return savedpc;
#if !defined __bpf__
  if (walk->calm) return puc_allocating_pc(walk, calls->state, &proto, savedpc);
#endif
  return running_pc(walk, &proto, savedpc);
}

/* How it was called, for who asks for its name. */
static void tell_call(const calls_t *calls, const puc_call_t *call, bool top, walk_frame_t *frame) {
  if (!marks_functions(calls->walk)) return;
  frame->tail = call->tail;
  frame->slot = call->func;
  /* a record that is published before it is filled in has these of an earlier call */
  frame->shift = top && calls->running ? WALK_NO_SHIFT : call->shift;
}

static long end_calls(calls_t *calls, walk_reason_t reason) {
  calls->reason = reason;
  return 1;
}

static long step_call(uint32_t depth, void *context) {
  calls_t *calls = context;
  walk_t *walk = calls->walk;
  puc_call_t call;
  bool top = depth == 0;
  if (calls->at == calls->state->first) return end_calls(calls, WALK_OK);
  if (calls->finalizes && walk->frame_count < WALK_MAX_FRAMES && was_interrupted(walk, calls->at))
    walk_add_collector(walk);
  uint32_t count = walk->frame_count;
  if (count >= WALK_MAX_FRAMES) {
    walk->truncated = true;
    return end_calls(calls, WALK_OK);
  }
  if (!puc_read_call(walk, calls->at, &call)) return end_calls(calls, WALK_BAD_CALLINFO);
  walk_frame_t *frame = &walk->frames[count];
  /* The topmost call may be in the making: its record is published before its slot is set. */
  walk_trust_t trust = top && calls->running && !is_calm(walk) ? WALK_LEAD : WALK_LIVE;
  walk_reason_t reason = puc_read_called(walk, calls->state, call.func, trust, count, frame);
  if (reason == WALK_OK) {
    walk->frame_count = count + 1;
    walk_meet(walk, frame->function, count);
    if (frame->kind == WALK_LUA) {
      uint64_t savedpc = top ? top_pc(calls, frame, call.savedpc, trust) : call.savedpc;
      if (calls->running && depth == 1 && is_half_made(walk, frame, savedpc)) {
        walk->frame_count = count;
        walk->frames[0].tail = true;
      } else {
        frame->pc = savedpc - INSTRUCTION;
        tell_call(calls, &call, top, frame);
      }
    }
  } else if (!(top && (calls->running || calls->state->place == 0))) {
    return end_calls(calls, reason); /* 5.2, 5.3: only what yielded may hide its slot */
  }
  if (layout_of(walk)->puc.ci_previous != LAYOUT_ABSENT && call.previous == 0)
    return end_calls(calls, WALK_BAD_CALLINFO);
  calls->at = call.previous;
  return 0;
}

WALK_APART_PLACE walk_reason_t puc_frames(walk_t *walk, const walk_state_t *state, bool running) {
  if (!walk_given(walk) || !walk_is_of(walk, LAYOUT_PUC) || !walk_given(state)) return WALK_NO_STATE;
  const layout_puc_t *l = &layout_of(walk)->puc;
  calls_t calls = {.walk = walk,
                   .state = state,
                   .at = state->call,
                   .reason = WALK_ENDLESS,
                   .running = running,
                   .finalizes = marks_collector(walk) && running && puc_finalizes(walk, state)};
  puc_expect(walk, state);
  if (l->ci_previous == LAYOUT_ABSENT &&
      (calls.at < state->first || (calls.at - state->first) % l->ci_size != 0))
    return WALK_BAD_CALLINFO;
  walk_loop(WALK_MAX_FRAMES + 4, step_call, &calls); /* all but two of them add a frame */
  return calls.reason;
}

/* -- functions --------------------------------------------------------------------------------------------------- */

WALK_PLACE bool puc_proto(walk_t *walk, uint64_t address, walk_trust_t trust, walk_proto_t *out) {
  const layout_puc_t *l = &layout_of(walk)->puc;
  const uint8_t *bytes = walk->buffer;
  if (l->proto_size > WALK_BUFFER || !walk_read(walk->memory, walk->buffer, address, l->proto_size, trust))
    return false;
  if (bytes[l->proto_tag] != l->tag_proto) return false;
  uint32_t code_count = bytes_u32(bytes, l->proto_code_count);
  if (code_count > (1u << 28)) return false;
  *out = (walk_proto_t){
      .proto = address,
      .source = bytes_u64(bytes, l->proto_source),
      .code = bytes_u64(bytes, l->proto_code),
      .lines = bytes_u64(bytes, l->proto_lines),
      .line_count = bytes_u32(bytes, l->proto_line_count),
      .line = (int32_t)bytes_u32(bytes, l->proto_line),
      .last_line = (int32_t)bytes_u32(bytes, l->proto_last_line),
  };
  out->code_end = out->code + (uint64_t)code_count * INSTRUCTION;
  if (l->proto_anchors != LAYOUT_ABSENT) {
    out->anchors = bytes_u64(bytes, l->proto_anchors);
    out->anchor_count = bytes_u32(bytes, l->proto_anchor_count);
  }
  return true;
}
