/* SPDX-License-Identifier: MIT */
/* The walker on memory that lies: recorded images with failing reads, flipped bits, cycles and stacks that move while they are
 * read. A walk may come back empty-handed or wrong; it must come back, soon, within its bounds and without a fault. */
#include "../walk/bounds.h"
#include "unit.h"

enum {
  DEEP = 65536, /* bytes of an image that is too large to try everything with */
  ROUNDS = 40,  /* random ones for each image */
  CHANGES = 8,  /* of memory in each round, at most */
  WORD = 8
};

static image_t *images[IMAGE_MAX_COUNT];
static size_t image_count;

static int read_images(void **state) {
  (void)state;
  image_count = image_read_all(images);
  for (size_t i = 0; i < image_count; i++)
    if (images[i] == NULL) return -1;
  bounds_set_alarm();
  return image_count > 0 ? 0 : -1;
}

static int free_images(void **state) {
  (void)state;
  alarm(0);
  while (image_count > 0) image_free(images[--image_count]);
  return 0;
}

/* -- random numbers, the same in every run ------------------------------------------------------------------------ */

static uint64_t seed;

static uint64_t next_random(void) {
  seed ^= seed << 13;
  seed ^= seed >> 7;
  seed ^= seed << 17;
  return seed;
}

static uint32_t below(uint32_t limit) {
  return (uint32_t)(next_random() % limit);
}

/* Knowing nothing, and then knowing the VM and what was found before. */
static void walk_image(image_memory_t *memory, const image_t *image) {
  image_begin(image, &walk, &memory->memory);
  walk_through(&memory->reads);
  walk.likely_global = image->global;
  walk.likely_main = image->main;
  walk.alone = true;
  walk_through(&memory->reads);
}

/* -- reads that fail ------------------------------------------------------------------------------------------------- */

static void any_read_may_fail(void **state) {
  (void)state;
  for (size_t i = 0; i < image_count; i++) {
    const image_t *image = images[i];
    image_memory_t memory;
    image_memory_init(&memory, image);
    at_work = images[i]->name;
    walk_image(&memory, image);
    uint64_t reads = memory.reads, step = image->byte_count > DEEP ? 41 : 1;
    for (uint64_t n = 1; n <= reads; n += step) {
      image_memory_init(&memory, image);
      memory.fail_at = n;
      snprintf(doing, sizeof doing, "read %d fails", (int)n);
      walk_image(&memory, image);
    }
  }
}

/* From the n-th read on nothing can be read: the memory is gone. */
typedef struct {
  image_memory_t image; /* first */
  uint64_t good;        /* reads */
} vanishing_t;

static bool read_vanishing(walk_memory_t *memory, void *to, uint64_t from, uint32_t len, walk_trust_t trust) {
  vanishing_t *v = (vanishing_t *)memory;
  if (v->image.reads >= v->good) {
    v->image.reads++;
    return false;
  }
  return image_memory_read(memory, to, from, len, trust);
}

static void memory_may_vanish_at_any_time(void **state) {
  (void)state;
  for (size_t i = 0; i < image_count; i++) {
    at_work = images[i]->name;
    for (uint64_t good = 0; good < 300; good++) {
      vanishing_t v = {.good = good};
      image_memory_init(&v.image, images[i]);
      v.image.memory.read = read_vanishing;
      snprintf(doing, sizeof doing, "gone after %d reads", (int)good);
      walk_image(&v.image, images[i]);
    }
  }
}

static void any_range_may_be_unmapped(void **state) {
  (void)state;
  for (size_t i = 0; i < image_count; i++) {
    at_work = images[i]->name;
    for (uint32_t gone = 0; gone < images[i]->range_count; gone++) {
      image_t less = *images[i];
      less.ranges = malloc(less.range_count * sizeof *less.ranges);
      memcpy(less.ranges, images[i]->ranges, less.range_count * sizeof *less.ranges);
      memmove(less.ranges + gone, less.ranges + gone + 1,
              (less.range_count - gone - 1) * sizeof *less.ranges);
      less.range_count--;
      image_memory_t memory;
      image_memory_init(&memory, &less);
      snprintf(doing, sizeof doing, "range %u is gone", gone);
      walk_image(&memory, &less);
      free(less.ranges);
    }
  }
}

