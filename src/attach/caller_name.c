/* SPDX-License-Identifier: MIT */
/* Names out of bytecode; see caller_name.h. Every read may fail and every number may be anything: loops are bounded, and what is not
 * understood has no name. */
#include "attach/caller_name.h"

#include <stdio.h>
#include <string.h>

#include "attach/caller_name_luajit.h"
#include "attach/table.h"
#include "walk/bytes.h"

enum {
  INSTRUCTIONS = 1 << 16, /* looked through before a call, at most */
  LOCALS = 1 << 14,
  BLOCK = 128, /* instructions read at a time */
  MOVES = 4,   /* from register to register */
  SLOT = 16,
  NONE = 255 /* no opcode */
};

/* -- opcodes ---------------------------------------------------------------------------------------------------------- */

/* A metamethod that instructions call. */
typedef struct {
  uint8_t first, last;
  const char *name;
} event_t;

typedef struct {
  uint8_t language;
  uint8_t move, constant, nil, upvalue, global, table, field, self, jump, call, tail_call, iterate, closure,
      list;
  uint8_t iterator;      /* from the register of `iterate` to that which is called */
  uint8_t varargs;       /* the first instruction of a vararg function, which moves it past its arguments */
  uint64_t sets[2];      /* opcodes that set register A, a bit each */
  const event_t *events; /* ended by one without a name; NULL: none */
} opcodes_t;

static const event_t events_52[] = {
    {6, 7, "__index"}, {12, 12, "__index"}, {8, 8, "__newindex"}, {10, 10, "__newindex"},
    {13, 13, "__add"}, {14, 14, "__sub"},   {15, 15, "__mul"},    {16, 16, "__div"},
    {17, 17, "__mod"}, {18, 18, "__pow"},   {19, 19, "__unm"},    {21, 21, "__len"},
    {24, 24, "__eq"},  {25, 25, "__lt"},    {26, 26, "__le"},     {0, 0, NULL},
};
static const event_t events_53[] = {
    {6, 7, "__index"},  {12, 12, "__index"}, {8, 8, "__newindex"}, {10, 10, "__newindex"}, {13, 13, "__add"},
    {14, 14, "__sub"},  {15, 15, "__mul"},   {16, 16, "__mod"},    {17, 17, "__pow"},      {18, 18, "__div"},
    {19, 19, "__idiv"}, {20, 20, "__band"},  {21, 21, "__bor"},    {22, 22, "__bxor"},     {23, 23, "__shl"},
    {24, 24, "__shr"},  {25, 25, "__unm"},   {26, 26, "__bnot"},   {28, 28, "__len"},      {31, 31, "__eq"},
    {32, 32, "__lt"},   {33, 33, "__le"},    {0, 0, NULL},
};
/* of 5.4 and 5.5; arithmetic has an instruction of its own, MMBIN, for its metamethods */
static const event_t events_54[] = {
    {11, 14, "__index"}, {20, 20, "__index"}, {15, 18, "__newindex"}, {49, 49, "__unm"}, {50, 50, "__bnot"},
    {52, 52, "__len"},   {57, 57, "__eq"},    {58, 58, "__lt"},       {59, 59, "__le"},  {62, 62, "__lt"},
    {63, 63, "__le"},    {64, 64, "__lt"},    {65, 65, "__le"},       {0, 0, NULL},
};
enum { BINARY_54 = 46, BINARY_LAST_54 = 48, ADD_EVENT_54 = 6, BINARY_EVENTS_54 = 12 };
static const char *const binary_54[BINARY_EVENTS_54] = {"__add", "__sub",  "__mul",  "__mod",
                                                        "__pow", "__div",  "__idiv", "__band",
                                                        "__bor", "__bxor", "__shl",  "__shr"};

