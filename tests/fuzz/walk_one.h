/* SPDX-License-Identifier: MIT */
/* One walk of what a fuzzer made: the input is a recorded image (tests/walk/image.h) without its compression, with the layout,
 * the registers and the memory in it. No memory crashes a walk or keeps it for long: past its bounds it aborts. */
#ifndef LUAPULSE_TESTS_FUZZ_WALK_ONE_H
#define LUAPULSE_TESTS_FUZZ_WALK_ONE_H

#include "../walk/image.h"

/* A real walk reads a few hundred times. See tests/walk/bounds.h for the first two. */
enum { FIND_READS = WALK_MAX_LOOKS * 4 + 65 * 256, FRAME_READS = 69 * 4096 * 10, LINE_READS = 4096 };

static image_t *image;
static walk_t walk;

static void look_at_proto(image_memory_t *memory, uint64_t address, uint64_t pc) {
  walk_proto_t proto;
  char *source = malloc(33);
  size_t len;
  uint64_t before = memory->reads;
  if (walk_proto(&walk, address, WALK_GUESS, &proto)) {
    walk_line(&walk, &proto, pc);
    walk_line(&walk, &proto, proto.code);
    walk_line(&walk, &proto, proto.code_end - 4);
    walk_string(&walk, proto.source, source, 33, &len);
  }
  walk_string(&walk, address, source, 33, &len);
  if (memory->reads - before > LINE_READS) abort();
  free(source);
}

static void walk_through(image_memory_t *memory) {
  uint64_t before = memory->reads;
  walk_reason_t reason = walk_find(&walk);
  if (memory->reads - before > FIND_READS || reason >= WALK_REASONS || walk.state_count > WALK_MAX_STATES)
    abort();
  before = memory->reads;
  if (reason == WALK_OK) reason = walk_frames(&walk);
  if (memory->reads - before > FRAME_READS || reason >= WALK_REASONS || walk.vmstate > WALK_VM_EXIT ||
      walk.frame_count > WALK_MAX_FRAMES)
    abort();
  for (uint32_t i = 0; i < walk.frame_count && i < 32; i++)
    if (walk.frames[i].kind == WALK_LUA) look_at_proto(memory, walk.frames[i].proto, walk.frames[i].pc);
  for (uint32_t i = 0; i < walk.state_count; i++) walk_body(&walk, &walk.states[i]);
  for (uint32_t i = 0; i < walk.registers.count; i++)
    look_at_proto(memory, walk.registers.values[i], walk.registers.pc);
}

/* 0, or -1 when it is no image. */
static int walk_one(const uint8_t *data, size_t size) {
  image_memory_t memory;
  if (image == NULL) image = image_new();
  if (image == NULL) return 0;
  memset(image->bytes, 0, image->byte_count);
  image->frame_count = image->range_count = image->byte_count = 0;
  image->registers.count = 0;
  if (!image_parse(image, (const char *)data, size)) return -1;
  const layout_t *layout = image_layout(image->layout);
  if (layout == NULL) return -1;
  image_memory_init(&memory, image);
  image_begin(image, &walk, &memory.memory);
  walk_through(&memory);
  image_begin_known(image, &walk, &memory.memory);
  walk_through(&memory);
  walk_through(&memory); /* with what it remembers */
  return 0;
}

#endif