/* -- words that lie --------------------------------------------------------------------------------------------------- */

static void put(uint8_t *bytes, uint32_t at, uint64_t word) {
  memcpy(bytes + at, &word, sizeof word);
}

static uint64_t get(const uint8_t *bytes, uint32_t at) {
  uint64_t word;
  memcpy(&word, bytes + at, sizeof word);
  return word;
}

/* The address of the recorded word at `at`. */
static uint64_t address_of(const image_t *image, uint32_t at) {
  uint32_t i = 0;
  while (at >= image->ranges[i].at + (image->ranges[i].high - image->ranges[i].low)) i++;
  return image->ranges[i].low + (at - image->ranges[i].at);
}

static void change(const image_t *image, uint8_t *bytes) {
  uint32_t words = image->byte_count / WORD, at = below(words) * WORD, other = below(words) * WORD;
  uint64_t word = get(bytes, at);
  switch (below(10)) {
    case 0: /* a bit */
      bytes[at + below(WORD)] ^= (uint8_t)(1u << below(8));
      break;
    case 1:
      put(bytes, at, 0);
      break;
    case 2:
      put(bytes, at, UINT64_MAX);
      break;
    case 3: /* to itself */
      put(bytes, at, address_of(image, at));
      break;
    case 4: /* to another place that can be read */
      put(bytes, at, address_of(image, other));
      break;
    case 5: /* two words change places */
      put(bytes, at, get(bytes, other));
      put(bytes, other, word);
      break;
    case 6: /* torn: half of it is already another one */
      put(bytes, at, (word & 0xffffffff) | (get(bytes, other) & ~(uint64_t)0xffffffff));
      break;
    case 7: /* a little off */
      put(bytes, at, word + below(64) - 32);
      break;
    case 8: /* large counts and lines */
      put(bytes, at, below(2) == 0 ? 0x7fffffff7fffffff : 0x8000000080000000);
      break;
    default:
      put(bytes, at, next_random());
  }
}

static void words_may_lie(void **state) {
  (void)state;
  seed = 20240607;
  for (size_t i = 0; i < image_count; i++) {
    const image_t *image = images[i];
    uint8_t *bytes = malloc(image->byte_count);
    at_work = images[i]->name;
    for (int round = 0; round < ROUNDS; round++) {
      image_memory_t memory;
      image_memory_init(&memory, image);
      memcpy(bytes, image->bytes, image->byte_count);
      memory.bytes = bytes;
      snprintf(doing, sizeof doing, "round %d", round);
      for (uint32_t n = 1 + below(CHANGES); n > 0; n--) change(image, bytes);
      walk_image(&memory, image);
    }
    free(bytes);
  }
}

static bool is_first_of_layout(size_t i) {
  for (size_t before = 0; before < i; before++)
    if (strcmp(images[before]->layout, images[i]->layout) == 0 &&
        strcmp(images[before]->program, images[i]->program) == 0)
      return false;
  return true;
}

/* Every word of an image of each layout in turn, with each of the worst values. */
static void each_word_may_be_the_worst(void **state) {
  (void)state;
  for (size_t i = 0; i < image_count; i++) {
    const image_t *image = images[i];
    if (strcmp(image->program, "coroutines.lua") != 0 || !is_first_of_layout(i)) continue;
    uint8_t *bytes = malloc(image->byte_count);
    memcpy(bytes, image->bytes, image->byte_count);
    at_work = images[i]->name;
    for (uint32_t at = 0; at < image->byte_count; at += WORD) {
      uint64_t word = get(bytes, at), self = address_of(image, at);
      const uint64_t worst[] = {0, self, self & ~(uint64_t)63, UINT64_MAX, 0x7fffffff7fffffff};
      for (size_t w = 0; w < sizeof worst / sizeof *worst; w++) {
        image_memory_t memory;
        image_memory_init(&memory, image);
        memory.bytes = bytes;
        put(bytes, at, worst[w]);
        snprintf(doing, sizeof doing, "word at %llx is %llx", (unsigned long long)self,
                 (unsigned long long)worst[w]);
        walk_image(&memory, image);
      }
      put(bytes, at, word);
    }
    free(bytes);
  }
}