static const opcodes_t versions[] = {
    {51, 0, 1, 3, 4, 5, 6, NONE, 11, 22, 28, 29, 33, 36, 34, 3, NONE, {0x31bc3ffc7f, 0}, NULL},
    {52, 0, 1, 4, 5, 6, 7, NONE, 12, 23, 29, 30, 34, 37, NONE, 3, NONE, {0x6b707ff8ff, 0}, events_52},
    {53, 0, 1, 4, 5, 6, 7, NONE, 12, 30, 36, 37, 41, 44, NONE, 3, NONE, {0x35b83ffff8ff, 0}, events_53},
    {54, 0, 3, 8, 9, 11, 12, 14, 20, 56, 68, 69, 76, 79, NONE, 4, 81, {0x3e3ffffff87bff, 0x3a638}, events_54},
    {55, 0, 3, 8, 9, 11, 12, 14, 20, 56, 68, 69, 76, 79, NONE, 3, 83, {0x3e3ffffff87bff, 0xba638}, events_54},
};

/* A function that calls another. */
typedef struct {
  walk_t *walk;
  const opcodes_t *ops;
  uint64_t code, constants, locals, upvalues;
  uint32_t count, constant_count, local_count, upvalue_count;
  uint32_t registers;
  uint32_t block[BLOCK], first, held; /* instructions at hand */
} code_t;

static bool is_54(const code_t *c) {
  return c->ops->language >= 54;
}

/* -- instructions ------------------------------------------------------------------------------------------------------ */

static uint32_t op_of(const code_t *c, uint32_t i) {
  return i & (is_54(c) ? 127 : 63);
}
static uint32_t a_of(const code_t *c, uint32_t i) {
  return i >> (is_54(c) ? 7 : 6) & 255;
}
static uint32_t b_of(const code_t *c, uint32_t i) {
  return is_54(c) ? i >> 16 & 255 : i >> 23;
}
static uint32_t c_of(const code_t *c, uint32_t i) {
  return is_54(c) ? i >> 24 : i >> 14 & 511;
}
static uint32_t bx_of(const code_t *c, uint32_t i) {
  return i >> (is_54(c) ? 15 : 14);
}
static int64_t target_of(const code_t *c, uint32_t i, uint32_t pc) {
  return (int64_t)pc + 1 + (is_54(c) ? (int64_t)(i >> 7) - 16777215 : (int64_t)(i >> 14) - 131071);
}

static bool fetch(code_t *c, uint32_t pc, uint32_t *instruction) {
  if (pc >= c->count) return false;
  if (pc < c->first || pc - c->first >= c->held) {
    uint32_t wanted = c->count - pc < BLOCK ? c->count - pc : BLOCK;
    c->held = 0;
    if (!walk_read(c->walk->memory, c->block, c->code + (uint64_t)pc * 4, wanted * 4, WALK_GUESS))
      return false;
    c->first = pc;
    c->held = wanted;
  }
  *instruction = c->block[pc - c->first];
  return true;
}

static bool sets_register(const code_t *c, uint32_t i, uint32_t reg) {
  const opcodes_t *ops = c->ops;
  uint32_t op = op_of(c, i), a = a_of(c, i);
  if (op == ops->nil) return reg >= a && reg <= (ops->language == 51 ? b_of(c, i) : a + b_of(c, i));
  if (op == ops->call || op == ops->tail_call) return reg >= a;
  if (op == ops->iterate) return reg >= a + 2;
  return (ops->sets[op / 64] >> op % 64 & 1) != 0 && reg == a;
}

/* The instruction before `end` that last set the register; false when that is not certain: it may have been jumped over. */
static bool find_setter(code_t *c, uint32_t end, uint32_t reg, uint32_t *setter) {
  const opcodes_t *ops = c->ops;
  int64_t joined = 0; /* up to here instructions may be jumped over */
  bool found = false, captures = false;
  for (uint32_t pc = 0; pc < end; pc++) {
    uint32_t i;
    if (!fetch(c, pc, &i)) return false;
    uint32_t op = op_of(c, i);
    /* 5.1 writes what a closure captures as moves to register 0 behind it */
    captures = captures && (op == ops->move || op == ops->upvalue) && a_of(c, i) == 0;
    if (captures) continue;
    captures = op == ops->closure && ops->language == 51;
    if (op == ops->list && c_of(c, i) == 0) pc++; /* 5.1: a number follows */
    if (op == ops->jump) {
      int64_t target = target_of(c, i, pc);
      if (target <= end && target > joined) joined = target;
    } else if (sets_register(c, i, reg)) {
      found = pc >= joined;
      *setter = pc;
    }
  }
  return found;
}

