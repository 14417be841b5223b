/* SPDX-License-Identifier: MIT */
/* The filter of blocks that are followed: it never denies one of them, and forgets those that are gone. */
#include <string.h>

#include "agent/heap_filter.h"
#include "profile/random.h"
#include "unit.h"

static heap_filter_t filter;
static heap_filter_mask_t mask;

static int set_up(void **state) {
  (void)state;
  memset(&filter, 0, sizeof filter);
  mask = HEAP_FILTER_FIRST - 1;
  return 0;
}

static bool may_have(uint64_t address) {
  return heap_filter_may_have(&filter, mask, address);
}

static unsigned bits_set(void) {
  unsigned count = 0;
  for (unsigned i = 0; i <= mask / 64u; i++) count += (unsigned)__builtin_popcountll(filter.bits[i]);
  return count;
}

static void a_block_is_had_until_it_goes(void **state) {
  (void)state;
  assert_false(may_have(0x5000));
  heap_filter_add(&filter, &mask, 0x5000);
  assert_true(may_have(0x5000));
  heap_filter_remove(&filter, mask, 0x5000);
  assert_false(may_have(0x5000));
}

/* As a malloc would place them: one behind the other. At every size of the filter all are had, few others are, and when all have
 * gone nothing is left. */
static void it_grows_with_its_blocks(void **state) {
  (void)state;
  enum { BLOCKS = 3000 };
  const uint64_t base = 0x7f0012345670;
  heap_filter_mask_t first = mask;
  for (uint64_t i = 0; i < BLOCKS; i++) {
    heap_filter_add(&filter, &mask, base + 4096 * i);
    if ((i & (i - 1)) != 0) continue; /* looked at whenever their number has doubled */
    unsigned wrong = 0;
    for (uint64_t k = 0; k <= i; k++) assert_true(may_have(base + 4096 * k));
    for (uint64_t k = 0; k < 10000; k++) wrong += may_have(base + 4096 * k + 48);
    assert_true(wrong < 500); /* one in 64 is what is meant, of more blocks one in 22 */
  }
  assert_true(first < mask);
  assert_int_equal(mask, HEAP_FILTER_MOST - 1);
  for (uint64_t i = 0; i < BLOCKS; i++) heap_filter_remove(&filter, mask, base + 4096 * i);
  assert_int_equal(bits_set(), 0);
  assert_int_equal(filter.blocks, 0);
}

/* Those that share a bit, of one class or of several, keep it until the last one is gone. */
static void a_bit_is_shared(void **state) {
  (void)state;
  uint64_t one = 0x10000, other = one + 8;
  while ((heap_filter_class(other) & mask) != (heap_filter_class(one) & mask)) other += 8;
  assert_int_not_equal(heap_filter_class(one), heap_filter_class(other));
  heap_filter_add(&filter, &mask, one);
  heap_filter_add(&filter, &mask, one);
  heap_filter_add(&filter, &mask, other);
  assert_int_equal(bits_set(), 1);
  heap_filter_remove(&filter, mask, one);
  heap_filter_remove(&filter, mask, other);
  assert_true(may_have(one));
  heap_filter_remove(&filter, mask, one);
  assert_false(may_have(one));
}

/* More than can be counted: the bit stays, which costs time and is not wrong. */
static void a_class_without_count_stays(void **state) {
  (void)state;
  for (int i = 0; i < 300; i++) heap_filter_add(&filter, &mask, 0x8000);
  for (int i = 0; i < 300; i++) heap_filter_remove(&filter, mask, 0x8000);
  assert_true(may_have(0x8000));
}

static void random_blocks_come_and_go(void **state) {
  (void)state;
  enum { PLACES = 2000, STEPS = 200000 };
  static bool had[PLACES];
  memset(had, 0, sizeof had);
  random_t random = {.state = 7};
  for (int step = 0; step < STEPS; step++) {
    uint64_t place = random_next(&random) % PLACES, address = 0x600000 + 48 * place;
    if (had[place]) {
      assert_true(may_have(address));
      heap_filter_remove(&filter, mask, address);
    } else {
      heap_filter_add(&filter, &mask, address);
    }
    had[place] = !had[place];
  }
  for (uint64_t place = 0; place < PLACES; place++)
    if (had[place]) heap_filter_remove(&filter, mask, 0x600000 + 48 * place);
  assert_int_equal(bits_set(), 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test_setup(a_block_is_had_until_it_goes, set_up),
    cmocka_unit_test_setup(it_grows_with_its_blocks, set_up),
    cmocka_unit_test_setup(a_bit_is_shared, set_up),
    cmocka_unit_test_setup(a_class_without_count_stays, set_up),
    cmocka_unit_test_setup(random_blocks_come_and_go, set_up),
};

UNIT_MAIN(tests)
