/* SPDX-License-Identifier: MIT */
/* The walker on memory that was never a Lua's: made up to keep it busy, or all the same. It must come back, soon, within its
 * bounds and without a fault. */
#include "../walk/bounds.h"

enum { WORD = 8 };

static int set_alarm(void **state) {
  (void)state;
  bounds_set_alarm();
  return 0;
}

/* -- LuaJIT stacks of any kind ---------------------------------------------------------------------------------------- */

#define STACK ((uint64_t)1 << 20)
#define STACK_SLOTS 20000u
#define STATE ((uint64_t)1 << 24)
#define GLOBAL (STATE + 65536)
#define FUNCTION ((uint64_t)1 << 26)

/* A made-up LuaJIT of 64 bits: one state, whose every frame has the same function and link. */
typedef struct {
  walk_memory_t memory; /* first */
  const layout_luajit_t *layout;
  uint64_t function, link;
  uint64_t native; /* its C frames: each leads to one a little higher */
  int32_t results; /* that each of them expects */
  uint64_t reads;
} endless_t;

static uint64_t endless_word(const endless_t *e, uint64_t at) {
  const layout_luajit_t *l = e->layout;
  if (at >= STACK && at < STACK + STACK_SLOTS * WORD) return at % 16 == 0 ? e->function : e->link;
  if (at >= e->native) {
    uint64_t frame = at & ~(uint64_t)63;
    if (at == frame + l->cframe_previous) return frame + 64;
    if (at == frame + l->cframe_results) return (uint32_t)e->results;
    if (at == frame + l->cframe_state) return STATE;
    return 1;
  }
  if (at == STATE + l->state_global) return GLOBAL;
  if (at == STATE + l->state_base) return STACK + (STACK_SLOTS - 64) * WORD;
  if (at == STATE + l->state_stack) return STACK;
  if (at == STATE + l->state_max) return STACK + STACK_SLOTS * WORD;
  if (at == STATE + l->state_cframe) return e->native;
  if (at == GLOBAL + l->global_main || at == GLOBAL + l->global_current) return STATE;
  return 0;
}

static bool read_endless(walk_memory_t *memory, void *to, uint64_t from, uint32_t len, walk_trust_t trust) {
  endless_t *e = (endless_t *)memory;
  (void)trust;
  e->reads++;
  if (from < 65536 || from >= (uint64_t)1 << 47) return false;
  for (uint32_t i = 0; i < len; i++) {
    uint64_t at = from + i, word = endless_word(e, at & ~(uint64_t)7);
    uint8_t byte = (uint8_t)(word >> (at & 7) * 8);
    if (at == STATE + e->layout->state_tag) byte = 6;    /* a thread */
    if (at == FUNCTION + e->layout->state_tag) byte = 8; /* a function */
    ((uint8_t *)to)[i] = byte;
  }
  return true;
}

static walk_reason_t walk_endless(endless_t *e, const layout_t *layout) {
  e->memory = (walk_memory_t){.read = read_endless};
  e->layout = &layout->luajit;
  e->native = (uint64_t)1 << 40;
  memset(&walk, 0, sizeof walk);
  walk.layout = layout;
  walk.memory = &e->memory;
  walk.registers.sp = e->native - 4096;
  walk.stack_high = e->native + 65536;
  walk.likely_global = GLOBAL;
  walk.likely_main = STATE;
  walk.alone = true;
  at_work = layout->name;
  snprintf(doing, sizeof doing, "link %d, function %llx, results %d", (int)e->link,
           (unsigned long long)e->function, (int)e->results);
  walk_through(&e->reads);
  return walk_find(&walk) == WALK_OK ? walk_frames(&walk) : WALK_NO_STATE;
}

static bool is_wide(const layout_t *layout) {
  return layout->family == LAYOUT_LUAJIT && layout->luajit.pointer == 8;
}

/* A stack of nothing but C functions, or of frames of the state itself: as long as the walk likes. The work must not grow
 * with the square of its length: 64 reads for each of 4096 frames. */
static void a_long_stack_is_read_once(void **state) {
  (void)state;
  const layout_t *layout;
  for (size_t i = 0; (layout = layout_known(i)) != NULL; i++)
    for (unsigned link = 16; is_wide(layout) && link < 24; link++)
      for (int kind = 0; kind < 4; kind++) {
        endless_t e = {
            .link = link, .function = kind % 2 == 0 ? STATE : FUNCTION, .results = kind < 2 ? 0 : -8};
        walk_endless(&e, layout);
        if (e.reads > 2 * 64 * 4096) fail_msg("%s, %s: %d reads", at_work, doing, (int)e.reads);
      }
}

