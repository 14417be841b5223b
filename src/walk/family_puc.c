/* SPDX-License-Identifier: MIT */
/* PUC Lua 5.1 to 5.5: states, call records, functions. Version differences are in the layout. */
#include "walk/bytes.h"
#include "walk/family.h"
#include "walk/registers.h"

enum {
  HEAD_BYTES = 192, /* of lua_State, up to the last field wanted */
  CALL_BYTES = 96,  /* of CallInfo */
  CLOSURE_BYTES = 48,
  SLOT_BYTES = 16,
  INSTRUCTION = 4,
  PARSER_SLOTS = 64,        /* looked at for what the parser has put there */
  ALLOCATOR_BYTES = 2048,   /* of native stack between the allocator and the VM that called it, at most */
  RESERVE = 64 * SLOT_BYTES /* slots kept above the end of a stack, and some */
};

#define TYPE_FUNCTION 6u /* the lower half of a tag is the type, the same in all versions */

static uint32_t most(uint32_t a, uint32_t b) {
  return a > b ? a : b;
}

/* -- states ------------------------------------------------------------------------------------------------ */

static uint32_t head_bytes(const layout_puc_t *l) {
  uint32_t last = most(most(l->state_jump, l->state_global), most(l->state_ci, l->state_stack));
  last = most(last, most(l->state_tag, l->state_stack_last));
  if (l->state_savedpc != LAYOUT_ABSENT) last = most(last, l->state_savedpc);
  if (l->ci_previous == LAYOUT_ABSENT) last = most(last, l->state_base_ci);
  return last + 8 <= HEAD_BYTES ? last + 8 : 0;
}

bool puc_state(walk_t *walk, uint64_t state, walk_trust_t trust, walk_state_t *out) {
  const layout_puc_t *l = &walk->layout->puc;
  uint8_t head[HEAD_BYTES];
  uint32_t len = head_bytes(l);
  if (len == 0 || !walk_read(walk->memory, head, state, len, trust)) return false;
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
  return true;
}

uint64_t puc_main_of(walk_t *walk, uint64_t global) {
  const layout_puc_t *l = &walk->layout->puc;
  uint64_t main = 0;
  if (l->global_main_inside != LAYOUT_ABSENT) return global + l->global_main_inside;
  if (global == walk->likely_global && walk->likely_main != 0) return walk->likely_main;
  return walk_read(walk->memory, &main, global + l->global_main, sizeof main, WALK_GUESS) ? main : 0;
}

static void expect_memory(walk_t *walk, const walk_state_t *state) {
  const layout_puc_t *l = &walk->layout->puc;
  if (walk->memory->expect == NULL) return;
  uint64_t end = state->stack_end + RESERVE;
  walk->calm_low = state->stack;
  walk->calm_high = state->stack_end;
  walk->memory->expect(walk->memory, WALK_SLOTS, state->stack, end > state->stack ? end : state->stack);
  bool linked = l->ci_previous != LAYOUT_ABSENT;
  walk->memory->expect(walk->memory, WALK_CALLS, linked ? 0 : state->first,
                       linked || state->call < state->first ? 0 : state->call + l->ci_size);
}

/* -- one call ------------------------------------------------------------------------------------------------ */

typedef struct {
  uint64_t func;     /* its slot */
  uint64_t previous; /* the caller's record */
  uint64_t savedpc;
} call_t;

static bool read_call(walk_t *walk, uint64_t at, call_t *out) {
  const layout_puc_t *l = &walk->layout->puc;
  uint8_t bytes[CALL_BYTES];
  bool linked = l->ci_previous != LAYOUT_ABSENT;
  uint32_t len = most(l->ci_func, l->ci_savedpc) + 8;
  if (linked) len = most(len, l->ci_previous + 8u);
  /* Records in a list live as long as their coroutine; the array of 5.1 is reallocated and dangles for a moment. */
  if (len > sizeof bytes || !walk_read(walk->memory, bytes, at, len, linked ? WALK_LIVE : WALK_GUESS))
    return false;
  *out = (call_t){bytes_u64(bytes, l->ci_func), linked ? bytes_u64(bytes, l->ci_previous) : at - l->ci_size,
                  bytes_u64(bytes, l->ci_savedpc)};
  return true;
}

