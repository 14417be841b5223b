/* SPDX-License-Identifier: MIT */
/* The heap in a live profile, against a model of it: blocks in use, the peak, what a collection left, what survived; and regions
 * that were overwritten or whose writer was killed. */
#include <stdlib.h>

#include "profile/live.h"
#include "profile/live_heap.h"
#include "profile/live_region.h"
#include "profile/random.h"
#include "unit.h"

enum { SITES = 8, BLOCKS = 4096, REGION = 4 << 20 };

typedef struct {
  void *memory;
  size_t size;
  live_t live;
  live_ref_t sites[SITES];
  random_t random;
} fixture_t;

static void open_region(fixture_t *f, size_t size, live_heap_mode_t mode, uint64_t seed) {
  live_setup_t setup = {
      .heap = mode, .default_type = HEAP_INUSE_SPACE, .period_type = {"space", "bytes"}, .period = 1};
  *f = (fixture_t){.memory = calloc(1, size), .size = size, .random = {.state = seed}};
  assert_non_null(f->memory);
  assert_true(live_init(&f->live, f->memory, size, &setup));
  for (uint32_t i = 0; i < SITES; i++) {
    char name[16];
    int len = snprintf(name, sizeof name, "site%u", i);
    live_function_t function = {.name = live_string(&f->live, name, (size_t)len), .line = (int32_t)i + 1};
    live_ref_t node = live_child(&f->live, LIVE_ROOT, live_function(&f->live, &function), 1);
    f->sites[i] = live_heap_site(&f->live, node, 0);
    assert_int_not_equal(f->sites[i], 0);
  }
}

static int64_t sum_of(const profile_t *p, int value, uint32_t site, int64_t survived) {
  char name[16];
  int64_t sum = 0;
  snprintf(name, sizeof name, "site%u", site);
  for (size_t i = 0; i < p->sample_count; i++) {
    const profile_sample_t *sample = &p->samples[i];
    int64_t label = 0;
    for (uint32_t l = 0; l < p->label_sets[sample->labels].count; l++)
      label = p->labels[p->label_sets[sample->labels].first + l].num;
    const profile_frame_t *frame = &p->frames[p->stacks[sample->stack].frame];
    if (strcmp(profile_text(p, p->functions[frame->function].name).data, name) != 0) continue;
    if (survived < 0 || survived == label) sum += sample->values[value];
  }
  return sum;
}

static profile_t *snapshot(const fixture_t *f) {
  failure_t failure = {""};
  profile_t *profile = live_snapshot(&f->live, &failure);
  assert_non_null(profile);
  return profile;
}

/* -- the model --------------------------------------------------------------------------------------------------- */

typedef struct {
  bool used;
  uint32_t site, born;
  uint64_t bytes;
} block_t;

typedef struct {
  block_t blocks[BLOCKS];
  uint64_t alloc_bytes[SITES], inuse[SITES], objects[SITES], peak[SITES], completed[SITES];
  uint64_t all, most;
  uint32_t cycle;
} model_t;

/* Addresses as an allocator gives them: near each other, multiples of 16. */
static uint64_t address_of(uint32_t block) {
  return 0x5500000000 + (uint64_t)block * 16;
}

static void step(fixture_t *f, model_t *m) {
  uint32_t at = (uint32_t)(random_next(&f->random) % BLOCKS);
  block_t *block = &m->blocks[at];
  if (random_next(&f->random) % 5000 == 0) {
    live_heap_end_cycle(&f->live);
    m->cycle++;
    memcpy(m->completed, m->inuse, sizeof m->inuse);
  } else if (block->used) {
    assert_true(live_heap_remove(&f->live, address_of(at)));
    m->inuse[block->site] -= block->bytes;
    m->objects[block->site]--;
    m->all -= block->bytes;
    block->used = false;
  } else {
    *block = (block_t){true, (uint32_t)(random_next(&f->random) % SITES), m->cycle,
                       1 + random_next(&f->random) % 5000};
    live_heap_add(&f->live, f->sites[block->site], address_of(at), 1, block->bytes);
    m->alloc_bytes[block->site] += block->bytes;
    m->inuse[block->site] += block->bytes;
    m->objects[block->site]++;
    m->all += block->bytes;
    if (m->all > m->most) {
      m->most = m->all;
      memcpy(m->peak, m->inuse, sizeof m->inuse);
    }
  }
}

