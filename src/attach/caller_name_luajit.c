/* SPDX-License-Identifier: MIT */
/* Names out of LuaJIT's bytecode; see caller_name.h.
 *
 * A tail call leaves no mark, and links of frames are written after the frames can be seen: the frame below a function need not be its
 * caller's, nor the instruction there the one that called it. So what the instruction says is only where to look: the name counts when what
 * it stands for now, in the VM, is a function of the very prototype that runs. Every read may fail and every number may be anything: loops
 * are bounded. */
#include "attach/caller_name_luajit.h"

#include <stdio.h>
#include <string.h>

#include "attach/table.h"
#include "walk/bytes.h"

enum {
  INSTRUCTIONS = 1 << 16, /* looked through before a call, at most */
  BLOCK = 128,            /* instructions read at a time */
  LOCALS = 1 << 14,
  TEXT = 256,       /* bytes of names read at a time */
  DEPTH = 6,        /* a.b.c.d() */
  CLASSES = 8,      /* __index of __index */
  NODES = 16384,    /* of a table; a larger one is taken for data */
  LOOKUPS = 32,     /* in tables, for a name */
  FIRST_NAMED = 7,  /* bytes below stand for variables without a name: "(for state)" */
  TYPE_UPVALUE = 5, /* of an object */
  SLOT = 8,
  LINK_TYPE = 7,
  LINK_LUA = 3, /* these bits are 0: a pc */
  LINK_CONTINUED = 2,
  LINK_VARARG = 3
};

/* The same in all of 2.1; those behind JUMP, of late, set register A. */
enum {
  OP_TEST_COPY = 12,
  OP_TEST_COPY_LAST = 13,
  OP_MOVE = 18,
  OP_STRING = 39,
  OP_NIL = 44,
  OP_UPVALUE = 45,
  OP_CLOSURE = 51,
  OP_GLOBAL = 54,
  OP_GET = 56,
  OP_FIELD = 57,
  OP_GET_LAST = 59,
  OP_CALL_MANY = 65,
  OP_CALL = 66,
  OP_ITERATE = 69,
  OP_NEXT = 72,
  OP_RETURN_MANY = 73,
  OP_FOR = 77,
  OP_ITERATED = 84,
  OP_JUMP = 88
};

/* Which metamethod an instruction calls, and in which of its operands the object may be. */
enum { IN_A = 1, IN_B = 2, IN_C = 4, IN_D = 8, IN_GLOBALS = 16 };
static const struct {
  uint8_t first, last, operands;
  const char *name;
} events[] = {
    {0, 1, IN_A | IN_D, "__lt"},
    {2, 3, IN_A | IN_D, "__le"},
    {4, 5, IN_A | IN_D, "__eq"},
    {20, 20, IN_D, "__unm"},
    {21, 21, IN_D, "__len"},
    {22, 22, IN_B, "__add"},
    {23, 23, IN_B, "__sub"},
    {24, 24, IN_B, "__mul"},
    {25, 25, IN_B, "__div"},
    {26, 26, IN_B, "__mod"},
    {27, 27, IN_B, "__add"},
    {28, 28, IN_B, "__sub"},
    {29, 29, IN_B, "__mul"},
    {30, 30, IN_B, "__div"},
    {31, 31, IN_B, "__mod"},
    {32, 32, IN_B | IN_C, "__add"},
    {33, 33, IN_B | IN_C, "__sub"},
    {34, 34, IN_B | IN_C, "__mul"},
    {35, 35, IN_B | IN_C, "__div"},
    {36, 36, IN_B | IN_C, "__mod"},
    {37, 37, IN_B | IN_C, "__pow"},
    {54, 54, IN_GLOBALS, "__index"},
    {55, 55, IN_GLOBALS, "__newindex"},
    {56, 59, IN_B, "__index"},
    {60, 62, IN_B, "__newindex"},
};