/* The function in a slot. `trust` is for what the slot leads to: the slot itself is always a guess. `inner` is the frame
 * read before, NULL: none; recursion finds the same function again. */
static walk_reason_t read_function(walk_t *walk, uint64_t slot, walk_trust_t trust, const walk_frame_t *inner,
                                   walk_frame_t *frame) {
  const layout_puc_t *l = &walk->layout->puc;
  uint8_t bytes[CLOSURE_BYTES];
  /* while calm a slot inside the stack is whole; outside it is a distance, of a stack that is being moved (5.4.5 on) */
  walk_trust_t slot_trust =
      walk->calm && slot >= walk->calm_low && slot < walk->calm_high ? WALK_LIVE : WALK_GUESS;
  if (!walk_read(walk->memory, bytes, slot, SLOT_BYTES, slot_trust)) return WALK_BAD_SLOT;
  uint64_t value = bytes_u64(bytes, 0);
  uint32_t tag = l->tag_bytes == 1 ? bytes[8] : bytes_u32(bytes, 8);
  *frame = (walk_frame_t){.kind = WALK_C};
  if (l->tag_light != LAYOUT_ABSENT && tag == l->tag_light) {
    frame->code = value;
    return value >= 65536 && value < (uint64_t)1 << 47 ? WALK_OK : WALK_BAD_FUNCTION;
  }
  if (tag != l->tag_lua && tag != l->tag_c) return WALK_NO_FUNCTION;
  if (inner != NULL && inner->function == value) {
    *frame = *inner;
    return WALK_OK;
  }
  uint32_t len = most(l->closure_proto, l->closure_code) + 8;
  if (len > sizeof bytes || (value & 7) != 0 || !walk_read(walk->memory, bytes, value, len, trust))
    return WALK_BAD_FUNCTION;
  if ((bytes[l->closure_tag] & 15) != TYPE_FUNCTION) return WALK_BAD_FUNCTION;
  bool is_c = l->tag_lua == l->tag_c ? bytes[l->closure_is_c] != 0 : tag == l->tag_c;
  frame->function = value;
  if (is_c) {
    frame->code = bytes_u64(bytes, l->closure_code);
    return WALK_OK;
  }
  frame->kind = WALK_LUA;
  frame->proto = bytes_u64(bytes, l->closure_proto);
  if (walk->mark_functions) {
    walk_proto_t proto;
    if (!puc_proto(walk, frame->proto, trust, &proto)) return WALK_BAD_FUNCTION;
    frame->mark = walk_mark(&proto);
    return WALK_OK;
  }
  uint8_t proto_tag;
  if (!walk_read(walk->memory, &proto_tag, frame->proto + l->proto_tag, 1, trust) ||
      proto_tag != l->tag_proto)
    return WALK_BAD_FUNCTION;
  return WALK_OK;
}

/* While a stack moves, call records name slots of the old one, or (from 5.4.5 on) distances from its bottom. The record below
 * the first call is corrected last, and names the bottom itself. */
static uint64_t slot_in_new_stack(walk_t *walk, const walk_state_t *state, uint64_t func) {
  const layout_puc_t *l = &walk->layout->puc;
  uint64_t bottom;
  if (l->ci_previous == LAYOUT_ABSENT) return 0;
  if (!walk_read(walk->memory, &bottom, state->first + l->ci_func, sizeof bottom, WALK_LIVE)) return 0;
  if (bottom == state->stack || func <= bottom) return 0;
  return state->stack + (func - bottom);
}

static walk_reason_t read_called(walk_t *walk, const walk_state_t *state, uint64_t func, walk_trust_t trust,
                                 const walk_frame_t *inner, walk_frame_t *frame) {
  walk_reason_t reason = read_function(walk, func, trust, inner, frame);
  if (reason == WALK_OK) return reason;
  uint64_t slot = slot_in_new_stack(walk, state, func);
  return slot != 0 ? read_function(walk, slot, trust, inner, frame) : reason;
}

