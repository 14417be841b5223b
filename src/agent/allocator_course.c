/* SPDX-License-Identifier: MIT */
/* What an allocator does, followed along its code; see allocator_course.h. Nothing is read but what the processor would run next, within
 * segments that the loader has mapped to be read. */
#include "agent/allocator_course.h"

#ifdef __x86_64__

#include <stdlib.h>
#include <string.h>

#include "agent/loader.h"

/* -- reading code ------------------------------------------------------------------------------------------------------- */

typedef struct {
  uint64_t address;
  segment_t segment; /* that has it; empty: none */
} wanted_t;

static int find_segment(struct dl_phdr_info *info, size_t info_size, void *context) {
  wanted_t *wanted = context;
  (void)info_size;
  for (int i = 0; i < info->dlpi_phnum; i++) {
    const ElfW(Phdr) *header = &info->dlpi_phdr[i];
    uint64_t low = info->dlpi_addr + header->p_vaddr, high = low + header->p_memsz;
    if (header->p_type != PT_LOAD || (header->p_flags & PF_R) == 0) continue;
    if (wanted->address < low || wanted->address >= high) continue;
    wanted->segment = (segment_t){low, high};
    return 1;
  }
  return 0;
}

/* Whatever objects lie there, and between them: a sanitizer would ask. */
__attribute__((no_sanitize("address"))) static void copy(uint8_t *to, const uint8_t *from, size_t size) {
  for (size_t i = 0; i < size; i++) to[i] = from[i];
}

static bool read_image(segment_t *segment, uint64_t address, void *to, size_t size) {
  if (address < segment->low || address >= segment->high) {
    wanted_t wanted = {address, {0, 0}};
    loader_each_image(find_segment, &wanted);
    *segment = wanted.segment;
  }
  if (address >= segment->high || segment->high - address < size) return false;
  copy(to, (const void *)(uintptr_t)address, size); /* mapped, as long as the image is loaded */
  return true;
}

static bool next_byte(course_t *c, uint8_t *byte) {
  return read_image(&c->segment, c->pc++, byte, sizeof *byte);
}

static bool next_distance(course_t *c, int32_t *distance) {
  bool whole = read_image(&c->segment, c->pc, distance, sizeof *distance);
  c->pc += sizeof *distance;
  return whole;
}

static bool next_short_distance(course_t *c, int32_t *distance) {
  uint8_t byte;
  if (!next_byte(c, &byte)) return false;
  *distance = byte < 128 ? byte : byte - 256;
  return true;
}

static const uint8_t landing[] = {0xf3, 0x0f, 0x1e, 0xfa}; /* endbr64 */

/* The linker's own code, which only jumps where a word says, is seen through. */
static uint64_t destination(uint64_t target) {
  static const uint8_t bound = 0xf2, jump[] = {0xff, 0x25};
  uint8_t code[11];
  segment_t segment = {0, 0};
  size_t at = 0;
  int32_t distance;
  uint64_t word;
  if (!read_image(&segment, target, code, sizeof code)) return target;
  if (memcmp(code, landing, sizeof landing) == 0) at = sizeof landing;
  if (code[at] == bound) at++;
  if (memcmp(code + at, jump, sizeof jump) != 0) return target;
  at += sizeof jump;
  if (!read_image(&segment, target + at, &distance, sizeof distance)) return target;
  at += sizeof distance;
  return read_image(&segment, target + at + (uint64_t)(int64_t)distance, &word, sizeof word) ? word : target;
}

uint64_t course_address_of_free(void) {
  return destination((uint64_t)(uintptr_t)free);
}

uint64_t course_address_of_realloc(void) {
  return destination((uint64_t)(uintptr_t)realloc);
}

/* -- following it --------------------------------------------------------------------------------------------------------- */

static flag_t flag_of(value_t value) {
  if (value == ZERO) return FLAG_ZERO;
  return value == BLOCK || value == SIZE ? FLAG_NOT_ZERO : FLAG_UNKNOWN;
}

