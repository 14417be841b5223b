/* SPDX-License-Identifier: MIT */
/* PUC Lua, seen from its allocator: the pc of what asks for memory, the chunk that is being compiled, single calls. The thread
 * stands still there (walk_t.calm), and more can be told than of an interrupted one. */
#include "walk/family_puc.h"

enum {
  PARSER_SLOTS = 64,      /* looked at for what the parser has put there */
  PARSER_NODES = 1 << 18, /* of its table */
  ALLOCATOR_BYTES = 2048  /* of native stack between the allocator and the VM that called it, at most */
};

/* -- the pc ------------------------------------------------------------------------------------------------------ */

static uint32_t instruction_at(walk_t *walk, uint64_t pc) {
  uint32_t instruction = 0;
  walk_read(walk->memory, &instruction, pc, sizeof instruction, WALK_LIVE);
  return instruction;
}

/* 5.4 and 5.5: the instructions that allocate without having saved the pc. */
enum { OPCODE_54 = 127, NEWTABLE_54 = 19, SETLIST_54 = 78, EXTRAARG_54 = 82, EXTRAARG_55 = 84 };

static uint64_t array_bytes(bool is_54, uint64_t slots) {
  enum { SLOT = 16, VALUE_AND_TAG = 9, HINT = 4 };
  return is_54 ? SLOT * slots : VALUE_AND_TAG * slots + HINT;
}

static uint64_t node_bytes(bool is_54, uint32_t log_nodes) {
  enum { NODE = 24, HAS_LAST_FREE = 3, LAST_FREE = 8 };
  return ((uint64_t)NODE << log_nodes) + (!is_54 && log_nodes >= HAS_LAST_FREE ? LAST_FREE : 0);
}