typedef struct {
  walk_t *walk;
  const layout_luajit_t *l;
  const walk_frame_t *called, *caller;
  uint64_t code, constants, upvalues, locals, end; /* end: of the prototype and all that follows it */
  uint32_t count, constant_count, upvalue_count;
  uint32_t first_free; /* registers from here on are no longer the caller's */
  uint32_t lookups;
  bool stands;                        /* both frames are where they were: registers can be read */
  uint32_t block[BLOCK], first, held; /* instructions at hand */
} code_t;

/* -- memory -------------------------------------------------------------------------------------------------------------- */

static bool read_ref(const code_t *c, uint64_t at, uint64_t *ref) {
  uint8_t bytes[8];
  if (!walk_read(c->walk->memory, bytes, at, c->l->pointer, WALK_GUESS)) return false;
  *ref = bytes_ref(bytes, 0, c->l->pointer);
  return true;
}

static bool fetch(code_t *c, uint32_t pc, uint32_t *instruction) {
  if (pc >= c->count) return false;
  if (pc < c->first || pc - c->first >= c->held) {
    uint32_t first = pc >= BLOCK - 1 ? pc - (BLOCK - 1) : 0; /* they are read backwards */
    c->held = 0;
    if (!walk_read(c->walk->memory, c->block, c->code + (uint64_t)first * 4, (pc - first + 1) * 4,
                   WALK_GUESS))
      return false;
    c->first = first;
    c->held = pc - first + 1;
  }
  *instruction = c->block[pc - c->first];
  return true;
}

static uint32_t op_of(uint32_t i) {
  return i & 255;
}
static uint32_t a_of(uint32_t i) {
  return i >> 8 & 255;
}
static uint32_t b_of(uint32_t i) {
  return i >> 24;
}
static uint32_t c_of(uint32_t i) {
  return i >> 16 & 255;
}
static uint32_t d_of(uint32_t i) {
  return i >> 16;
}

/* Objects among the constants go down from where `k` points. */
static bool constant(const code_t *c, uint32_t index, uint64_t *object) {
  return index < c->constant_count &&
         read_ref(c, c->constants - ((uint64_t)index + 1) * c->l->pointer, object) && *object != 0;
}

/* -- frames -------------------------------------------------------------------------------------------------------------- */

static bool read_frame(const code_t *c, uint64_t base, uint64_t *function, int64_t *link) {
  uint64_t slots[2];
  if (c->l->pointer == 4) {
    if (!walk_read(c->walk->memory, slots, base - SLOT, SLOT, WALK_GUESS)) return false;
    *function = (uint32_t)slots[0];
    *link = (int32_t)(slots[0] >> 32);
    return true;
  }
  if (!walk_read(c->walk->memory, slots, base - (uint64_t)2 * SLOT, 2 * SLOT, WALK_GUESS)) return false;
  *function = slots[0] & (((uint64_t)1 << 47) - 1);
  *link = (int64_t)slots[1];
  return true;
}

/* Where the frame returns to, by a link as calls and metamethods leave it. */
static bool returns_to(const code_t *c, uint64_t base, int64_t link, uint64_t pc) {
  uint64_t at = 0;
  if ((link & LINK_LUA) == 0) return (c->l->pointer == 4 ? (uint32_t)link : (uint64_t)link) == pc;
  if ((link & LINK_TYPE) != LINK_CONTINUED) return false;
  uint64_t place = c->l->pointer == 4 ? base - (uint64_t)2 * SLOT + 4 : base - (uint64_t)3 * SLOT;
  return walk_read(c->walk->memory, &at, place, c->l->pointer, WALK_GUESS) && at == pc;
}

/* Whether the caller is still at its instruction, with the same function above it. */
static bool frames_stand(const code_t *c) {
  uint64_t function, base = c->called->slot;
  int64_t link;
  if (base == 0 || c->caller->slot == 0 || base <= c->caller->slot || (base & 7) != 0 ||
      (c->caller->slot & 7) != 0 || !read_frame(c, c->caller->slot, &function, &link) ||
      function != c->caller->function || !read_frame(c, base, &function, &link) ||
      function != c->called->function)
    return false;
  if ((link & LINK_TYPE) == LINK_VARARG) { /* a copy: the frame that was called lies below */
    base -= (uint64_t)link & ~(uint64_t)LINK_TYPE;
    if (base <= c->caller->slot || base > c->called->slot || !read_frame(c, base, &function, &link) ||
        function != c->called->function)
      return false;
  }
  return returns_to(c, base, link, c->caller->pc + 4);
}