/* A frame that leads to itself is no stack of a thousand. */
static void a_link_to_nowhere_is_no_stack(void **state) {
  (void)state;
  const layout_t *layout;
  for (size_t i = 0; (layout = layout_known(i)) != NULL; i++)
    for (unsigned link = 0; is_wide(layout) && link < 8; link++) {
      endless_t e = {.link = link, .function = FUNCTION};
      if (walk_endless(&e, layout) == WALK_OK)
        fail_msg("%s, %s: %u frames", at_work, doing, walk.frame_count);
    }
}

/* -- memory that was never a Lua's ------------------------------------------------------------------------------------------ */

typedef struct {
  walk_memory_t memory; /* first */
  int kind;             /* a byte to find everywhere, or one of below */
  uint64_t reads;
} uniform_t;

enum { SELF = 256, NEXT, PREVIOUS, NOISE, KINDS };

static bool read_uniform(walk_memory_t *memory, void *to, uint64_t from, uint32_t len, walk_trust_t trust) {
  uniform_t *u = (uniform_t *)memory;
  (void)trust;
  u->reads++;
  if (u->kind < SELF) {
    memset(to, u->kind, len);
    return true;
  }
  for (uint32_t i = 0; i < len; i++) {
    uint64_t at = (from + i) & ~(uint64_t)7, word = at;
    if (u->kind == NEXT) word = at + 8;
    if (u->kind == PREVIOUS) word = at - 8;
    if (u->kind == NOISE) word = (at * 0x9e3779b97f4a7c15u) ^ (at >> 7);
    ((uint8_t *)to)[i] = (uint8_t)(word >> ((from + i) & 7) * 8);
  }
  return true;
}

/* `place` is where such memory says that a state runs: let it be on the stack. */
static void walk_uniform(const layout_t *layout, int kind, uint64_t place, uint64_t stack_bytes) {
  uniform_t u = {.memory = {read_uniform, NULL}, .kind = kind};
  memset(&walk, 0, sizeof walk);
  walk.layout = layout;
  walk.memory = &u.memory;
  walk.registers.sp = place & ~(uint64_t)4095;
  walk.stack_high = walk.registers.sp + stack_bytes;
  walk.registers.count = X64_COUNT;
  for (uint32_t i = 0; i < X64_COUNT; i++) walk.registers.values[i] = place + 8 * i;
  walk.registers.pc = walk.vm_low = place;
  walk.vm_high = place + 1;
  at_work = layout->name;
  snprintf(doing, sizeof doing, "kind %d", kind);
  walk_through(&u.reads);
  walk.likely_global = walk.likely_main = place;
  walk.alone = true;
  walk_through(&u.reads);
}

static void memory_may_be_anything(void **state) {
  (void)state;
  const layout_t *layout;
  for (size_t i = 0; (layout = layout_known(i)) != NULL; i++)
    for (int kind = 0; kind < KINDS; kind++) {
      uint64_t place = (uint64_t)kind * 0x0101010101010101;
      walk_uniform(layout, kind, 0x7ffc12340000, 131072);
      walk_uniform(layout, kind, 0, UINT64_MAX);
      if (kind < SELF) walk_uniform(layout, kind, place, 131072);
    }
}

/* -- lines ------------------------------------------------------------------------------------------------------------------ */

/* Functions whose every number is extreme: lines are told or not, and no sum overflows. */
static void lines_may_be_anything(void **state) {
  (void)state;
  static const uint32_t extremes[] = {0, 1, 127, 128, 0x7fffffff, 0x80000000, 0xffffffff};
  const layout_t *layout;
  for (size_t i = 0; (layout = layout_known(i)) != NULL; i++)
    for (int kind = 0; kind < 256; kind++) {
      uniform_t u = {.memory = {read_uniform, NULL}, .kind = kind};
      memset(&walk, 0, sizeof walk);
      walk.layout = layout;
      walk.memory = &u.memory;
      for (size_t a = 0; a < sizeof extremes / sizeof *extremes; a++)
        for (size_t b = 0; b < sizeof extremes / sizeof *extremes; b++) {
          walk_proto_t proto = {.code = 65536,
                                .code_end = 65536 + 4 * (uint64_t)extremes[b],
                                .lines = 1,
                                .anchors = 1,
                                .line = (int32_t)extremes[a],
                                .line_count = extremes[b],
                                .anchor_count = extremes[a]};
          uint64_t before = u.reads;
          walk_line(&walk, &proto, 65536);
          walk_line(&walk, &proto, 65536 + 4 * 100);
          walk_line(&walk, &proto, proto.code_end - 4);
          assert_true(u.reads - before < 4096);
        }
    }
}

#define INVENTED(test) cmocka_unit_test_setup(test, set_alarm)

static const struct CMUnitTest tests[] = {
    INVENTED(a_long_stack_is_read_once),
    INVENTED(a_link_to_nowhere_is_no_stack),
    INVENTED(memory_may_be_anything),
    INVENTED(lines_may_be_anything),
};
UNIT_MAIN(tests)