bool puc_runs_lua(walk_t *walk, const walk_state_t *state) {
  call_t call;
  walk_frame_t frame;
  expect_memory(walk, state);
  if (state->call == state->first || !read_call(walk, state->call, &call)) return false;
  if (read_called(walk, state, call.func, walk->calm ? WALK_LIVE : WALK_GUESS, NULL, &frame) != WALK_OK)
    return false;
  if (frame.kind == WALK_LUA) return true;
  return walk->inert != NULL && walk->inert(walk->context, frame.code);
}

/* -- the pc of the running function -------------------------------------------------------------------------- */

/* 5.1 and 5.4 write savedpc only before what may raise an error or call; meanwhile the pc is in a register that C code
 * called by the VM keeps for it. It points to the next instruction. Where several registers qualify, the one that was most
 * often the only one. 5.2 and 5.3 keep savedpc itself up to date: there no register qualifies but by chance. */
static uint64_t running_pc(walk_t *walk, const walk_proto_t *proto, uint64_t savedpc) {
  uint32_t found = WALK_MAX_REGISTERS, count = 0;
  uint8_t language = walk->layout->language;
  if (language == 52 || language == 53) return savedpc;
  for (uint32_t i = 0; i < REGISTERS_SAVED && i < walk->registers.count; i++) {
    uint64_t value = walk->registers.values[i];
    if (value <= proto->code || value > proto->code_end || (value & 3) != 0) continue;
    count++;
    if (found == WALK_MAX_REGISTERS || walk->pc_votes[i] > walk->pc_votes[found]) found = i;
  }
  if (count == 0) return savedpc;
  if (count == 1) walk->pc_votes[found]++;
  return walk->registers.values[found];
}

static uint32_t instruction_at(walk_t *walk, uint64_t pc) {
  uint32_t instruction = 0;
  walk_read(walk->memory, &instruction, pc, sizeof instruction, WALK_LIVE);
  return instruction;
}

/* 5.4 and 5.5: the instructions that allocate without having saved the pc. */
enum { OPCODE_54 = 127, NEWTABLE_54 = 19, SETLIST_54 = 78, EXTRAARG_54 = 82, EXTRAARG_55 = 84 };

/* True when the instruction at work at pc can be what asks for a block of that type and size. 5.5 has other formats: there any
 * of them can. */
static bool asks_for_block_54(walk_t *walk, uint64_t pc) {
  enum { VALUE = 16, NODE = 24 };
  bool is_54 = walk->layout->language == 54;
  uint32_t last = instruction_at(walk, pc - INSTRUCTION), extra = 0;
  if ((last & OPCODE_54) == (is_54 ? EXTRAARG_54 : EXTRAARG_55)) {
    extra = last >> 7;
    last = instruction_at(walk, pc - 2 * INSTRUCTION);
  }
  uint32_t opcode = last & OPCODE_54, b = last >> 16 & 255, c = last >> 24;
  if ((last >> 15 & 1) != 0) c += extra << 8;
  if (opcode != NEWTABLE_54 && opcode != SETLIST_54) return false;
  if (walk->allocating.type != 0) return opcode == NEWTABLE_54;
  if (!is_54) return true;
  uint64_t bytes = walk->allocating.bytes;
  if (opcode == SETLIST_54) return b == 0 || bytes == (uint64_t)VALUE * (b + c);
  return (c > 0 && bytes == (uint64_t)VALUE * c) || (b > 0 && b < 32 && bytes == (uint64_t)NODE << (b - 1));
}

/* New objects other than tables come from instructions that save the pc. */
static bool is_saved_54(const walk_t *walk) {
  enum { TYPE_TABLE = 5 };
  return walk->allocating.type != 0 && walk->allocating.type != TYPE_TABLE;
}