/* -- what expressions lead to -------------------------------------------------------------------------------------------- */

static bool sets_register(uint32_t i, uint32_t reg) {
  uint32_t op = op_of(i), a = a_of(i);
  if (op == OP_NIL) return reg >= a && reg <= d_of(i);
  if ((op >= OP_CALL_MANY && op <= OP_NEXT) || op == OP_RETURN_MANY || (op >= OP_FOR && op <= OP_ITERATED))
    return reg >= a;
  return reg == a && (op == OP_TEST_COPY || op == OP_TEST_COPY_LAST || (op >= OP_MOVE && op < OP_NIL) ||
                      op == OP_UPVALUE || (op >= OP_CLOSURE && op <= OP_GLOBAL) ||
                      (op >= OP_GET && op <= OP_GET_LAST) || op > OP_JUMP);
}

/* The last instruction before `pc` that sets the register. Jumps do not matter: what it says is looked up. */
static bool find_setter(code_t *c, uint32_t pc, uint32_t reg, uint32_t *setter, uint32_t *instruction) {
  while (--pc > 0) { /* the first is the head of the function */
    if (!fetch(c, pc, instruction)) return false;
    if (!sets_register(*instruction, reg)) continue;
    *setter = pc;
    return true;
  }
  return false;
}

static bool look_up(code_t *c, uint64_t table, uint64_t key, value_t *value) {
  return c->lookups-- > 0 ? table_get(c->walk, table, key, NODES, value) : (c->lookups = 0, false);
}

static bool look_up_text(code_t *c, uint64_t table, const char *key, value_t *value) {
  return c->lookups-- > 0 ? table_get_text(c->walk, table, key, NODES, value) : (c->lookups = 0, false);
}

/* A field of the table, or of what its metatables' __index lead to. */
static bool find_field(code_t *c, value_t table, uint64_t key, value_t *value) {
  table_t head;
  for (int i = 0; i < CLASSES; i++) {
    if (table.kind != VALUE_TABLE || !table_open(c->walk, table.at, &head)) return false;
    if (look_up(c, table.at, key, value)) return true;
    if (head.metatable == 0 || !look_up_text(c, head.metatable, "__index", &table)) return false;
  }
  return false;
}

static bool find_event(code_t *c, const value_t *object, const char *event, value_t *value) {
  table_t head;
  return object->kind == VALUE_TABLE && table_open(c->walk, object->at, &head) && head.metatable != 0 &&
         look_up_text(c, head.metatable, event, value);
}

static bool find_upvalue(const code_t *c, uint32_t index, value_t *value) {
  uint64_t upvalue, at;
  uint8_t type;
  return index < c->upvalue_count &&
         read_ref(c, c->caller->function + c->l->function_upvalues + (uint64_t)index * c->l->pointer,
                  &upvalue) &&
         walk_read(c->walk->memory, &type, upvalue + c->l->state_tag, 1, WALK_GUESS) &&
         type == TYPE_UPVALUE && read_ref(c, upvalue + c->l->upvalue_value, &at) &&
         table_value(c->walk, at, value);
}

static bool find_globals(const code_t *c, value_t *value) {
  value->kind = VALUE_TABLE;
  return read_ref(c, c->caller->function + c->l->function_globals, &value->at);
}

static bool find_in_stack(const code_t *c, uint32_t reg, value_t *value) {
  return c->stands && reg < c->first_free &&
         table_value(c->walk, c->caller->slot + (uint64_t)reg * SLOT, value);
}

static bool find_register(code_t *c, uint32_t pc, uint32_t reg, uint32_t depth, value_t *value);