/* -- cycles ------------------------------------------------------------------------------------------------------------- */

/* Each call record in turn leads to each: to itself, up and down. */
static void call_records_may_lead_in_circles(void **state) {
  (void)state;
  for (size_t i = 0; i < image_count; i++) {
    const image_t *image = images[i];
    const layout_t *layout = image_layout(image->layout);
    if (layout->family != LAYOUT_PUC || layout->puc.ci_previous == LAYOUT_ABSENT || image->byte_count > DEEP)
      continue;
    uint64_t records[64];
    uint32_t count = 0;
    uint8_t *bytes = malloc(image->byte_count);
    memcpy(bytes, image->bytes, image->byte_count);
    image_memory_t memory;
    image_memory_init(&memory, image);
    memory.bytes = bytes;
    image_begin(image, &walk, &memory.memory);
    at_work = images[i]->name;
    strcpy(doing, "untouched");
    walk_through(&memory.reads);
    for (uint32_t s = 0; s < walk.state_count; s++)
      for (uint64_t at = walk.states[s].call; at != walk.states[s].first && count < 64; count++) {
        records[count] = at;
        assert_true(walk_read(&memory.memory, &at, at + layout->puc.ci_previous, sizeof at, WALK_GUESS));
      }
    for (uint32_t from = 0; from < count; from++) {
      uint64_t link = records[from] + layout->puc.ci_previous;
      const image_range_t *range = image_find(image, link);
      uint32_t at = (uint32_t)(range->at + (link - range->low));
      uint64_t before = get(bytes, at);
      for (uint32_t to = 0; to < count; to++) {
        put(bytes, at, records[to]);
        snprintf(doing, sizeof doing, "record %u leads to %u", from, to);
        walk_image(&memory, image);
        /* nor may the pc matter: 0 is what a record has that was never run */
        uint64_t pc = records[to] + layout->puc.ci_savedpc;
        const image_range_t *pc_range = image_find(image, pc);
        uint32_t pc_at = (uint32_t)(pc_range->at + (pc - pc_range->low));
        uint64_t pc_before = get(bytes, pc_at);
        put(bytes, pc_at, 0);
        walk_image(&memory, image);
        put(bytes, pc_at, pc_before);
      }
      put(bytes, at, before);
    }
    free(bytes);
  }
}

/* -- stacks that move ----------------------------------------------------------------------------------------------------- */

/* After `good` reads the stack of each state holds what was there before it moved: nothing, or other slots. */
typedef struct {
  image_memory_t image; /* first */
  uint64_t good;
  uint8_t *later;
} moving_t;

static bool read_moving(walk_memory_t *memory, void *to, uint64_t from, uint32_t len, walk_trust_t trust) {
  moving_t *m = (moving_t *)memory;
  if (m->image.reads == m->good) m->image.bytes = m->later;
  return image_memory_read(memory, to, from, len, trust);
}

static void spoil_stacks(const image_t *image, uint8_t *bytes, int how) {
  for (uint32_t s = 0; s < walk.state_count; s++)
    for (uint32_t r = 0; r < image->range_count; r++) {
      const image_range_t *range = &image->ranges[r];
      if (range->low < walk.states[s].stack || range->low >= walk.states[s].stack_end) continue;
      uint32_t len = (uint32_t)(range->high - range->low);
      if (how == 0) /* freed and filled */
        memset(bytes + range->at, 0x5a, len);
      else if (how == 1) /* two slots further */
        memmove(bytes + range->at + 16, bytes + range->at, len - 16);
      else /* upside down */
        for (uint32_t at = 0; at + WORD <= len / 2; at += WORD) {
          uint64_t a = get(bytes, range->at + at), b = get(bytes, range->at + len - WORD - at);
          put(bytes, range->at + at, b);
          put(bytes, range->at + len - WORD - at, a);
        }
    }
}

