/* SPDX-License-Identifier: MIT */
/* The frames of all running coroutines, and the choice between the families; see walk.h. Compiled for BPF, too. */
#include "walk/walk.h"

#include "walk/bytes.h"
#include "walk/family.h"
#include "walk/machine.h"

static bool is_puc(const walk_t *walk) {
  return layout_of(walk)->family == LAYOUT_PUC;
}

WALK_PLACE bool walk_state(walk_t *walk, uint64_t state, walk_trust_t trust, walk_state_t *out) {
  return is_puc(walk) ? puc_state(walk, state, trust, out) : luajit_state(walk, state, trust, out);
}

WALK_PLACE uint32_t walk_state_bytes(walk_t *walk) {
  return is_puc(walk) ? puc_state_bytes(walk) : layout_of(walk)->luajit.state_size;
}

WALK_PLACE uint64_t walk_main_of(walk_t *walk, uint64_t global) {
  return is_puc(walk) ? puc_main_of(walk, global) : luajit_main_of(walk, global);
}

WALK_PLACE bool walk_is_collecting(walk_t *walk, uint64_t global) {
  return is_puc(walk) && puc_is_collecting(walk, global);
}

enum { STRING_HEAD = 24 /* bytes: tells its hash and its length, wherever they are in it */ };

/* The length of the string that `head` is of; 0 where its bytes are elsewhere (long ones of 5.5) or it is not told. */
static inline uint64_t string_length(walk_t *walk, const uint8_t *head) {
  const layout_t *layout = layout_of(walk);
  if (layout->family == LAYOUT_LUAJIT) {
    const layout_luajit_t *l = &layout->luajit;
    return l->string_length <= STRING_HEAD - 4 ? bytes_u32(head, l->string_length) : 0;
  }
  const layout_puc_t *l = &layout->puc;
  enum { LONG = 16 }; /* in the tag, from 5.3 on */
  if (l->string_tag >= STRING_HEAD || l->string_length > STRING_HEAD - 8) return 0;
  if (l->string_short_length == LAYOUT_ABSENT) return bytes_u64(head, l->string_length);
  if (l->string_short_length >= STRING_HEAD) return 0;
  if ((head[l->string_tag] & LONG) == 0) return head[l->string_short_length];
  return l->string_long_bytes == LAYOUT_ABSENT ? bytes_u64(head, l->string_length) : 0;
}

/* What tells a string from another one that lies there later, and from what is left of it when it has been freed.
 *
 * All families keep a string's hash, or its number, behind its head. LuaJIT with short references has it in the same place, but for the
 * releases up to 2020, where its length is there. It never changes, but for that of a long string, once. And the last bytes: an allocator
 * that joins what is free writes its size there, and nothing else of the string may have changed. */
static uint32_t source_hash(walk_t *walk, uint64_t source) {
  enum { HASH = 12, TAIL = 8, MOST = 1 << 20 };
  const layout_t *layout = layout_of(walk);
  bool is_jit = layout->family == LAYOUT_LUAJIT, is_short = is_jit && layout->luajit.string_length == HASH;
  const uint8_t *head = (const uint8_t *)walk->marked.words;
  uint64_t *tail = &walk->marked.tail;
  uint32_t there = WALK_SOURCE;
  *tail = 0;
  if (!walk_read(walk->memory, walk->marked.words, source, WALK_SOURCE, WALK_GUESS)) {
    there = STRING_HEAD; /* nothing may lie behind the string */
    if (!walk_read(walk->memory, walk->marked.words, source, STRING_HEAD, WALK_GUESS)) return 0;
  }
  uint32_t begin = is_jit ? layout->luajit.string_bytes : layout->puc.string_bytes;
  uint64_t len = string_length(walk, head);
  if (len > 0 && len < MOST) {
    uint64_t at = begin + len - TAIL;
    if (at <= there - TAIL)
      __builtin_memcpy(tail, head + walk_bounded((uint32_t)at, WALK_SOURCE - TAIL), TAIL);
    else
      walk_read(walk->memory, tail, source + at, TAIL, WALK_GUESS);
    if (len < TAIL) *tail >>= 8 * (TAIL - len); /* what is before them is not of the name, and changes */
  }
  return bytes_u32(head, is_short ? HASH - 4 : HASH) ^ (uint32_t)(*tail * 0x9e3779b97f4a7c15u >> 32);
}