/* The constant by which the instruction looks something up. Instructions can name so many of them only: the others come by a register. */
static bool key_of(code_t *c, uint32_t pc, uint32_t i, uint32_t *index) {
  uint32_t setter;
  *index = op_of(i) == OP_GLOBAL ? d_of(i) : c_of(i);
  if (op_of(i) == OP_GLOBAL || op_of(i) == OP_FIELD) return true;
  if (op_of(i) != OP_GET || !find_setter(c, pc, c_of(i), &setter, &i) || op_of(i) != OP_STRING) return false;
  *index = d_of(i);
  return true;
}

/* What the instruction puts into its register. */
static bool find_result(code_t *c, uint32_t pc, uint32_t i, uint32_t depth, value_t *value) {
  uint64_t key;
  uint32_t index;
  value_t table;
  if (depth == 0) return false;
  switch (op_of(i)) {
    case OP_MOVE:
      return find_register(c, pc, d_of(i), depth - 1, value);
    case OP_UPVALUE:
      return find_upvalue(c, d_of(i), value);
    case OP_GLOBAL:
      return constant(c, d_of(i), &key) && find_globals(c, &table) && find_field(c, table, key, value);
    case OP_GET:
    case OP_FIELD:
      return key_of(c, pc, i, &index) && constant(c, index, &key) &&
             find_register(c, pc, b_of(i), depth - 1, &table) && find_field(c, table, key, value);
    default:
      return false;
  }
}

static bool find_register(code_t *c, uint32_t pc, uint32_t reg, uint32_t depth, value_t *value) {
  uint32_t setter, i;
  return find_in_stack(c, reg, value) ||
         (find_setter(c, pc, reg, &setter, &i) && find_result(c, setter, i, depth, value));
}

static bool is_called_function(const code_t *c, const value_t *value) {
  walk_frame_t frame;
  return table_function(c->walk, value, &frame) && frame.kind == WALK_LUA &&
         frame.proto == c->called->proto && frame.mark == c->called->mark;
}

/* It may be a table that is called, too. */
static bool leads_to_called(code_t *c, const value_t *value) {
  value_t called;
  return is_called_function(c, value) ||
         (find_event(c, value, "__call", &called) && is_called_function(c, &called));
}

/* -- names -------------------------------------------------------------------------------------------------------------- */

/* Bytes of the prototype's own memory, one after the other. */
typedef struct {
  const code_t *c;
  uint64_t at;
  uint32_t held, used;
  uint8_t bytes[TEXT];
} text_t;

static bool next_byte(text_t *t, uint8_t *byte) {
  if (t->used == t->held) {
    uint64_t left = t->at < t->c->end ? t->c->end - t->at : 0;
    t->held = left < TEXT ? (uint32_t)left : TEXT;
    t->used = 0;
    if (t->held == 0 || !walk_read(t->c->walk->memory, t->bytes, t->at, t->held, WALK_GUESS)) {
      t->held = 0;
      return false;
    }
    t->at += t->held;
  }
  *byte = t->bytes[t->used++];
  return true;
}

/* Seven bits at a time, the lowest first. */
static bool next_number(text_t *t, uint32_t *number) {
  uint8_t byte;
  *number = 0;
  for (uint32_t shift = 0; shift < 35; shift += 7) {
    if (!next_byte(t, &byte)) return false;
    *number |= (uint32_t)(byte & 127) << shift;
    if (byte < 128) return true;
  }
  return false;
}

/* A text up to its zero, of which `first` was read. *len is CALLER_NAME when it is longer than names are. */
static bool next_text(text_t *t, uint8_t first, char *name, size_t *len) {
  *len = 0;
  for (uint8_t byte = first; byte != 0;) {
    if (*len < CALLER_NAME) name[(*len)++] = (char)byte;
    if (!next_byte(t, &byte)) return false;
  }
  if (*len < CALLER_NAME) name[*len] = '\0';
  return true;
}

static size_t word(const char *name, size_t len) {
  if (len == 0 || len >= CALLER_NAME) return 0;
  for (size_t i = 0; i < len; i++)
    if ((unsigned char)name[i] < 0x21 || name[i] == 0x7f) return 0;
  return len;
}

