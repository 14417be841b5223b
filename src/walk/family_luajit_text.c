/* SPDX-License-Identifier: MIT */
/* LuaJIT: lines of instructions, strings. */
#include "walk/family_luajit.h"

/* Lines are kept as distances from the first, one byte, two or four each, without the function's first instruction. */
int32_t luajit_line(walk_t *walk, const walk_proto_t *proto, uint64_t pc) {
  if (proto->lines == 0 || pc < proto->code || pc >= proto->code_end) return 0;
  uint64_t index = (pc - proto->code) / INSTRUCTION;
  if (index == 0) return proto->line;
  uint32_t size = proto->line_count < 256 ? 1 : proto->line_count < 65536 ? 2 : 4, distance = 0;
  if (!walk_read(walk->memory, &distance, proto->lines + (index - 1) * size, size, WALK_LIVE)) return 0;
  return (int32_t)((uint32_t)proto->line + distance);
}

bool luajit_string(walk_t *walk, uint64_t string, char *to, size_t size, size_t *len) {
  const layout_luajit_t *l = &walk->layout->luajit;
  uint8_t head[32];
  if (l->string_bytes > sizeof head || !walk_read(walk->memory, head, string, l->string_bytes, WALK_LIVE))
    return false;
  if (head[l->state_tag] != 4) return false; /* the type of a string */
  *len = bytes_u32(head, l->string_length);
  size_t wanted = *len < size ? *len : size;
  return wanted == 0 || walk_read(walk->memory, to, string + l->string_bytes, (uint32_t)wanted, WALK_LIVE);
}