static inline uint32_t mix_mark(const walk_proto_t *proto, uint32_t hash) {
  uint64_t mixed =
      proto->source ^ proto->lines << 21 ^ (uint64_t)(uint32_t)proto->line << 42 ^ (uint64_t)hash << 32;
  return (uint32_t)(mixed * 0x9e3779b97f4a7c15u >> 32);
}

WALK_PLACE uint32_t walk_mark(walk_t *walk, const walk_proto_t *proto) {
  return mix_mark(proto, source_hash(walk, proto->source));
}

WALK_PLACE uint32_t walk_mark_frame(walk_t *walk, const walk_proto_t *proto) {
  uint32_t slot = walk_bounded(walk_slot(proto->source, WALK_SOURCES_BITS), WALK_SOURCES - 1);
  if (walk->marked.sources[slot].source != proto->source) {
    walk->marked.sources[slot].hash = source_hash(walk, proto->source);
    walk->marked.sources[slot].source = proto->source;
  }
  return mix_mark(proto, (uint32_t)walk->marked.sources[slot].hash);
}

WALK_PLACE bool walk_add_collector(walk_t *walk) {
  uint32_t count = walk->frame_count;
  if (count >= WALK_MAX_FRAMES) return false;
  walk->frames[count] = (walk_frame_t){.kind = WALK_COLLECTOR};
  walk->frame_count = count + 1;
  walk->collector_marked = true;
  return true;
}

/* Where the finalizer begins is not always told: then the collector stands at the root. */
static void mark_collector(walk_t *walk) {
  if (!marks_collector(walk) || walk->collector_marked || walk->frame_count == 0 || walk->truncated) return;
  const walk_state_t *state = &walk->states[0];
  if (is_puc(walk) && layout_of(walk)->puc.status_finalizer != LAYOUT_ABSENT)
    return; /* it would have been: a hook runs */
  if (is_puc(walk) ? puc_finalizes(walk, state) : luajit_finalizes(walk, state)) walk_add_collector(walk);
}

static void begin_frames(walk_t *walk) {
  if (marks_functions(walk)) __builtin_memset(walk->marked.sources, 0, sizeof walk->marked.sources);
  walk->frame_count = 0;
  walk->collector_marked = walk->links_unsure = false;
  walk->link_count = 0;
  walk->truncated = false;
  walk->vmstate = WALK_VM_NONE;
  walk->trace = 0;
}

WALK_PLACE walk_reason_t walk_frames_of(walk_t *walk, const walk_state_t *state, bool running) {
  begin_frames(walk);
  return is_puc(walk) ? puc_frames(walk, state, running) : luajit_frames(walk, state, running);
}

typedef struct {
  walk_t *walk;
  walk_reason_t reason;
} states_t;

static long step_state(uint32_t i, void *context) {
  states_t *states = context;
  walk_t *walk = states->walk;
  if (i >= WALK_MAX_STATES || walk->truncated) return 1;
  const walk_state_t *state = &walk->states[i];
  states->reason = is_puc(walk) ? puc_frames(walk, state, i == 0) : luajit_frames(walk, state, i == 0);
  return states->reason != WALK_OK;
}

WALK_PLACE walk_reason_t walk_frames(walk_t *walk) {
  states_t states = {walk, WALK_OK};
  begin_frames(walk);
  walk_loop(walk->state_count, step_state, &states);
  if (states.reason != WALK_OK) return states.reason;
  mark_collector(walk);
  return walk->frame_count > 0 ? WALK_OK : WALK_NO_STATE;
}