/* The local variable that lives in the register; *is_local: there is one, with a name that counts or without. */
static size_t name_of_local(const code_t *c, uint32_t pc, uint32_t reg, bool *is_local, char *name) {
  text_t t = {.c = c, .at = c->locals};
  uint32_t start = 0, from, length;
  *is_local = false;
  if (c->locals == 0) return 0;
  for (int i = 0; i < LOCALS; i++) {
    uint8_t first;
    size_t len = 0;
    if (!next_byte(&t, &first) || first == 0) return 0;
    if (first >= FIRST_NAMED && !next_text(&t, first, name, &len)) return 0;
    if (!next_number(&t, &from) || (start += from) > pc || !next_number(&t, &length)) return 0;
    if (pc >= (uint64_t)start + length || reg-- > 0) continue;
    *is_local = true;
    return word(name, len);
  }
  return 0;
}

static size_t name_of_upvalue(const code_t *c, uint32_t index, char *name) {
  text_t t = {.c = c, .at = c->upvalues};
  size_t len = 0;
  uint8_t first;
  if (c->upvalues == 0 || index >= c->upvalue_count) return 0;
  for (uint32_t i = 0; i <= index; i++)
    if (!next_byte(&t, &first) || !next_text(&t, first, name, &len)) return 0;
  return word(name, len);
}

static size_t name_of_constant(const code_t *c, uint32_t index, char *name) {
  uint64_t string;
  size_t len;
  if (!constant(c, index, &string) || (string & 3) != 0 ||
      !walk_string(c->walk, string, name, CALLER_NAME, &len) || word(name, len) == 0)
    return 0;
  name[len] = '\0';
  return len;
}

/* A local function: the caller itself makes it, and puts it there. */
static bool makes_called(code_t *c, uint32_t pc, uint32_t reg) {
  uint32_t setter, i;
  uint64_t proto;
  return find_setter(c, pc, reg, &setter, &i) && op_of(i) == OP_CLOSURE && constant(c, d_of(i), &proto) &&
         proto == c->called->proto;
}

static size_t name_of_register(code_t *c, uint32_t pc, uint32_t reg, char *name) {
  for (int moves = 0; moves < DEPTH; moves++) {
    bool is_local;
    size_t len = name_of_local(c, pc, reg, &is_local, name);
    uint32_t i, index;
    value_t value;
    if (is_local) {
      bool is_it = makes_called(c, pc, reg) || (find_in_stack(c, reg, &value) && leads_to_called(c, &value));
      return is_it ? len : 0;
    }
    if (!find_setter(c, pc, reg, &pc, &i)) return 0;
    if (op_of(i) == OP_MOVE) {
      reg = d_of(i);
      continue;
    }
    if (!find_result(c, pc, i, DEPTH, &value) || !leads_to_called(c, &value)) return 0;
    if (op_of(i) == OP_UPVALUE) return name_of_upvalue(c, d_of(i), name);
    return key_of(c, pc, i, &index) ? name_of_constant(c, index, name) : 0;
  }
  return 0;
}

static bool has_event(code_t *c, value_t object, const char *event) {
  value_t value;
  for (int i = 0; i < CLASSES && find_event(c, &object, event, &value); i++) {
    if (is_called_function(c, &value)) return true;
    object = value; /* __index that is a table, with an __index */
  }
  return false;
}

static size_t name_of_event(code_t *c, uint32_t i, char *name) {
  for (size_t k = 0; k < sizeof events / sizeof events[0]; k++) {
    if (op_of(i) < events[k].first || op_of(i) > events[k].last) continue;
    const uint32_t operands[] = {a_of(i), b_of(i), c_of(i), d_of(i)};
    value_t object;
    bool has = (events[k].operands & IN_GLOBALS) != 0 && find_globals(c, &object) &&
               has_event(c, object, events[k].name);
    for (uint32_t o = 0; o < 4 && !has; o++)
      has = (events[k].operands >> o & 1) != 0 && find_in_stack(c, operands[o], &object) &&
            has_event(c, object, events[k].name);
    return has ? (size_t)snprintf(name, CALLER_NAME, "%s", events[k].name) : 0;
  }
  return 0;
}