/* -- names -------------------------------------------------------------------------------------------------------------- */

/* A word, as names from tables are. */
static size_t read_word(const code_t *c, uint64_t string, char *name) {
  size_t len;
  if (string == 0 || (string & 7) != 0 || !walk_string(c->walk, string, name, CALLER_NAME, &len)) return 0;
  if (len == 0 || len >= CALLER_NAME || name[0] == '(') return 0; /* "(for state)" */
  for (size_t i = 0; i < len; i++)
    if ((unsigned char)name[i] < 0x21 || name[i] == 0x7f) return 0;
  name[len] = '\0';
  return len;
}

static size_t name_of_constant(const code_t *c, uint32_t index, char *name) {
  value_t value;
  if (index >= c->constant_count || !table_value(c->walk, c->constants + (uint64_t)index * SLOT, &value) ||
      value.kind != VALUE_STRING)
    return 0;
  return read_word(c, value.at, name);
}

static size_t name_of_upvalue(const code_t *c, uint32_t index, char *name) {
  const layout_puc_t *l = &c->walk->layout->puc;
  bool described = l->upvalue_size != LAYOUT_ABSENT;
  uint64_t string, at = described ? (uint64_t)index * l->upvalue_size + l->upvalue_name : index * UINT64_C(8);
  if (index >= c->upvalue_count ||
      !walk_read(c->walk->memory, &string, c->upvalues + at, sizeof string, WALK_GUESS))
    return 0;
  return read_word(c, string, name);
}

/* The local variable that lives in the register; *is_local: there is one, with a name that counts or without. */
static size_t name_of_local(const code_t *c, uint32_t pc, uint32_t reg, bool *is_local, char *name) {
  const layout_puc_t *l = &c->walk->layout->puc;
  uint8_t bytes[LAYOUT_LOCAL_BYTES];
  *is_local = false;
  for (uint32_t i = 0; i < c->local_count && i < LOCALS; i++) {
    if (!walk_read(c->walk->memory, bytes, c->locals + (uint64_t)i * l->local_size, l->local_size,
                   WALK_GUESS) ||
        bytes_u32(bytes, l->local_start) > pc)
      return 0;
    if (pc >= bytes_u32(bytes, l->local_end) || reg-- > 0) continue;
    *is_local = true;
    return read_word(c, bytes_u64(bytes, l->local_name), name);
  }
  return 0;
}

/* The key that a register holds: instructions can name so many constants only. */
static size_t name_of_key(code_t *c, uint32_t pc, uint32_t reg, char *name) {
  uint32_t setter, i;
  if (!find_setter(c, pc, reg, &setter) || !fetch(c, setter, &i) || op_of(c, i) != c->ops->constant) return 0;
  return name_of_constant(c, bx_of(c, i), name);
}

/* A key that is a constant or in a register: bit 8 says which, from 5.4 on bit k, where SELF has a choice at all. */
static size_t name_of_operand(code_t *c, uint32_t pc, uint32_t i, char *name) {
  uint32_t key = c_of(c, i);
  if (c->ops->language == 55 || (c->ops->language == 54 && (i >> 15 & 1) != 0))
    return name_of_constant(c, key, name);
  if (!is_54(c) && (key & 256) != 0) return name_of_constant(c, key & 255, name);
  return name_of_key(c, pc, key, name);
}