static bool push(course_t *c, value_t value) {
  if (c->depth == COURSE_PUSHED) return false;
  c->pushed[c->depth++] = value;
  return true;
}

static bool pop(course_t *c, value_t *value) {
  if (c->depth == 0) return false;
  *value = c->pushed[--c->depth];
  return true;
}

/* add or sub of a small number, or cmp with it. */
static bool follow_small_number(course_t *c, int operation, int reg) {
  enum { ADD = 0, SUB = 5, CMP = 7 };
  int32_t number;
  if (!next_short_distance(c, &number)) return false;
  if (operation == CMP) {
    c->flag = number == 0 ? flag_of(c->registers[reg]) : FLAG_UNKNOWN;
    return true;
  }
  if (reg != RSP || number < 0 || number % 8 != 0) return false;
  c->flag = FLAG_UNKNOWN;
  value_t dropped;
  for (; number > 0; number -= 8)
    if (operation == SUB ? !push(c, UNKNOWN) : operation != ADD || !pop(c, &dropped)) return false;
  return true;
}

bool course_is_scratch(int reg) {
  return reg == RAX || reg == RCX || reg == RDX || reg == RSI || reg == RDI || (reg >= 8 && reg <= 11);
}

static bool follow_call(course_t *c, uint64_t target) {
  if (c->called != 0) return false;
  c->called = destination(target);
  c->given[0] = c->registers[RDI];
  c->given[1] = c->registers[RSI];
  for (int i = 0; i < REGISTERS; i++)
    if (course_is_scratch(i)) c->registers[i] = UNKNOWN;
  c->registers[RAX] = RESULT;
  c->flag = FLAG_UNKNOWN;
  return true;
}

/* All that the caller relies on is as it was. */
static bool follow_return(course_t *c) {
  for (int i = 0; i < REGISTERS; i++)
    if (!course_is_scratch(i) && c->registers[i] != OLD_VALUES + (value_t)i) return false;
  c->ended = true;
  return c->depth == 0;
}

/* Whether code reads no flags before it sets any: it may be jumped to with any. Pushes and moves between registers leave them as they are. */
static bool needs_no_flags(uint64_t code) {
  enum { MOST_BEFORE = 16, LONGEST = 4 };
  segment_t segment = {0, 0};
  for (int i = 0; i < MOST_BEFORE; i++) {
    uint8_t bytes[LONGEST];
    if (!read_image(&segment, code, bytes, sizeof bytes)) return false;
    if (memcmp(bytes, landing, sizeof landing) == 0) {
      code += sizeof landing;
      continue;
    }
    size_t at = bytes[0] >> 4 == 4; /* a prefix */
    uint8_t operation = bytes[at];
    bool pushes = operation >> 3 == 0x50 >> 3, moves = operation == 0x89 && bytes[at + 1] >> 6 == 3;
    if (!pushes &&
        !moves) /* test, cmp, sub or add of a small number or a large one, or of another register */
      return operation == 0x85 || operation == 0x39 || operation == 0x3b ||
             ((operation == 0x83 || operation == 0x81) &&
              ((bytes[at + 1] >> 3 & 7) == 7 || (bytes[at + 1] >> 3 & 7) == 5));
    code += at + (moves ? 2 : 1);
  }
  return false;
}

static bool has_landing(uint64_t code) {
  uint8_t bytes[sizeof landing];
  segment_t segment = {0, 0};
  return read_image(&segment, code, bytes, sizeof bytes) && memcmp(bytes, landing, sizeof landing) == 0;
}

/* Functions are aligned. Should it be a part of this one after all, it does the same when it is called, with the same registers. What
 * is protected against calls of what is no function must have the mark of one. */
static bool looks_like_function(const course_t *c, uint64_t target) {
  enum { ALIGNMENT = 16 };
  return target % ALIGNMENT == 0 && (target < c->begin || target > c->furthest) && needs_no_flags(target) &&
         (!has_landing(c->begin) || has_landing(target));
}