static uint64_t survivors_of(const model_t *m, uint32_t site, uint32_t class) {
  uint64_t sum = 0;
  for (uint32_t i = 0; i < BLOCKS; i++) {
    uint32_t age = m->cycle - m->blocks[i].born;
    bool fits = class == 0 ? age == 0 : age >= class && age < 2 * class;
    if (m->blocks[i].used && m->blocks[i].site == site && fits) sum += m->blocks[i].bytes;
  }
  return sum;
}

static void compare(fixture_t *f, const model_t *m) {
  live_heap_show_completed(&f->live, false);
  profile_t *p = snapshot(f);
  for (uint32_t site = 0; site < SITES; site++) {
    assert_int_equal(sum_of(p, HEAP_ALLOC_SPACE, site, -1), m->alloc_bytes[site]);
    assert_int_equal(sum_of(p, HEAP_INUSE_SPACE, site, -1), m->inuse[site]);
    assert_int_equal(sum_of(p, HEAP_INUSE_OBJECTS, site, -1), m->objects[site]);
    assert_int_equal(sum_of(p, HEAP_PEAK_SPACE, site, -1), m->peak[site]);
    for (uint32_t class = 0; class <= 32; class = class == 0 ? 1 : 2 * class)
      assert_int_equal(sum_of(p, HEAP_INUSE_SPACE, site, class), survivors_of(m, site, class));
  }
  profile_free(p);
  live_heap_show_completed(&f->live, true);
  p = snapshot(f);
  for (uint32_t site = 0; m->cycle > 0 && site < SITES; site++)
    assert_int_equal(sum_of(p, HEAP_INUSE_SPACE, site, -1), m->completed[site]);
  profile_free(p);
}

static void blocks_by_the_thousand(void **state) {
  (void)state;
  for (uint64_t seed = 1; seed <= 5; seed++) {
    fixture_t f;
    model_t *m = calloc(1, sizeof *m);
    assert_non_null(m);
    open_region(&f, REGION, LIVE_HEAP_TRACED, seed);
    for (int i = 0; i < 60000; i++) {
      step(&f, m);
      if (i % 6007 == 0) compare(&f, m);
    }
    compare(&f, m);
    for (uint32_t i = 0; i < BLOCKS; i++)
      assert_int_equal(live_heap_remove(&f.live, address_of(i)), m->blocks[i].used);
    assert_int_equal(live_heap_totals(&f.live)->live_blocks, 0);
    assert_int_equal(live_heap_totals(&f.live)->live_bytes, 0);
    assert_int_equal(live_heap_totals(&f.live)->peak_bytes, m->most);
    free(m);
    free(f.memory);
  }
}

static void an_unknown_block_is_none_of_ours(void **state) {
  (void)state;
  fixture_t f;
  open_region(&f, REGION, LIVE_HEAP_SAMPLED, 1);
  assert_false(live_heap_remove(&f.live, 4096)); /* before the first */
  live_heap_add(&f.live, f.sites[0], 8192, 3, 300);
  assert_false(live_heap_remove(&f.live, 4096));
  assert_true(live_heap_remove(&f.live, 8192));
  assert_false(live_heap_remove(&f.live, 8192));
  free(f.memory);
}

/* -- a region that is full ------------------------------------------------------------------------------------------ */

