/* SPDX-License-Identifier: MIT */
/* The moments in which a VM is halfway: images of quiet ones, changed as the VM changes them for a few instructions. The
 * stack is still there, and has to be found. */
#include "../walk/image.h"
#include "unit.h"
#include "walk/family_luajit.h"

enum { MAX_SAID = 20, MAX_RECORDS = 64 };

static walk_t walk; /* large */
static image_memory_t memory;
static int failures, tried;

__attribute__((format(printf, 2, 3))) static void wrong(const image_t *image, const char *format, ...) {
  va_list arguments;
  if (failures++ >= MAX_SAID) return;
  va_start(arguments, format);
  printf("%s: ", image->name);
  vprintf(format, arguments);
  putchar('\n');
  va_end(arguments);
}

/* Each image with memory of its own, which may be changed; `walk` has walked it once and knows it. */
static void for_each_image(void (*look)(image_t *image)) {
  static image_t *images[IMAGE_MAX_COUNT];
  size_t count = image_read_all(images);
  failures = tried = 0;
  for (size_t i = 0; i < count; i++) {
    image_t *image = images[i];
    assert_non_null(image);
    image_memory_init(&memory, image);
    image_begin_known(image, &walk, &memory.memory);
    if (!image->truncated && walk_find(&walk) == WALK_OK && walk_frames(&walk) == WALK_OK) look(image);
    image_free(image);
  }
  if (failures > 0) fail_msg("%d of %d are wrong, see above", failures, tried);
  assert_true(tried > 0);
}

static uint64_t get(uint64_t address) {
  uint64_t word = 0;
  const uint8_t *at = image_word(&memory, address);
  if (at != NULL) memcpy(&word, at, sizeof word);
  return word;
}

static bool put(uint64_t address, uint64_t word) {
  uint8_t *at = image_word(&memory, address);
  if (at != NULL) memcpy(at, &word, sizeof word);
  return at != NULL;
}

/* Walks again and compares with the image from its frame `from` on. */
static void expect_stack(const image_t *image, uint32_t from, const char *when) {
  char text[IMAGE_FRAME_TEXT];
  walk_reason_t reason = walk_find(&walk);
  tried++;
  if (reason == WALK_OK) reason = walk_frames(&walk);
  if (reason != WALK_OK || walk.state_count != image->state_count ||
      walk.frame_count + from != image->frame_count) {
    wrong(image, "%s: \"%s\", %u frames of %u, %u coroutines of %u", when, walk_reason_name(reason),
          walk.frame_count, image->frame_count - from, walk.state_count, image->state_count);
    return;
  }
  for (uint32_t i = 0; i < walk.frame_count; i++) {
    image_describe(&walk, &walk.frames[i], text);
    if (strcmp(text, image->frames[i + from]) == 0) continue;
    wrong(image, "%s: frame %u is \"%s\", not \"%s\"", when, i, text, image->frames[i + from]);
    return;
  }
}

/* -- resumers ---------------------------------------------------------------------------------------------------- */

/* The last walk found, where a coroutine's C frames are now, those of another, which the main thread itself had resumed. */
static void forget_middle(image_t *image) {
  if (image->state_count < 3) return;
  walk.states[0].state += 4096;
  walk.states[1] = walk.states[walk.state_count - 1];
  walk.state_count = 2;
  expect_stack(image, 0, "another coroutine was here");
}

static void another_coroutine_at_the_same_place_had_other_resumers(void **state) {
  (void)state;
  for_each_image(forget_middle);
}

/* As the programs of the images have it: the main thread resumes by a function of coroutine.wrap, coroutines by coroutine.resume. */
static uint64_t wrapped, resume;

static walk_nature_t nature_of_resumers(void *context, uint64_t code) {
  (void)context;
  if (code == wrapped) return WALK_C_RESUMES_UPVALUE;
  return code == resume ? WALK_C_RESUMES_ARGUMENT : WALK_C_ANY;
}

static uint64_t topmost_code(const walk_state_t *of) {
  bool read = walk_frames_of(&walk, of, false) == WALK_OK;
  return read && walk.frames[0].kind == WALK_C ? walk.frames[0].code : 0;
}