/* True when the instruction at work at pc can be what asks for a block of that type and size. */
static bool asks_for_block_54(walk_t *walk, uint64_t pc) {
  bool is_54 = walk->layout->language == 54;
  uint32_t last = instruction_at(walk, pc - INSTRUCTION), extra = 0;
  if ((last & OPCODE_54) == (is_54 ? EXTRAARG_54 : EXTRAARG_55)) {
    extra = last >> 7;
    last = instruction_at(walk, pc - (uint64_t)2 * INSTRUCTION);
  }
  uint32_t opcode = last & OPCODE_54;
  uint32_t b = is_54 ? last >> 16 & 255 : last >> 16 & 63, c = is_54 ? last >> 24 : last >> 22;
  if ((last >> 15 & 1) != 0) c += extra << (is_54 ? 8 : 10);
  if (opcode != NEWTABLE_54 && opcode != SETLIST_54) return false;
  if (walk->allocating.type != 0) return opcode == NEWTABLE_54;
  uint64_t bytes = walk->allocating.bytes;
  if (opcode == SETLIST_54) return b == 0 || bytes == array_bytes(is_54, (uint64_t)b + c);
  return (c > 0 && bytes == array_bytes(is_54, c)) || (b > 0 && b < 32 && bytes == node_bytes(is_54, b - 1));
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
uint64_t puc_allocating_pc(walk_t *walk, const walk_state_t *state, const walk_proto_t *proto,
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

/* -- the parser ------------------------------------------------------------------------------------------------- */

static uint64_t source_of_proto(walk_t *walk, uint64_t proto) {
  uint64_t source = 0;
  return walk_read(walk->memory, &source, proto + walk->layout->puc.proto_source, 8, WALK_LIVE) ? source : 0;
}

/* Of a closure that the parser makes: its first upvalue is set last. */
static uint64_t source_of_closure(walk_t *walk, uint64_t closure) {
  const layout_puc_t *l = &walk->layout->puc;
  uint8_t bytes[CLOSURE_BYTES];
  uint64_t upvalue = 0;
  if (!walk_read(walk->memory, bytes, closure, l->closure_proto + 8, WALK_LIVE)) return 0;
  uint64_t proto = bytes_u64(bytes, l->closure_proto);
  if (proto == 0 || bytes[l->closure_tag + (l->closure_is_c != LAYOUT_ABSENT ? 3 : 2)] == 0)
    return 0; /* upvalues: a chunk has at least one */
  walk_read(walk->memory, &upvalue, closure + l->closure_proto + 8, 8, WALK_LIVE);
  return upvalue == 0 ? source_of_proto(walk, proto) : 0;
}

/* A node of the parser's table has an object as its key and its value. *others is set by what such a table does not have. */
static uint64_t source_in_node(walk_t *walk, uint64_t node, bool *others) {
  enum { TYPE = 0x0f, TAG = 8 };
  const layout_puc_t *l = &walk->layout->puc;
  uint8_t value[SLOT_BYTES], key_tag;
  uint64_t key;
  if (!walk_read(walk->memory, value, node + l->node_value, TAG + 1, WALK_LIVE) ||
      !walk_read(walk->memory, &key, node + l->node_key, sizeof key, WALK_LIVE) ||
      !walk_read(walk->memory, &key_tag, node + l->node_key_tag, 1, WALK_LIVE)) {
    *others = true;
    return 0;
  }
  if ((value[TAG] & TYPE) == 0) return 0; /* nil: not taken, or no longer */
  *others = key != bytes_u64(value, 0) || key_tag != value[TAG];
  return !*others && key_tag == l->tag_lua ? source_of_closure(walk, key) : 0;
}

/* From 5.5.1 on the parser keeps in one table what it makes, and its closure is among that. Where it was found is remembered. */
static uint64_t source_in_table(walk_t *walk, uint64_t table) {
  const layout_puc_t *l = &walk->layout->puc;
  uint8_t log_nodes;
  uint32_t array_count;
  uint64_t nodes, metatable;
  bool others = false;
  if (l->table_nodes == LAYOUT_ABSENT || l->table_log_nodes == LAYOUT_ABSENT ||
      l->table_array_count == LAYOUT_ABSENT || l->table_metatable == LAYOUT_ABSENT ||
      l->node_size == LAYOUT_ABSENT || l->node_value == LAYOUT_ABSENT || l->node_key == LAYOUT_ABSENT ||
      l->node_key_tag == LAYOUT_ABSENT)
    return 0;
  if (!walk_read(walk->memory, &array_count, table + l->table_array_count, sizeof array_count, WALK_LIVE) ||
      !walk_read(walk->memory, &metatable, table + l->table_metatable, sizeof metatable, WALK_LIVE) ||
      !walk_read(walk->memory, &nodes, table + l->table_nodes, sizeof nodes, WALK_LIVE) ||
      !walk_read(walk->memory, &log_nodes, table + l->table_log_nodes, 1, WALK_LIVE))
    return 0;
  if (array_count != 0 || metatable != 0 || log_nodes > 24) return 0;
  uint32_t count = (uint32_t)1 << log_nodes;
  uint64_t last = walk->parser_node, from_first = last - nodes, source = 0;
  if (last >= nodes && from_first / l->node_size < count && from_first % l->node_size == 0)
    source = source_in_node(walk, last, &others);
  for (uint32_t i = 0; i < count && i < PARSER_NODES && source == 0 && !others; i++) {
    walk->parser_node = nodes + (uint64_t)i * l->node_size;
    source = source_in_node(walk, walk->parser_node, &others);
  }
  return source;
}

/* What the parser keeps in stack slots: 5.1 the prototype it makes, later ones its closure, 5.5.1 its table. */
static uint64_t source_in_slot(walk_t *walk, uint64_t slot) {
  enum { TABLE_55 = 69 };
  const layout_puc_t *l = &walk->layout->puc;
  uint8_t bytes[SLOT_BYTES];
  if (!walk_read(walk->memory, bytes, slot, SLOT_BYTES, WALK_LIVE)) return 0;
  uint32_t tag = l->tag_bytes == 1 ? bytes[8] : bytes_u32(bytes, 8);
  uint64_t object = bytes_u64(bytes, 0);
  if (walk->layout->language == 51) return tag == l->tag_proto ? source_of_proto(walk, object) : 0;
  if (tag == l->tag_lua) return source_of_closure(walk, object);
  return walk->layout->language == 55 && tag == TABLE_55 ? source_in_table(walk, object) : 0;
}

uint64_t puc_parsing(walk_t *walk, const walk_state_t *state) {
  const layout_puc_t *l = &walk->layout->puc;
  uint64_t top, bottom = state->stack;
  puc_call_t call;
  if (l->state_top == LAYOUT_ABSENT) return 0;
  if (!walk_read(walk->memory, &top, state->state + l->state_top, 8, WALK_LIVE)) return 0;
  if (state->call != state->first && puc_read_call(walk, state->call, &call)) bottom = call.func;
  if (bottom < state->stack || top < bottom || top > state->stack_end + RESERVE)
    return 0; /* the stack is being moved */
  for (uint32_t i = 0; i < PARSER_SLOTS && top > bottom + SLOT_BYTES; i++) {
    top -= SLOT_BYTES;
    uint64_t source = source_in_slot(walk, top);
    if (source != 0) return source;
  }
  return 0;
}

/* -- the collector ------------------------------------------------------------------------------------------------ */

/* From 5.4.9 and 5.5.1 on it makes sure of call records and of slots before it calls finalizers: in the midst of a step, or at the end of a
 * collection of the young, after which none would be left waiting. */
bool puc_prepares_finalizers(walk_t *walk, uint64_t global) {
  enum { GENERATIONAL = 1 };
  const layout_puc_t *l = &walk->layout->puc;
  /* A layout that somebody gave may be wrong: where the main thread is was checked, and what lies before it is there. */
  uint16_t checked = l->global_main != LAYOUT_ABSENT ? l->global_main : l->global_main_inside;
  uint64_t waiting = 0;
  uint8_t stops = 0, kind = 0;
  if (checked == LAYOUT_ABSENT || l->global_waiting > checked - sizeof waiting ||
      l->global_gc_kind >= checked || l->global_gc_stop >= checked)
    return false;
  if (!walk_read(walk->memory, &waiting, global + l->global_waiting, sizeof waiting, WALK_LIVE) ||
      waiting == 0)
    return false;
  return (walk_read(walk->memory, &stops, global + l->global_gc_stop, 1, WALK_LIVE) && stops != 0) ||
         (walk_read(walk->memory, &kind, global + l->global_gc_kind, 1, WALK_LIVE) && kind == GENERATIONAL);
}

/* -- one call ---------------------------------------------------------------------------------------------------- */

bool puc_frame(walk_t *walk, const walk_state_t *state, uint64_t at, bool top, walk_frame_t *frame) {
  puc_call_t call;
  walk_proto_t proto;
  puc_expect(walk, state);
  if (!puc_read_call(walk, at, &call) ||
      puc_read_called(walk, state, call.func, WALK_LIVE, 0, frame) != WALK_OK)
    return false;
  if (frame->kind != WALK_LUA) return true;
  uint64_t savedpc = call.savedpc;
  if (top && walk->layout->puc.state_savedpc != LAYOUT_ABSENT)
    walk_read(walk->memory, &savedpc, state->state + walk->layout->puc.state_savedpc, 8, WALK_LIVE);
  if (top && puc_proto(walk, frame->proto, WALK_LIVE, &proto))
    savedpc = puc_allocating_pc(walk, state, &proto, savedpc);
  frame->pc = savedpc - INSTRUCTION;
  return true;
}