static void blocks_without_room_are_lost_and_counted(void **state) {
  (void)state;
  enum { MANY = 200000 };
  fixture_t f;
  open_region(&f, LIVE_MIN_BYTES, LIVE_HEAP_TRACED, 1);
  for (uint64_t i = 1; i <= MANY; i++) live_heap_add(&f.live, f.sites[i % SITES], i * 16, 1, 10);
  uint64_t lost = live_lost(&f.live, LOSS_OVERFLOW), kept = live_heap_totals(&f.live)->live_blocks;
  assert_true(lost > 0 && kept > 1000);
  assert_int_equal(lost + kept, MANY);
  profile_t *p = snapshot(&f);
  int64_t alloc = 0, inuse = 0;
  for (uint32_t site = 0; site < SITES; site++) {
    alloc += sum_of(p, HEAP_ALLOC_OBJECTS, site, -1);
    inuse += sum_of(p, HEAP_INUSE_OBJECTS, site, -1);
  }
  assert_int_equal(alloc, MANY);
  assert_int_equal(inuse, kept);
  profile_free(p);
  uint64_t removed = 0;
  for (uint64_t i = 1; i <= MANY; i++) removed += live_heap_remove(&f.live, i * 16);
  assert_int_equal(removed, kept);
  live_heap_add(&f.live, f.sites[0], 16, 1, 10); /* there is room again */
  assert_int_equal(live_lost(&f.live, LOSS_OVERFLOW), lost);
  free(f.memory);
}

/* A block counts once as lost, whether it has no site of its own, no room to be followed, or neither. */
static void blocks_without_a_site_are_told_as_lost(void **state) {
  (void)state;
  enum { FEW = 1000, MANY = 200000 };
  fixture_t f;
  open_region(&f, LIVE_MIN_BYTES, LIVE_HEAP_TRACED, 1);
  live_heap_add(&f.live, f.sites[0], 16, 1, 10); /* there is room to follow some */
  live_ref_t overflow = live_heap_overflow_site(&f.live), function = live_pseudo(&f.live, "deep"),
             node = LIVE_ROOT;
  for (live_ref_t child = function; child != 0; child = live_child(&f.live, node, function, 1))
    node = child == function ? LIVE_ROOT : child;
  assert_int_equal(live_heap_site(&f.live, node, 12345), overflow);
  for (uint64_t i = 2; i < 2 + FEW; i++)
    live_heap_add(&f.live, i % 2 == 0 ? overflow : f.sites[1], i * 16, 1, 10);
  uint64_t followed = live_heap_totals(&f.live)->live_blocks, unfollowed = FEW + 1 - followed;
  assert_true(followed > FEW / 2); /* by turns of those with a site and those without: so they end, too */
  assert_in_range(live_lost(&f.live, LOSS_OVERFLOW), FEW / 2 + unfollowed / 2, FEW / 2 + unfollowed / 2 + 1);
  uint64_t lost = live_lost(&f.live, LOSS_OVERFLOW);
  for (uint64_t i = 2 + FEW; i < 2 + MANY; i++) live_heap_add(&f.live, overflow, i * 16, 1, 10);
  assert_int_equal(live_lost(&f.live, LOSS_OVERFLOW) - lost, MANY - FEW);
  free(f.memory);
}

/* -- readers of what a killed writer left ----------------------------------------------------------------------------- */

static void fill(fixture_t *f, model_t *m) {
  for (int i = 0; i < 20000; i++) step(f, m);
}

static void another_process_reads_it(void **state) {
  (void)state;
  fixture_t f;
  model_t *m = calloc(1, sizeof *m);
  open_region(&f, REGION, LIVE_HEAP_TRACED, 3);
  fill(&f, m);
  void *copy = malloc(f.size); /* at another address, and the writer is gone */
  assert_non_null(copy);
  memcpy(copy, f.memory, f.size);
  free(f.memory);
  f.memory = copy;
  failure_t failure = {""};
  assert_true(live_open(&f.live, copy, f.size, &failure));
  compare(&f, m);
  free(copy);
  free(m);
}

