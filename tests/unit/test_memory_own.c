/* SPDX-License-Identifier: MIT */
/* Reading the own process in a signal handler: what is not mapped fails, and never faults. Addresses come from memory that
 * may hold anything. */
#include <sys/mman.h>
#include <unistd.h>

#include "unit.h"
#include "walk/memory_own.h"

static memory_own_t own; /* large */

/* As a walker begins a tick: the native stack of this thread may be loaded directly. */
static walk_memory_t *begin(bool strict) {
  uint64_t here = (uint64_t)(uintptr_t)__builtin_frame_address(0);
  memory_own_init(&own, getpid());
  memory_own_begin(&own, strict, here, here + 4096);
  return &own.memory;
}

static void addresses_that_lead_nowhere_fail(void **state) {
  (void)state;
  static const uint64_t nowhere[] = {
      0,
      1,
      4096,
      65535,
      (uint64_t)1 << 47,
      ((uint64_t)1 << 47) - 1,
      ((uint64_t)1 << 47) + 8,
      (uint64_t)1 << 63,
      0x8000000000000000u - 8,
      0xffff800000000000u,
      0xffffffff81000000u,
      UINT64_MAX - 4096,
      UINT64_MAX - 15,
      UINT64_MAX - 7,
      UINT64_MAX - 3, /* a link of 0, less an instruction: four bytes from here end at 0 */
      UINT64_MAX,
  };
  static const uint32_t lengths[] = {1, 4, 8, 16, 192, 4096};
  uint8_t bytes[4096];
  for (int strict = 0; strict < 2; strict++) {
    walk_memory_t *memory = begin(strict != 0);
    for (size_t i = 0; i < sizeof nowhere / sizeof nowhere[0]; i++)
      for (size_t l = 0; l < sizeof lengths / sizeof lengths[0]; l++) {
        if (nowhere[i] == ((uint64_t)1 << 47) - 1 && lengths[l] == 1)
          continue; /* an address, if hardly mapped */
        assert_false(walk_read(memory, bytes, nowhere[i], lengths[l], WALK_GUESS));
      }
    memory->expect(memory, WALK_SLOTS, 0, UINT64_MAX); /* a stack whose bounds are rubbish */
    memory->expect(memory, WALK_CALLS, UINT64_MAX - 64, 64);
    for (size_t i = 0; i < sizeof nowhere / sizeof nowhere[0]; i++)
      assert_false(walk_read(memory, bytes, nowhere[i], 16, WALK_GUESS));
  }
}

static void what_is_mapped_is_read_and_what_is_not_is_not(void **state) {
  (void)state;
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  uint8_t *memory_of_two = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  assert_true(memory_of_two != MAP_FAILED);
  assert_int_equal(munmap(memory_of_two + page, page), 0);
  memset(memory_of_two, 0x5a, page);
  uint64_t end = (uint64_t)(uintptr_t)memory_of_two + page;
  uint8_t bytes[64];
  for (int strict = 0; strict < 2; strict++) {
    walk_memory_t *memory = begin(strict != 0);
    assert_true(walk_read(memory, bytes, end - 64, 64, WALK_GUESS));
    assert_int_equal(bytes[63], 0x5a);
    for (uint32_t over = 1; over <= 64; over++) /* also after a read of the page has told that it is there */
      assert_false(walk_read(memory, bytes, end - 64 + over, 64, WALK_GUESS));
    assert_false(walk_read(memory, bytes, end, 8, WALK_GUESS));
    memory->expect(memory, WALK_SLOTS, end - 128, end + 128);
    assert_true(walk_read(memory, bytes, end - 16, 16, WALK_GUESS));
    assert_false(walk_read(memory, bytes, end, 16, WALK_GUESS));
    assert_true(walk_read(memory, bytes, end - 32, 16, WALK_GUESS));
  }
  munmap(memory_of_two, page);
}

/* What a walk has learned of pages holds for that walk alone. */
static void a_page_that_has_gone_is_not_read_by_the_next_walk(void **state) {
  (void)state;
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  uint8_t *mapped = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  assert_true(mapped != MAP_FAILED);
  uint64_t at = (uint64_t)(uintptr_t)mapped;
  uint8_t bytes[16];
  walk_memory_t *memory = begin(false);
  memory->expect(memory, WALK_SLOTS, at, at + 64);
  assert_true(walk_read(memory, bytes, at, 16, WALK_GUESS));
  assert_true(walk_read(memory, bytes, at + 256, 16, WALK_GUESS));
  assert_int_equal(munmap(mapped, page), 0);
  memory_own_begin(&own, false, 0, 0);
  assert_false(walk_read(memory, bytes, at, 16, WALK_GUESS));
  assert_false(walk_read(memory, bytes, at + 256, 16, WALK_GUESS));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(addresses_that_lead_nowhere_fail),
    cmocka_unit_test(what_is_mapped_is_read_and_what_is_not_is_not),
    cmocka_unit_test(a_page_that_has_gone_is_not_read_by_the_next_walk),
};

UNIT_MAIN(tests)