static void the_stack_may_move_at_any_time(void **state) {
  (void)state;
  for (size_t i = 0; i < image_count; i++) {
    const image_t *image = images[i];
    uint64_t step = image->byte_count > DEEP ? 97 : 1;
    uint8_t *later = malloc(image->byte_count);
    at_work = images[i]->name;
    for (int how = 0; how < 3; how++) {
      image_memory_t still;
      image_memory_init(&still, image);
      strcpy(doing, "untouched");
      walk_image(&still, image);
      memcpy(later, image->bytes, image->byte_count);
      spoil_stacks(image, later, how);
      for (uint64_t good = 0; good <= still.reads; good += step) {
        moving_t m = {.good = good, .later = later};
        image_memory_init(&m.image, image);
        m.image.memory.read = read_moving;
        snprintf(doing, sizeof doing, "moved after %d reads, in way %d", (int)good, how);
        walk_image(&m.image, image);
      }
    }
    free(later);
  }
}

/* Other words at each read: somebody writes all the time. */
static bool read_flickering(walk_memory_t *memory, void *to, uint64_t from, uint32_t len,
                            walk_trust_t trust) {
  if (!image_memory_read(memory, to, from, len, trust)) return false;
  if (below(16) == 0) ((uint8_t *)to)[below(len)] ^= (uint8_t)(1u << below(8));
  return true;
}

static void memory_may_change_all_the_time(void **state) {
  (void)state;
  seed = 4711;
  for (size_t i = 0; i < image_count; i++) {
    at_work = images[i]->name;
    for (int round = 0; round < ROUNDS; round++) {
      image_memory_t memory;
      image_memory_init(&memory, images[i]);
      memory.memory.read = read_flickering;
      snprintf(doing, sizeof doing, "round %d", round);
      walk_image(&memory, images[i]);
    }
  }
}

/* -- registers ----------------------------------------------------------------------------------------------------- */

static void registers_may_be_anything(void **state) {
  (void)state;
  seed = 99;
  for (size_t i = 0; i < image_count; i++) {
    const image_t *image = images[i];
    at_work = images[i]->name;
    for (int round = 0; round < ROUNDS; round++) {
      image_memory_t memory;
      image_memory_init(&memory, image);
      image_begin(image, &walk, &memory.memory);
      for (uint32_t r = 0; r < walk.registers.count; r++)
        if (below(3) == 0)
          walk.registers.values[r] = below(2) == 0 ? next_random() : walk.registers.values[below(X64_COUNT)];
      if (below(4) == 0) walk.registers.sp = next_random();
      if (below(4) == 0) walk.registers.sp += 8 * below(512);
      if (below(4) == 0) walk.stack_high = below(2) == 0 ? next_random() : walk.registers.sp;
      if (below(4) == 0) walk.registers.pc = walk.vm_low;
      if (below(8) == 0) walk.registers.count = below(X64_COUNT);
      if (below(4) == 0) walk.likely_global = next_random() >> 17;
      if (below(4) == 0) walk.likely_main = image->global;
      snprintf(doing, sizeof doing, "round %d", round);
      walk_through(&memory.reads);
    }
  }
}

#define HOSTILE(test) cmocka_unit_test_setup_teardown(test, read_images, free_images)

static const struct CMUnitTest tests[] = {
    HOSTILE(any_read_may_fail),
    HOSTILE(memory_may_vanish_at_any_time),
    HOSTILE(any_range_may_be_unmapped),
    HOSTILE(words_may_lie),
    HOSTILE(each_word_may_be_the_worst),
    HOSTILE(call_records_may_lead_in_circles),
    HOSTILE(the_stack_may_move_at_any_time),
    HOSTILE(memory_may_change_all_the_time),
    HOSTILE(registers_may_be_anything),
};
UNIT_MAIN(tests)