/* Within the function, or to the one that ends in its stead: which of the two matters only for those that are looked for. */
static bool follow_jump(course_t *c, uint64_t target) {
  uint64_t function = destination(target);
  if (c->may_leave && c->called == 0 && looks_like_function(c, function)) {
    c->left_for = function;
    return follow_return(c);
  }
  if (function != course_address_of_free() && function != course_address_of_realloc()) {
    c->pc = target;
    return true;
  }
  return follow_call(c, target) && follow_return(c);
}

static bool follow_branch(course_t *c, bool if_zero, int32_t distance) {
  if (c->flag == FLAG_UNKNOWN) return false;
  if ((c->flag == FLAG_ZERO) == if_zero) c->pc += (uint64_t)(int64_t)distance;
  return true;
}

/* The two registers of an instruction; false when one of the two is memory. */
static bool next_registers(course_t *c, uint8_t rex, int *reg, int *other) {
  uint8_t byte;
  if (!next_byte(c, &byte) || byte >> 6 != 3) return false;
  *reg = (byte >> 3 & 7) | (rex & 4) << 1;
  *other = (byte & 7) | (rex & 1) << 3;
  return true;
}

static value_t moved(const course_t *c, int from, uint8_t rex) {
  value_t value = c->registers[from];
  return (rex & 8) != 0 || value == ZERO ? value : UNKNOWN; /* half of it */
}

static bool follow_test(course_t *c, int reg, int other, uint8_t rex) {
  value_t one = moved(c, reg, rex), two = moved(c, other, rex);
  c->flag = one == ZERO || two == ZERO ? FLAG_ZERO : reg == other ? flag_of(one) : FLAG_UNKNOWN;
  return true;
}

/* Of the lowest bytes. Without a prefix 4 to 7 are other ones. */
static bool follow_byte_test(course_t *c, int reg, int other, uint8_t rex) {
  if (rex == 0 && (reg >= RSP || other >= RSP)) return false;
  value_t one = c->registers[reg], two = c->registers[other];
  bool zero = one == ZERO || one == ZERO_BYTE || two == ZERO || two == ZERO_BYTE;
  c->flag = zero ? FLAG_ZERO : FLAG_UNKNOWN;
  return true;
}

static bool follow_between_registers(course_t *c, uint8_t code, uint8_t rex) {
  int reg, other;
  if (!next_registers(c, rex, &reg, &other)) return false;
  bool stack = reg == RSP || other == RSP;
  switch (code) {
    case 0x89: /* mov */
      if (reg == RSP && other == RBP && (rex & 8) != 0 && c->frame_depth == 0 && c->depth > 0) {
        c->registers[RBP] = FRAME;
        c->frame_depth = c->depth;
        return true;
      }
      if (stack) return false;
      c->registers[other] = moved(c, reg, rex);
      return true;
    case 0x8b:
      if (stack) return false;
      c->registers[reg] = moved(c, other, rex);
      return true;
    case 0x31: /* xor */
    case 0x33:
      if (reg != other || stack) return false;
      c->registers[reg] = ZERO;
      c->flag = FLAG_ZERO;
      return true;
    case 0x84:
      return follow_byte_test(c, reg, other, rex);
    case 0x85:
      return follow_test(c, reg, other, rex);
    case 0x39: /* cmp */
    case 0x3b:
      c->flag = FLAG_UNKNOWN;
      return true;
    case 0x83:
      return (rex & 8) != 0 && follow_small_number(c, reg & 7, other);
    default:
      return false;
  }
}

static bool follow_two_byte_code(course_t *c, uint8_t rex) {
  uint8_t code;
  int32_t distance;
  int reg, other;
  if (!next_byte(c, &code)) return false;
  if (code == 0x84 || code == 0x85) /* je, jne */
    return next_distance(c, &distance) && follow_branch(c, code == 0x84, distance);
  if (code >= 0x90 && code <= 0x9f) { /* set… */
    if (!next_registers(c, rex, &reg, &other) || (rex == 0 && other >= RSP) || other == RSP) return false;
    bool known = c->flag != FLAG_UNKNOWN && (code == 0x94 || code == 0x95);
    c->registers[other] =
        known && (c->flag == FLAG_ZERO) == (code == 0x95) ? ZERO_BYTE : UNKNOWN; /* e, or ne */
    return true;
  }
  return false;
}