/* What runs is told by who resumes it: nothing on the native stack does, nor does the last walk. */
static void wipe_native_stack(image_t *image) {
  uint32_t count = walk.state_count;
  walk_state_t states[WALK_MAX_STATES];
  if (image_layout(image->layout)->family != LAYOUT_PUC || count < 2) return;
  memcpy(states, walk.states, sizeof states);
  wrapped = topmost_code(&states[count - 1]);
  uint64_t upvalue = walk.frames[0].function + image_layout(image->layout)->puc.closure_code + 8;
  if (image_word(&memory, upvalue + 8) == NULL) return; /* its tag is not in the image */
  resume = count > 2 ? topmost_code(&states[1]) : 0;
  for (uint64_t at = walk.registers.sp; at < walk.stack_high; at += 8) put(at, 0);
  memset(walk.registers.values, 0, sizeof walk.registers.values);
  walk.state_count = walk.last_count = 0;
  walk.nature = nature_of_resumers;
  walk_reason_t reason = walk_find(&walk);
  tried++;
  if (reason == WALK_OK) reason = walk_frames(&walk);
  if (reason != WALK_OK || walk.state_count != count || walk.frame_count != image->frame_count)
    wrong(image, "\"%s\", %u frames of %u, %u coroutines of %u", walk_reason_name(reason), walk.frame_count,
          image->frame_count, walk.state_count, count);
  for (uint32_t i = 0; i < count && i < walk.state_count; i++)
    if (walk.states[i].state != states[i].state) wrong(image, "coroutine %u is another one", i);
}

static void resumers_tell_what_they_resume(void **state) {
  (void)state;
  for_each_image(wipe_native_stack);
}

/* -- PUC: a stack that is moved ------------------------------------------------------------------------------------ */

static bool is_linked(const image_t *image) {
  const layout_t *layout = image_layout(image->layout);
  return layout->family == LAYOUT_PUC && layout->puc.ci_previous != LAYOUT_ABSENT;
}

/* Every call record names its slot as it does while the running stack is moved. */
static bool rename_slots(const image_t *image, uint64_t bottom) {
  const layout_puc_t *l = &image_layout(image->layout)->puc;
  const walk_state_t *s = &walk.states[0];
  if (image_word(&memory, s->first + l->ci_func) == NULL) return false;
  put(s->first + l->ci_func, bottom);
  for (uint64_t at = s->call; at != s->first; at = get(at + l->ci_previous))
    if (!put(at + l->ci_func, get(at + l->ci_func) - s->stack + bottom)) return false;
  return true;
}

static void name_distances(image_t *image) {
  if (is_linked(image) && rename_slots(image, 0)) expect_stack(image, 0, "slots are distances");
}

/* 5.4.5 and later turn all pointers into the stack into distances before they move it. */
static void a_stack_about_to_be_moved_is_read(void **state) {
  (void)state;
  for_each_image(name_distances);
}

/* They do so from the topmost record down. */
static void name_distances_one_by_one(image_t *image) {
  const layout_puc_t *l = &image_layout(image->layout)->puc;
  if (!is_linked(image)) return;
  walk_state_t s = walk.states[0];
  for (uint64_t at = s.call; at != s.first; at = get(at + l->ci_previous)) {
    if (!put(at + l->ci_func, get(at + l->ci_func) - s.stack)) return;
    expect_stack(image, 0, "slots of the upper calls are distances");
  }
}

static void a_stack_half_prepared_to_be_moved_is_read(void **state) {
  (void)state;
  for_each_image(name_distances_one_by_one);
}

static void name_old_slots(image_t *image) {
  if (is_linked(image) && rename_slots(image, walk.states[0].stack + ((uint64_t)1 << 32)))
    expect_stack(image, 0, "slots are of the old stack");
}

/* Before, the records named slots of the old stack until they were corrected. */
static void a_stack_just_moved_is_read(void **state) {
  (void)state;
  for_each_image(name_old_slots);
}

/* -- LuaJIT: frames that are made and left -------------------------------------------------------------------------- */

static bool is_interpreted(const image_t *image) {
  return image_layout(image->layout)->family == LAYOUT_LUAJIT && strcmp(image->vmstate, "interpreter") == 0 &&
         image->registers.pc >= image->vm_low && image->registers.pc < image->vm_high;
}

/* Just back from C code called for an instruction, BASE is in rbp only. */
static void spoil_base(image_t *image) {
  if (!is_interpreted(image)) return;
  walk.registers.values[X64_RBP] = walk.registers.values[X64_RDX];
  walk.registers.values[X64_RDX] = 0x123456789;
  expect_stack(image, 0, "rdx was spoilt by a call");
}

static void the_base_may_be_in_rbp(void **state) {
  (void)state;
  for_each_image(spoil_base);
}

/* A result has overwritten the function that returns it; rbx holds the link already. */
static void overwrite_function(image_t *image) {
  uint64_t base = walk.registers.values[X64_RDX], link;
  bool wide = image_layout(image->layout)->luajit.pointer == 8;
  if (!is_interpreted(image)) return;
  link = wide ? get(base - 8) : get(base - 8) >> 32;
  if ((link & 3) != 0) return; /* not called by Lua code */
  walk.registers.values[X64_RBX] = link;
  if (!put(wide ? base - 16 : base - 8, 0x3ff0000000000000)) return; /* the number 1 */
  expect_stack(image, 1, "the frame on top returns");
}

static void a_frame_that_returns_is_left_out(void **state) {
  (void)state;
  for_each_image(overwrite_function);
}