static size_t name_of_register(code_t *c, uint32_t pc, uint32_t reg, char *name) {
  const opcodes_t *ops = c->ops;
  for (int moves = 0; moves < MOVES; moves++) {
    bool is_local;
    size_t len = name_of_local(c, pc, reg, &is_local, name);
    uint32_t i, op;
    if (is_local) return len;
    if (!find_setter(c, pc, reg, &pc) || !fetch(c, pc, &i)) return 0;
    op = op_of(c, i);
    if (op == ops->upvalue) return name_of_upvalue(c, b_of(c, i), name);
    if (op == ops->global && ops->language == 51) return name_of_constant(c, bx_of(c, i), name);
    if (is_54(c) && (op == ops->global || op == ops->field)) return name_of_constant(c, c_of(c, i), name);
    if (is_54(c) && op == ops->table) return name_of_key(c, pc, c_of(c, i), name);
    if (op == ops->global || op == ops->table || op == ops->self) return name_of_operand(c, pc, i, name);
    if (op != ops->move || b_of(c, i) >= a_of(c, i)) return 0;
    reg = b_of(c, i);
  }
  return 0;
}

static size_t name_of_event(const code_t *c, uint32_t i, char *name) {
  uint32_t op = op_of(c, i), event = c_of(c, i) - ADD_EVENT_54;
  if (is_54(c) && op >= BINARY_54 && op <= BINARY_LAST_54)
    return event < BINARY_EVENTS_54 ? (size_t)snprintf(name, CALLER_NAME, "%s", binary_54[event]) : 0;
  for (const event_t *e = c->ops->events; e != NULL && e->name != NULL; e++)
    if (op >= e->first && op <= e->last) return (size_t)snprintf(name, CALLER_NAME, "%s", e->name);
  return 0;
}

/* The register that the instruction calls: metamethods are put behind all that the function uses. */
static uint32_t called_register(const code_t *c, uint32_t i) {
  uint32_t op = op_of(c, i);
  if (op == c->ops->call || op == c->ops->tail_call) return a_of(c, i);
  return op == c->ops->iterate ? a_of(c, i) + c->ops->iterator : c->registers;
}

static size_t name_of_call(code_t *c, uint32_t pc, char *name) {
  uint32_t i;
  if (!fetch(c, pc, &i)) return 0;
  uint32_t op = op_of(c, i);
  if (op == c->ops->call || op == c->ops->tail_call) return name_of_register(c, pc, a_of(c, i), name);
  if (op == c->ops->iterate) return (size_t)snprintf(name, CALLER_NAME, "for iterator");
  return name_of_event(c, i, name);
}

/* -- places ------------------------------------------------------------------------------------------------------------- */

/* The slots by which vararg functions were moved past their arguments, 0: it is none, or that is not known. */
static uint64_t moved_by(const code_t *c, const walk_frame_t *called) {
  const layout_puc_t *l = &c->walk->layout->puc;
  walk_proto_t proto;
  uint32_t first;
  uint8_t parameters;
  if (c->ops->varargs == NONE || called->shift == WALK_NO_SHIFT ||
      !walk_proto(c->walk, called->proto, WALK_GUESS, &proto) || proto.code == proto.code_end ||
      !walk_read(c->walk->memory, &first, proto.code, sizeof first, WALK_GUESS) ||
      op_of(c, first) != c->ops->varargs ||
      !walk_read(c->walk->memory, &parameters, called->proto + l->proto_parameters, 1, WALK_GUESS))
    return 0;
  return (uint64_t)called->shift + parameters + 1;
}

/* Whether the function lies where the instruction has called one. What lies elsewhere is a finalizer or a hook that came in between, or is
 * left from a call before: records are published before they are filled in. */
static bool is_called_there(code_t *c, const walk_frame_t *called, const walk_frame_t *caller, uint32_t pc) {
  uint32_t i;
  uint64_t base = caller->slot + (is_54(c) ? 1 : (uint64_t)caller->shift) * SLOT;
  if (!fetch(c, pc, &i) || called->slot == 0 || caller->slot == 0 ||
      (!is_54(c) && caller->shift == WALK_NO_SHIFT))
    return false;
  uint64_t place = base + (uint64_t)called_register(c, i) * SLOT;
  if (called->slot == place) return true;
  uint64_t moved = moved_by(c, called);
  return moved != 0 && called->slot == place + moved * SLOT;
}

