/* SPDX-License-Identifier: MIT */
/* The walker on memory recorded of real interpreters (tests/walk): every release's stack comes out as its program says. */
#include "../walk/image.h"
#include "unit.h"

enum { MAX_SAID = 20 };

static walk_t walk; /* large */
static int failures;

/* All images are looked at before the test fails; the first failures are shown. */
__attribute__((format(printf, 2, 3))) static void wrong(const char *name, const char *format, ...) {
  va_list arguments;
  if (failures++ >= MAX_SAID) return;
  va_start(arguments, format);
  printf("%s: ", name);
  vprintf(format, arguments);
  putchar('\n');
  va_end(arguments);
}

static void for_each_image(void (*look)(const char *name, const image_t *image)) {
  static image_t *images[IMAGE_MAX_COUNT];
  size_t count = image_read_all(images);
  assert_true(count > 0);
  failures = 0;
  for (size_t i = 0; i < count; i++) {
    assert_non_null(images[i]);
    look(images[i]->name, images[i]);
    image_free(images[i]);
  }
  if (failures > 0) fail_msg("%d things are wrong, see above", failures);
}

static void compare(const char *name, const image_t *image) {
  char text[IMAGE_FRAME_TEXT];
  walk_reason_t reason = walk_find(&walk);
  if (reason == WALK_OK) reason = walk_frames(&walk);
  if (reason != WALK_OK) {
    wrong(name, "the walk ended with \"%s\"", walk_reason_name(reason));
    return;
  }
  if (walk.state_count != image->state_count) {
    wrong(name, "%u coroutines, not %u", walk.state_count, image->state_count);
    return;
  }
  if (strcmp(image_vmstates[walk.vmstate], image->vmstate) != 0)
    wrong(name, "the VM's state is %s, not %s", image_vmstates[walk.vmstate], image->vmstate);
  if (walk.frame_count != image->frame_count || walk.truncated != image->truncated)
    wrong(name, "%u frames, not %u%s", walk.frame_count, image->frame_count,
          walk.truncated != image->truncated ? "; one of both is cut" : "");
  for (uint32_t i = 0; i < walk.frame_count && i < image->frame_count; i++) {
    image_describe(&walk, &walk.frames[i], text);
    if (strcmp(text, image->frames[i]) == 0) continue;
    wrong(name, "frame %u is \"%s\", not \"%s\"", i, text, image->frames[i]);
    break;
  }
}

static void replay_unknown(const char *name, const image_t *image) {
  image_memory_t memory;
  image_memory_init(&memory, image);
  image_begin(image, &walk, &memory.memory);
  compare(name, image);
}

static void any_vm_is_found_and_walked(void **state) {
  (void)state;
  for_each_image(replay_unknown);
}

static void replay_known(const char *name, const image_t *image) {
  image_memory_t memory;
  image_memory_init(&memory, image);
  image_begin_known(image, &walk, &memory.memory);
  compare(name, image);
  uint64_t reads = memory.reads;
  compare(name, image); /* with what it remembers */
  if (memory.reads > 2 * reads) wrong(name, "remembering made it slower");
  if (memory.failed_live > 0) wrong(name, "%d loads would have faulted", (int)memory.failed_live);
}

static void a_known_vm_is_walked_again_and_again(void **state) {
  (void)state;
  for_each_image(replay_known);
}

static void compare_with_program(const char *name, const image_t *image) {
  char path[512];
  snprintf(path, sizeof path, "%s/%s", IMAGE_PROGRAMS, image->program);
  image_t *program = image_of_program(path);
  if (program == NULL) {
    wrong(name, "there is no program %s", path);
    return;
  }
  bool same = program->frame_count == image->frame_count && program->truncated == image->truncated;
  for (uint32_t i = 0; same && i < image->frame_count; i++)
    same = image_is_expected(program->frames[i], image->frames[i], image_layout(image->layout)->family);
  if (!same) wrong(name, "the image expects another stack than its program");
  image_free(program);
}

static void images_expect_what_their_programs_say(void **state) {
  (void)state;
  for_each_image(compare_with_program);
}