/* Random bytes in random places, above all in the head and in what belongs to the heap: a profile or a reason, never a crash. */
static void overwritten_regions(void **state) {
  (void)state;
  fixture_t f;
  model_t *m = calloc(1, sizeof *m);
  open_region(&f, 1 << 20, LIVE_HEAP_TRACED, 4);
  fill(&f, m);
  unsigned char *broken = malloc(f.size);
  assert_non_null(broken);
  int refused = 0;
  for (int round = 0; round < 3000; round++) {
    live_t live = {.header = (live_header_t *)broken};
    failure_t failure = {""};
    memcpy(broken, f.memory, f.size);
    int count = 1 + (int)(random_next(&f.random) % 40);
    for (int i = 0; i < count; i++) {
      size_t limit = round % 3 == 0 ? sizeof(live_header_t) : round % 3 == 1 ? live_used(&f.live) : f.size;
      broken[random_next(&f.random) % limit] = (unsigned char)random_next(&f.random);
    }
    for (int i = 0; round % 4 == 0 && i < 2000; i++) { /* counters at their limits */
      const uint64_t extremes[] = {INT64_MAX, (uint64_t)INT64_MAX + 1, UINT64_MAX, 0};
      size_t at = sizeof(live_header_t) / 8 +
                  random_next(&f.random) % ((live_used(&f.live) - sizeof(live_header_t)) / 8);
      memcpy(broken + at * 8, &extremes[random_next(&f.random) % 4], 8);
      live.header->completed_only = round % 8 == 0;
    }
    live.header->size = f.size; /* checked by live_open */
    profile_t *profile = live_snapshot(&live, &failure);
    if (profile == NULL) {
      assert_int_not_equal(failure.text[0], '\0');
      refused++;
    }
    profile_free(profile);
  }
  assert_true(refused > 0);
  free(broken);
  free(f.memory);
  free(m);
}

/* Counters of the sites themselves, at their limits. */
static void counters_at_their_limits(void **state) {
  (void)state;
  const uint64_t extremes[] = {INT64_MAX, (uint64_t)INT64_MAX + 1, UINT64_MAX, 0, 1};
  fixture_t f;
  model_t *m = calloc(1, sizeof *m);
  open_region(&f, 1 << 20, LIVE_HEAP_TRACED, 6);
  fill(&f, m);
  for (int round = 0; round < 2000; round++) {
    f.live.header->completed_only = round % 2 == 0;
    for (uint32_t site = 0; site < SITES; site++) {
      live_cell_t *cell = live_at(f.live.header, f.sites[site]);
      for (uint32_t i = 0; i < f.live.header->value_count + HIDDEN_COUNT; i++)
        cell->values[i] = extremes[random_next(&f.random) % 5];
      cell->values[f.live.header->value_count + HIDDEN_CYCLE] = f.live.header->heap.gc_cycles;
    }
    profile_free(live_snapshot(&f.live, NULL));
  }
  free(f.memory);
  free(m);
}

/* Each field of the head that leads to the blocks, at its limits. */
static void heads_that_lie(void **state) {
  (void)state;
  const uint32_t lies[] = {0, 1, 7, 1000, 1 << 20, UINT32_MAX / 2, UINT32_MAX - 1, UINT32_MAX};
  fixture_t f;
  model_t *m = calloc(1, sizeof *m);
  open_region(&f, 1 << 20, LIVE_HEAP_TRACED, 5);
  fill(&f, m);
  live_header_t *header = f.live.header;
  for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++)
    for (int field = 0; field < 6; field++) {
      live_header_t saved;
      memcpy(&saved, header, sizeof saved);
      if (field == 0) header->block_room = lies[i];
      if (field == 1) header->blocks = lies[i];
      if (field == 2) header->heap_first = lies[i];
      if (field == 3) header->heap_mode = lies[i];
      if (field == 4) header->heap.gc_cycles = lies[i];
      if (field == 5) header->value_count = lies[i];
      profile_free(live_snapshot(&f.live, NULL));
      memcpy(header, &saved, sizeof saved);
    }
  compare(&f, m);
  free(f.memory);
  free(m);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(blocks_by_the_thousand),
    cmocka_unit_test(an_unknown_block_is_none_of_ours),
    cmocka_unit_test(blocks_without_room_are_lost_and_counted),
    cmocka_unit_test(blocks_without_a_site_are_told_as_lost),
    cmocka_unit_test(another_process_reads_it),
    cmocka_unit_test(overwritten_regions),
    cmocka_unit_test(counters_at_their_limits),
    cmocka_unit_test(heads_that_lie),
};

UNIT_MAIN(tests)