/* -- functions ---------------------------------------------------------------------------------------------------------- */

static bool is_known(const layout_puc_t *l) {
  const uint16_t wanted[] = {l->proto_constants,   l->proto_constant_count, l->proto_locals,
                             l->proto_local_count, l->proto_upvalues,       l->proto_upvalue_count,
                             l->local_size,        l->local_name,           l->local_start,
                             l->local_end,         l->proto_parameters,     l->proto_registers};
  for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++)
    if (wanted[i] == LAYOUT_ABSENT) return false;
  return (l->upvalue_size == LAYOUT_ABSENT) == (l->upvalue_name == LAYOUT_ABSENT) &&
         (l->ci_base != LAYOUT_ABSENT || l->ci_extra != LAYOUT_ABSENT);
}

static bool open_code(code_t *c, walk_t *walk, const walk_proto_t *proto) {
  const layout_puc_t *l = &walk->layout->puc;
  uint8_t bytes[WALK_BUFFER];
  memset(c, 0, sizeof *c);
  c->walk = walk;
  for (size_t i = 0; i < sizeof versions / sizeof versions[0]; i++)
    if (versions[i].language == walk->layout->language) c->ops = &versions[i];
  if (c->ops == NULL || l->proto_size > sizeof bytes ||
      !walk_read(walk->memory, bytes, proto->proto, l->proto_size, WALK_GUESS))
    return false;
  c->code = proto->code;
  c->count = (uint32_t)((proto->code_end - proto->code) / 4);
  c->constants = bytes_u64(bytes, l->proto_constants);
  c->constant_count = bytes_u32(bytes, l->proto_constant_count);
  c->locals = bytes_u64(bytes, l->proto_locals);
  c->local_count = bytes_u32(bytes, l->proto_local_count);
  c->upvalues = bytes_u64(bytes, l->proto_upvalues);
  c->upvalue_count = bytes_u32(bytes, l->proto_upvalue_count);
  c->registers = bytes[l->proto_registers];
  return true;
}

static bool is_there(walk_t *walk, const walk_frame_t *frame, walk_proto_t *proto) {
  return walk_proto(walk, frame->proto, WALK_GUESS, proto) && walk_mark(walk, proto) == frame->mark;
}

/* True when an instruction of the function is at work: until the first one its record may be in the making, or be handed to what is called
 * by a tail call, which is marked last; and when it ends, a result comes to the place of the function. */
static bool is_at_work(walk_t *walk, const walk_frame_t *called) {
  walk_proto_t proto;
  return is_there(walk, called, &proto) && called->pc >= proto.code && called->pc < proto.code_end;
}

size_t caller_name(walk_t *walk, const walk_frame_t *called, const walk_frame_t *caller,
                   char name[CALLER_NAME]) {
  walk_proto_t proto;
  code_t code;
  if (called->kind != WALK_LUA || caller->kind != WALK_LUA) return 0;
  if (walk->layout->family == LAYOUT_LUAJIT) return caller_name_luajit(walk, called, caller, name);
  if (!is_known(&walk->layout->puc) || called->tail || !is_at_work(walk, called) ||
      !is_there(walk, caller, &proto) || caller->pc < proto.code || caller->pc >= proto.code_end ||
      (caller->pc - proto.code) / 4 >= INSTRUCTIONS || !open_code(&code, walk, &proto))
    return 0;
  uint32_t pc = (uint32_t)((caller->pc - proto.code) / 4);
  size_t len = is_called_there(&code, called, caller, pc) ? name_of_call(&code, pc, name) : 0;
  if (walk->memory->forget != NULL) walk->memory->forget(walk->memory);
  return is_there(walk, caller, &proto) ? len : 0;
}