/* 5.1: instructions that allocate unsaved are NEWTABLE, SETLIST and CLOSURE; the first and the last save the pc when they are
 * done. */
enum {
  MOVE = 0,
  LOADBOOL = 2,
  GETUPVAL = 4,
  SETUPVAL = 8,
  NEWTABLE = 10,
  NOT = 19,
  LEN = 20,
  JMP = 22,
  TEST = 26,
  TESTSET = 27,
  FORLOOP = 31,
  SETLIST = 34,
  CLOSE = 35,
  CLOSURE = 36
};

static uint32_t opcode_51(uint32_t instruction) {
  return instruction & 63;
}

/* Where the instruction before pc begins: a closure's upvalues are written as instructions behind it, and stepped through. */
static uint64_t unsaved_51(walk_t *walk, const walk_proto_t *proto, uint64_t pc) {
  enum { MAX_UPVALUES = 60 };
  uint64_t at = pc - INSTRUCTION;
  uint32_t opcode = opcode_51(instruction_at(walk, at));
  for (int i = 0; i < MAX_UPVALUES && (opcode == MOVE || opcode == GETUPVAL) && at > proto->code; i++) {
    at -= INSTRUCTION;
    opcode = opcode_51(instruction_at(walk, at));
    if (opcode == NEWTABLE || opcode == SETLIST) return 0;
  }
  return opcode == NEWTABLE || opcode == SETLIST || opcode == CLOSURE ? at : 0;
}

/* True when the VM may have come from `from` to `to` without saving the pc on its way: else `to` is an old one. */
static bool is_reachable_51(walk_t *walk, const walk_proto_t *proto, uint64_t from, uint64_t to) {
  enum { MAX_STEPS = 128, MAX_BRANCHES = 16 };
  uint64_t branches[MAX_BRANCHES] = {from};
  int count = 1;
  for (int steps = 0; steps < MAX_STEPS && count > 0;) {
    uint64_t pc = branches[--count];
    for (bool on = true; on && steps < MAX_STEPS && pc >= proto->code && pc < proto->code_end; steps++) {
      if (pc == to) return true;
      uint32_t instruction = instruction_at(walk, pc), opcode = opcode_51(instruction);
      uint64_t next = pc + INSTRUCTION;
      uint64_t target = next + (uint64_t)(((int64_t)(instruction >> 14) - 131071) * INSTRUCTION);
      bool branches_off = opcode == FORLOOP || opcode == TEST || opcode == TESTSET || opcode == LOADBOOL;
      if (opcode != FORLOOP) target = branches_off ? next + INSTRUCTION : target;
      if (branches_off && count < MAX_BRANCHES) branches[count++] = target;
      pc = opcode == JMP ? target : next;
      /* arithmetic on numbers and the length of a table are done without a save */
      on = opcode <= GETUPVAL || opcode == SETUPVAL || (opcode >= 12 && opcode <= LEN) || opcode == JMP ||
           branches_off || opcode == SETLIST || opcode == CLOSE;
    }
  }
  return false;
}

/* In the allocator the pc is on the native stack, where one of the functions called by the VM has put the register that holds
 * it. The nearest word that stands behind an instruction which allocates unsaved, and such a block, is the pc; where there is
 * none, the saved one is right. What earlier calls have left in between has to be told apart: 5.1 saves often, and what cannot
 * have been reached since is an old one; from 5.4 on the allocator is told enough of the block. */