static char seen[IMAGE_MAX_COUNT][sizeof((image_t *)NULL)->layout];
static size_t seen_count;

static void note_layout(const char *name, const image_t *image) {
  (void)name;
  if (seen_count < IMAGE_MAX_COUNT) strcpy(seen[seen_count++], image->layout);
}

static void every_layout_has_an_image(void **state) {
  (void)state;
  const layout_t *layout;
  seen_count = 0;
  for_each_image(note_layout);
  failures = 0;
  for (size_t i = 0; (layout = layout_known(i)) != NULL; i++) {
    size_t s = 0;
    while (s < seen_count && strcmp(seen[s], layout->name) != 0) s++;
    if (s == seen_count) wrong(layout->name, "no image in " IMAGE_FOLDER " has this layout");
  }
  assert_int_equal(failures, 0);
}

/* What stands in one native stack must not be taken for the coroutines of another. */
static void walk_elsewhere(const char *name, const image_t *image) {
  image_memory_t memory;
  image_memory_init(&memory, image);
  image_begin_known(image, &walk, &memory.memory);
  walk.registers.sp -= (uint64_t)1 << 30;
  walk.stack_high = walk.registers.sp + 4096;
  memset(walk.registers.values, 0, sizeof walk.registers.values);
  if (walk_find(&walk) != WALK_NO_STATE) wrong(name, "a coroutine was found on a stack without any");
}

static void nothing_runs_on_another_stack(void **state) {
  (void)state;
  for_each_image(walk_elsewhere);
}

static size_t changed; /* images whose names were */

/* Functions are told apart by their source's name: its hash, for many names are as long as others, and its end, for that is what freeing may
 * change alone. */
static void change_name(const char *name, const image_t *image) {
  enum { HASH = 12 };
  image_memory_t memory;
  walk_proto_t proto;
  char source[256];
  size_t len;
  image_memory_init(&memory, image);
  image_begin_known(image, &walk, &memory.memory);
  if (walk_find(&walk) != WALK_OK || walk_frames(&walk) != WALK_OK) return;
  const layout_t *layout = walk.layout;
  bool jit = layout->family == LAYOUT_LUAJIT;
  bool early = jit && layout->luajit.string_length == HASH; /* the length is where others have the hash */
  for (uint32_t i = 0; i < walk.frame_count; i++) {
    if (walk.frames[i].kind != WALK_LUA || !walk_proto(&walk, walk.frames[i].proto, WALK_GUESS, &proto) ||
        !walk_string(&walk, proto.source, source, sizeof source, &len) || len == 0 || len > sizeof source)
      continue;
    uint64_t contents = proto.source + (jit ? layout->luajit.string_bytes : layout->puc.string_bytes);
    uint8_t *hash = image_word(&memory, proto.source + (early ? HASH - 4 : HASH));
    uint8_t *last = image_word(&memory, contents + len - 1);
    uint32_t before = walk_mark(&walk, &proto);
    if (hash == NULL || last == NULL) continue;
    hash[0] ^= 1;
    if (walk_mark(&walk, &proto) == before) wrong(name, "the mark is not made of its name's hash");
    hash[0] ^= 1;
    last[0] ^= 1;
    if (walk_mark(&walk, &proto) == before) wrong(name, "the mark is not made of its name's end");
    last[0] ^= 1;
    if (walk_mark(&walk, &proto) != before) wrong(name, "the mark changes by itself");
    changed++;
    return;
  }
}

static void marks_are_made_of_names(void **state) {
  (void)state;
  changed = 0;
  for_each_image(change_name);
  assert_true(changed > 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(any_vm_is_found_and_walked),
    cmocka_unit_test(a_known_vm_is_walked_again_and_again),
    cmocka_unit_test(images_expect_what_their_programs_say),
    cmocka_unit_test(every_layout_has_an_image),
    cmocka_unit_test(nothing_runs_on_another_stack),
    cmocka_unit_test(marks_are_made_of_names),
};
UNIT_MAIN(tests)