/* The base of the topmost frame that was called through the C interface, and how many are above the function that called it so; 0: there is
 * none, or it is the first of a coroutine. */
static uint64_t called_by_c(const image_t *image, uint64_t *caller, uint32_t *above) {
  bool wide = image_layout(image->layout)->luajit.pointer == 8;
  uint64_t base = walk.registers.values[X64_RDX];
  *above = 0;
  for (int steps = 0; base != 0 && steps < 100; steps++) {
    int64_t link = wide ? (int64_t)get(base - 8) : (int32_t)(get(base - 8) >> 32);
    uint64_t below = luajit_caller_of(&walk, base - 8, link, WALK_GUESS);
    if ((link & LINK_TYPE_P) != LINK_VARG) ++*above;
    *caller = below + 8;
    if ((link & LINK_TYPE) == LINK_C) return below > bottom_of(&walk, &walk.states[0]) ? base : 0;
    base = below != 0 ? *caller : 0;
  }
  return 0;
}

/* On the way back to a C function its base is in rbx, and rdx goes along the results, however many there are. What stands before a base
 * is the link of its frame: with 32-bit references any bytes of an address, which might lead to any frame further down. */
static void return_to_c(image_t *image) {
  uint64_t base, caller;
  uint32_t above;
  if (!is_interpreted(image) || (base = called_by_c(image, &caller, &above)) == 0) return;
  if (walk.frames[above].kind == WALK_LUA)
    return; /* a hook or a finalizer has returned: its line is told otherwise */
  uint64_t first = base - (image_layout(image->layout)->luajit.pointer == 8 ? 16 : 8);
  walk.registers.values[X64_RBX] = caller;
  for (uint64_t results = 0; results < 256; results++) {
    put(first + results * 8, 0x3ff0000000000000);
    walk.registers.values[X64_RDX] = base + results * 8;
    expect_stack(image, above, "a frame returns to C");
  }
}

static void a_frame_that_returns_to_c_is_left_out(void **state) {
  (void)state;
  for_each_image(return_to_c);
}

/* -- the pc -------------------------------------------------------------------------------------------------------- */

static void expect_pc(const image_t *image, uint64_t next, const char *when) {
  tried++;
  if (walk_find(&walk) != WALK_OK || walk_frames(&walk) != WALK_OK || walk.frames[0].pc != next - INSTRUCTION)
    wrong(image, "%s: the pc is not that", when);
}

/* Given a build of Lua that keeps its pc in a register which those it calls may use, and an old pc in one that stays. When a function runs
 * on, then it is the one that moves that counts, and when that one is used for something else, what was saved. */
static void keep_pc_in_a_passing_register(image_t *image) {
  const layout_t *layout = image_layout(image->layout);
  walk_proto_t proto;
  if (layout->family != LAYOUT_PUC || layout->language < 54 || walk.frames[0].kind != WALK_LUA) return;
  if (!walk_proto(&walk, walk.frames[0].proto, WALK_LIVE, &proto)) return;
  uint64_t saved = get(walk.states[0].call + layout->puc.ci_savedpc), old = proto.code + INSTRUCTION;
  if (old == saved) old += INSTRUCTION;
  for (uint32_t i = 0; i < walk.registers.count; i++)
    if (walk.registers.values[i] >= proto.code && walk.registers.values[i] <= proto.code_end)
      walk.registers.values[i] = 0;
  memset(&walk.pc_register, 0, sizeof walk.pc_register);
  walk.registers.values[X64_R14] = old;
  for (int round = 0; round < 8; round++)
    for (uint64_t next = proto.code + INSTRUCTION; next <= proto.code_end; next += INSTRUCTION) {
      walk.registers.values[X64_R11] = next;
      if (round > 0)
        expect_pc(image, next, "the VM runs");
      else if (walk_find(&walk) == WALK_OK)
        walk_frames(&walk);
    }
  walk.registers.values[X64_R11] = 0;
  expect_pc(image, saved, "the VM has called");
}

static void the_register_of_the_pc_is_the_one_that_moves(void **state) {
  (void)state;
  for_each_image(keep_pc_in_a_passing_register);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(another_coroutine_at_the_same_place_had_other_resumers),
    cmocka_unit_test(resumers_tell_what_they_resume),
    cmocka_unit_test(a_stack_about_to_be_moved_is_read),
    cmocka_unit_test(a_stack_half_prepared_to_be_moved_is_read),
    cmocka_unit_test(a_stack_just_moved_is_read),
    cmocka_unit_test(the_base_may_be_in_rbp),
    cmocka_unit_test(a_frame_that_returns_is_left_out),
    cmocka_unit_test(a_frame_that_returns_to_c_is_left_out),
    cmocka_unit_test(the_register_of_the_pc_is_the_one_that_moves),
};
UNIT_MAIN(tests)