static uint64_t allocating_pc(walk_t *walk, const walk_state_t *state, const walk_proto_t *proto,
                              uint64_t savedpc) {
  uint8_t language = walk->layout->language;
  if (language == 52 || language == 53 || (language != 51 && is_saved_54(walk))) return savedpc;
  uint64_t words[64], at = walk->registers.sp, end = at + ALLOCATOR_BYTES;
  if (end > walk->stack_high) end = walk->stack_high;
  if (state->place > at && end > state->place) end = state->place;
  for (; at + sizeof words[0] <= end; at += sizeof words) {
    uint32_t len = end - at < sizeof words ? (uint32_t)(end - at) & ~7u : (uint32_t)sizeof words;
    if (!walk_read(walk->memory, words, at, len, WALK_GUESS)) return savedpc;
    for (uint32_t i = 0; i < len / sizeof words[0]; i++) {
      uint64_t word = words[i];
      if (word <= proto->code || word > proto->code_end || (word & 3) != 0) continue;
      if (language != 51 && asks_for_block_54(walk, word)) return word;
      uint64_t unsaved = language == 51 ? unsaved_51(walk, proto, word) : 0;
      if (unsaved != 0 && is_reachable_51(walk, proto, savedpc, unsaved)) return unsaved + INSTRUCTION;
    }
  }
  return savedpc;
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

/* -- the collector, the parser -------------------------------------------------------------------------------- */

/* Hooks are off while a finalizer runs (and while a hook does). */
bool puc_finalizes(walk_t *walk, const walk_state_t *state) {
  const layout_puc_t *l = &walk->layout->puc;
  uint8_t allowed = 1;
  if (l->state_allowhook == LAYOUT_ABSENT) return false;
  return walk_read(walk->memory, &allowed, state->state + l->state_allowhook, 1, WALK_LIVE) && allowed == 0;
}

/* True when the function of the call record was interrupted by a finalizer. */
static bool was_interrupted(walk_t *walk, uint64_t call) {
  const layout_puc_t *l = &walk->layout->puc;
  uint8_t bits = 0;
  if (l->ci_status == LAYOUT_ABSENT || l->status_finalizer == LAYOUT_ABSENT) return false;
  if (!walk_read(walk->memory, &bits, call + l->ci_status + l->status_finalizer / 8u, 1, WALK_LIVE))
    return false;
  return (bits >> l->status_finalizer % 8 & 1) != 0;
}

/* What the parser keeps in stack slots: 5.1 the prototype it makes, later ones its closure, whose first upvalue is set last. */
static uint64_t source_in_slot(walk_t *walk, uint64_t slot) {
  const layout_puc_t *l = &walk->layout->puc;
  uint8_t bytes[CLOSURE_BYTES];
  uint64_t proto, source = 0;
  if (!walk_read(walk->memory, bytes, slot, SLOT_BYTES, WALK_LIVE)) return 0;
  uint32_t tag = l->tag_bytes == 1 ? bytes[8] : bytes_u32(bytes, 8);
  proto = bytes_u64(bytes, 0);
  if (walk->layout->language == 51) {
    if (tag != l->tag_proto) return 0;
  } else {
    if (tag != l->tag_lua || !walk_read(walk->memory, bytes, proto, l->closure_proto + 8, WALK_LIVE))
      return 0;
    uint64_t upvalue = 0, closure = proto;
    proto = bytes_u64(bytes, l->closure_proto);
    if (proto == 0 || bytes[l->closure_tag + (l->closure_is_c != LAYOUT_ABSENT ? 3 : 2)] == 0)
      return 0; /* upvalues: a chunk has at least one */
    walk_read(walk->memory, &upvalue, closure + l->closure_proto + 8, 8, WALK_LIVE);
    if (upvalue != 0) return 0;
  }
  return walk_read(walk->memory, &source, proto + l->proto_source, 8, WALK_LIVE) ? source : 0;
}

uint64_t puc_parsing(walk_t *walk, const walk_state_t *state) {
  const layout_puc_t *l = &walk->layout->puc;
  uint64_t top, bottom = state->stack;
  call_t call;
  if (l->state_top == LAYOUT_ABSENT) return 0;
  if (!walk_read(walk->memory, &top, state->state + l->state_top, 8, WALK_LIVE)) return 0;
  if (state->call != state->first && read_call(walk, state->call, &call)) bottom = call.func;
  if (bottom < state->stack || top < bottom || top > state->stack_end + RESERVE)
    return 0; /* the stack is being moved */
  for (uint32_t i = 0; i < PARSER_SLOTS && top > bottom + SLOT_BYTES; i++) {
    top -= SLOT_BYTES;
    uint64_t source = source_in_slot(walk, top);
    if (source != 0) return source;
  }
  return 0;
}

/* -- all calls of a coroutine: the frames ----------------------------------------------------------------------- */

bool puc_frame(walk_t *walk, const walk_state_t *state, uint64_t at, bool top, walk_frame_t *frame) {
  call_t call;
  walk_proto_t proto;
  expect_memory(walk, state);
  if (!read_call(walk, at, &call) || read_called(walk, state, call.func, WALK_LIVE, NULL, frame) != WALK_OK)
    return false;
  if (frame->kind != WALK_LUA) return true;
  uint64_t savedpc = call.savedpc;
  if (top && walk->layout->puc.state_savedpc != LAYOUT_ABSENT)
    walk_read(walk->memory, &savedpc, state->state + walk->layout->puc.state_savedpc, 8, WALK_LIVE);
  if (top && puc_proto(walk, frame->proto, WALK_LIVE, &proto))
    savedpc = allocating_pc(walk, state, &proto, savedpc);
  frame->pc = savedpc - INSTRUCTION;
  return true;
}

walk_reason_t puc_frames(walk_t *walk, const walk_state_t *state, bool running) {
  const layout_puc_t *l = &walk->layout->puc;
  bool linked = l->ci_previous != LAYOUT_ABSENT;
  uint64_t at = state->call;
  const walk_frame_t *inner = NULL;
  call_t call;
  bool finalizes = walk->mark_collector && running && puc_finalizes(walk, state);
  expect_memory(walk, state);
  if (!linked && (at < state->first || (at - state->first) % l->ci_size != 0)) return WALK_BAD_CALLINFO;
  for (uint32_t depth = 0; at != state->first; depth++, at = call.previous) {
    bool top = depth == 0;
    if (finalizes && walk->frame_count < WALK_MAX_FRAMES && was_interrupted(walk, at))
      walk_add_collector(walk);
    if (walk->frame_count == WALK_MAX_FRAMES) {
      walk->truncated = true;
      return WALK_OK;
    }
    if (!read_call(walk, at, &call)) return WALK_BAD_CALLINFO;
    walk_frame_t *frame = &walk->frames[walk->frame_count];
    /* The topmost call may be in the making: its record is published before its slot is set. */
    walk_trust_t trust = top && running && !walk->calm ? WALK_GUESS : WALK_LIVE;
    walk_reason_t reason = read_called(walk, state, call.func, trust, inner, frame);
    if (reason == WALK_OK) {
      inner = frame;
      walk->frame_count++;
      if (frame->kind != WALK_LUA) continue;
      uint64_t savedpc = top && state->savedpc != 0 ? state->savedpc : call.savedpc;
      walk_proto_t proto;
      if (top && running && puc_proto(walk, frame->proto, trust, &proto))
        savedpc =
            walk->calm ? allocating_pc(walk, state, &proto, savedpc) : running_pc(walk, &proto, savedpc);
      if (running && depth == 1 && is_half_made(walk, frame, savedpc)) {
        walk->frame_count--;
        continue;
      }
      frame->pc = savedpc - INSTRUCTION;
    } else if (!(top && (running || state->place == 0))) { /* 5.2, 5.3: what yielded may hide its slot */
      return reason;
    }
    if (linked && call.previous == 0) return WALK_BAD_CALLINFO;
  }
  return WALK_OK;
}

/* -- functions --------------------------------------------------------------------------------------------------- */

bool puc_proto(walk_t *walk, uint64_t address, walk_trust_t trust, walk_proto_t *out) {
  const layout_puc_t *l = &walk->layout->puc;
  uint8_t bytes[160];
  if (l->proto_size > sizeof bytes || !walk_read(walk->memory, bytes, address, l->proto_size, trust))
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

enum { DELTA_STEP = 128, ANCHOR_BYTES = 8, ABSOLUTE = -0x80 };

/* 5.4: the last anchor at or before the instruction. At least one stands in every 128 instructions, so the guess
 * index / 128 - 1 is never past it. */
static bool find_anchor(walk_t *walk, const walk_proto_t *proto, uint32_t index, int64_t *from,
                        int32_t *line) {
  *from = -1;
  *line = proto->line;
  uint32_t i = index / DELTA_STEP;
  i = i > 0 ? i - 1 : 0;
  for (uint32_t steps = 0; i < proto->anchor_count && steps < 4 * DELTA_STEP; i++, steps++) {
    uint8_t anchor[ANCHOR_BYTES];
    if (!walk_read(walk->memory, anchor, proto->anchors + (uint64_t)i * ANCHOR_BYTES, ANCHOR_BYTES,
                   WALK_LIVE))
      return false;
    if (bytes_u32(anchor, 0) > index) break;
    *from = bytes_u32(anchor, 0);
    *line = (int32_t)bytes_u32(anchor, 4);
  }
  return true;
}

static int32_t line_by_deltas(walk_t *walk, const walk_proto_t *proto, uint32_t index) {
  int64_t from;
  int32_t line;
  int8_t deltas[4 * DELTA_STEP];
  if (!find_anchor(walk, proto, index, &from, &line)) return 0;
  int64_t count = (int64_t)index - from;
  if (count > (int64_t)sizeof deltas || count < 0) return 0;
  if (count > 0 &&
      !walk_read(walk->memory, deltas, proto->lines + (uint64_t)(from + 1), (uint32_t)count, WALK_LIVE))
    return 0;
  for (int64_t i = 0; i < count; i++) {
    if (deltas[i] == ABSOLUTE) return 0; /* an anchor would have been found */
    line = (int32_t)((uint32_t)line + (uint32_t)deltas[i]);
  }
  return line > 0 ? line : 0;
}

int32_t puc_line(walk_t *walk, const walk_proto_t *proto, uint64_t pc) {
  if (proto->lines == 0 || proto->code_end <= proto->code) return 0;
  if (pc < proto->code) pc = proto->code; /* not one instruction was run yet */
  if (pc >= proto->code_end) return 0;
  uint32_t index = (uint32_t)((pc - proto->code) / INSTRUCTION);
  if (index >= proto->line_count) return 0; /* stripped */
  if (walk->layout->puc.proto_anchors != LAYOUT_ABSENT) return line_by_deltas(walk, proto, index);
  int32_t line = 0;
  if (!walk_read(walk->memory, &line, proto->lines + (uint64_t)index * sizeof line, sizeof line, WALK_LIVE))
    return 0;
  return line > 0 ? line : 0;
}

bool puc_string(walk_t *walk, uint64_t string, char *to, size_t size, size_t *len) {
  const layout_puc_t *l = &walk->layout->puc;
  uint8_t head[32];
  uint32_t head_len = l->string_bytes + (l->string_long_bytes != LAYOUT_ABSENT ? 8u : 0u);
  if (head_len > sizeof head || !walk_read(walk->memory, head, string, head_len, WALK_LIVE)) return false;
  if ((head[l->string_tag] & 15) != 4) return false; /* LUA_TSTRING */
  uint64_t bytes = string + l->string_bytes, count = bytes_u64(head, l->string_length);
  if (l->string_long_bytes !=
      LAYOUT_ABSENT) { /* 5.5: a negative short length means a long string, stored apart */
    if ((int8_t)head[l->string_short_length] >= 0)
      count = head[l->string_short_length];
    else
      bytes = bytes_u64(head, l->string_long_bytes);
  } else if (l->string_short_length != LAYOUT_ABSENT && (head[l->string_tag] & 16) == 0) {
    count = head[l->string_short_length];
  }
  if (count > (uint64_t)1 << 40) return false;
  *len = (size_t)count;
  size_t wanted = *len < size ? *len : size;
  return wanted == 0 || walk_read(walk->memory, to, bytes, (uint32_t)wanted, WALK_LIVE);
}