/* A call, or a jump, to where a word of the linker's says: how those are compiled that do without its code. */
static bool follow_by_word(course_t *c) {
  enum { CALL = 0x15, JUMP = 0x25 }; /* with the place of the word told from here */
  uint8_t byte;
  int32_t distance;
  uint64_t target;
  segment_t segment = {0, 0};
  if (!next_byte(c, &byte) || (byte != CALL && byte != JUMP) || !next_distance(c, &distance)) return false;
  if (!read_image(&segment, c->pc + (uint64_t)(int64_t)distance, &target, sizeof target)) return false;
  return byte == CALL ? follow_call(c, target) : follow_jump(c, target);
}

static bool follow_step(course_t *c) {
  uint8_t code, rex = 0;
  int32_t distance;
  uint8_t ahead[sizeof landing];
  if (read_image(&c->segment, c->pc, ahead, sizeof ahead) && memcmp(ahead, landing, sizeof landing) == 0) {
    c->pc += sizeof landing;
    return true;
  }
  if (!next_byte(c, &code)) return false;
  if (code >> 4 == 4) {
    rex = code;
    if (!next_byte(c, &code)) return false;
  }
  int reg = (code & 7) | (rex & 1) << 3;
  switch (code) {
    case 0x50 ... 0x57:
      return reg != RSP && push(c, c->registers[reg]);
    case 0x58 ... 0x5f:
      return reg != RSP && pop(c, &c->registers[reg]);
    case 0x74: /* je, jne */
    case 0x75:
      return next_short_distance(c, &distance) && follow_branch(c, code == 0x74, distance);
    case 0xb8 ... 0xbf: /* mov of a number: not optimised much, that is how NULL is returned */
      if (reg == RSP || (rex & 8) != 0 || !next_distance(c, &distance)) return false;
      c->registers[reg] = distance == 0 ? ZERO : UNKNOWN;
      return true;
    case 0xeb: /* jmp */
      return next_short_distance(c, &distance) && follow_jump(c, c->pc + (uint64_t)(int64_t)distance);
    case 0xe9:
      return next_distance(c, &distance) && follow_jump(c, c->pc + (uint64_t)(int64_t)distance);
    case 0xe8:
      return next_distance(c, &distance) && follow_call(c, c->pc + (uint64_t)(int64_t)distance);
    case 0xc9: /* leave */
      if (c->registers[RBP] != FRAME || c->depth < c->frame_depth) return false;
      c->depth = c->frame_depth;
      return pop(c, &c->registers[RBP]);
    case 0xc3:
      return follow_return(c);
    case 0x90:
      return rex == 0; /* else registers are exchanged */
    case 0x0f:
      return follow_two_byte_code(c, rex);
    case 0xff:
      return rex == 0 && follow_by_word(c);
    default:
      return follow_between_registers(c, code, rex);
  }
}

bool course_follow(course_t *c, lua_Alloc allocate, value_t block, value_t size, bool may_leave) {
  enum { MAX_STEPS = 64 };
  *c = (course_t){.begin = (uint64_t)(uintptr_t)allocate, .may_leave = may_leave};
  c->pc = c->furthest = c->begin;
  for (int i = 0; i < REGISTERS; i++) c->registers[i] = OLD_VALUES + (value_t)i;
  c->registers[RSI] = block;
  c->registers[RCX] = size;
  for (int steps = 0; !c->ended; steps++) {
    if (steps == MAX_STEPS || !follow_step(c)) return false;
    if (c->pc > c->furthest) c->furthest = c->pc;
  }
  return true;
}

#endif