static size_t name_of_call(code_t *c, uint32_t pc, char *name) {
  uint32_t i;
  value_t value;
  if (!fetch(c, pc, &i)) return 0;
  uint32_t op = op_of(i), a = a_of(i);
  c->first_free = op >= OP_CALL_MANY && op <= OP_ITERATE ? a : UINT8_MAX + 1;
  if (op == OP_CALL || op == OP_CALL_MANY) return name_of_register(c, pc, a, name);
  if (op != OP_ITERATE) return name_of_event(c, i, name);
  /* the iterator stands before what it is called with */
  if (a < 3 || !find_in_stack(c, a - 3, &value) || !leads_to_called(c, &value)) return 0;
  return (size_t)snprintf(name, CALLER_NAME, "for iterator");
}

/* -- functions ---------------------------------------------------------------------------------------------------------- */

static bool is_known(const layout_t *layout) {
  const layout_luajit_t *l = &layout->luajit;
  const uint16_t wanted[] = {l->proto_constants,   l->proto_upvalue_count, l->proto_upvalues, l->proto_locals,
                             l->function_upvalues, l->function_globals,    l->upvalue_value};
  for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++)
    if (wanted[i] == LAYOUT_ABSENT) return false;
  return table_is_known(layout);
}

static bool is_there(walk_t *walk, const walk_frame_t *frame) {
  walk_proto_t proto;
  walk_frame_t function;
  value_t value = {VALUE_FUNCTION, frame->function};
  return walk_proto(walk, frame->proto, WALK_GUESS, &proto) && walk_mark(walk, &proto) == frame->mark &&
         table_function(walk, &value, &function) && function.kind == WALK_LUA &&
         function.proto == frame->proto;
}

static bool open_code(code_t *c) {
  const layout_luajit_t *l = c->l;
  walk_proto_t proto;
  uint8_t bytes[WALK_BUFFER];
  if (!walk_proto(c->walk, c->caller->proto, WALK_GUESS, &proto) || l->proto_size > sizeof bytes ||
      !walk_read(c->walk->memory, bytes, c->caller->proto, l->proto_size, WALK_GUESS))
    return false;
  c->code = proto.code;
  c->count = (uint32_t)((proto.code_end - proto.code) / 4);
  c->end = c->caller->proto + bytes_u32(bytes, l->proto_bytes);
  c->constants = bytes_ref(bytes, l->proto_constants, l->pointer);
  c->constant_count = bytes_u32(bytes, l->proto_const_count);
  c->upvalues = bytes_ref(bytes, l->proto_upvalues, l->pointer);
  c->upvalue_count = bytes[l->proto_upvalue_count];
  c->locals = bytes_ref(bytes, l->proto_locals, l->pointer);
  return true;
}

/* All of it, once. */
static size_t find_name(walk_t *walk, const walk_frame_t *called, const walk_frame_t *caller, char *name) {
  code_t c = {
      .walk = walk, .l = &walk->layout->luajit, .called = called, .caller = caller, .lookups = LOOKUPS};
  if (!is_there(walk, caller) || !open_code(&c) || caller->pc <= c.code || (caller->pc - c.code) % 4 != 0)
    return 0;
  uint64_t pc = (caller->pc - c.code) / 4;
  if (pc >= c.count || pc >= INSTRUCTIONS) return 0;
  c.stands = frames_stand(&c);
  return name_of_call(&c, (uint32_t)pc, name);
}

size_t caller_name_luajit(walk_t *walk, const walk_frame_t *called, const walk_frame_t *caller,
                          char name[CALLER_NAME]) {
  char again[CALLER_NAME];
  if (!is_known(walk->layout)) return 0;
  size_t len = find_name(walk, called, caller, name);
  if (len == 0) return 0;
  if (walk->memory->forget != NULL) walk->memory->forget(walk->memory);
  return find_name(walk, called, caller, again) == len && memcmp(name, again, len) == 0 &&
                 is_there(walk, caller)
             ? len
             : 0;
}
