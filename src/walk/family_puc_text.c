/* SPDX-License-Identifier: MIT */
/* PUC Lua: lines of instructions, strings. */
#include "walk/family_puc.h"

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
