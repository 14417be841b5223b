/* SPDX-License-Identifier: MIT */
/* Reading the own process in a signal handler: what is not mapped fails, and never faults. Addresses come from memory that
 * may hold anything. */
#include <errno.h>
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

static uint8_t *map_pages(size_t count) {
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  uint8_t *pages = mmap(NULL, count * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  assert_true(pages != MAP_FAILED);
  return pages;
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
  uint8_t *memory_of_two = map_pages(2);
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

static void unmap_page(uint64_t at) {
  assert_int_equal(munmap((void *)(uintptr_t)at, (size_t)sysconf(_SC_PAGESIZE)), 0);
}

/* What a walk has learned of pages holds for that walk alone. */
static void a_page_that_has_gone_is_not_read_by_the_next_walk(void **state) {
  (void)state;
  uint64_t at = (uint64_t)(uintptr_t)map_pages(1);
  uint8_t bytes[16];
  walk_memory_t *memory = begin(false);
  memory->expect(memory, WALK_SLOTS, at, at + 64);
  assert_true(walk_read(memory, bytes, at, 16, WALK_GUESS));
  assert_true(walk_read(memory, bytes, at + 256, 16, WALK_GUESS));
  unmap_page(at);
  memory_own_begin(&own, false, 0, 0);
  assert_false(walk_read(memory, bytes, at, 16, WALK_GUESS));
  assert_false(walk_read(memory, bytes, at + 256, 16, WALK_GUESS));
}

/* Another thread may unmap what a guess led to, at any moment. */
static void a_guess_is_never_loaded(void **state) {
  (void)state;
  uint64_t at = (uint64_t)(uintptr_t)map_pages(1);
  uint8_t bytes[16];
  walk_memory_t *memory = begin(false);
  assert_true(walk_read(memory, bytes, at, 16, WALK_GUESS));
  unmap_page(at);
  assert_false(walk_read(memory, bytes, at, 16, WALK_GUESS));
  assert_false(walk_read(memory, bytes, at + 32, 16, WALK_GUESS));
}

/* Every choice of what is mapped: those foreseen are read as they would have been one by one. */
static void guesses_that_were_foreseen(void **state) {
  (void)state;
  enum { COUNT = 5, LEN = 112 };
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  for (unsigned choice = 0; choice < 1u << COUNT; choice++) {
    uint8_t *pages = map_pages(COUNT);
    uint64_t addresses[2 * COUNT]; /* two of each page, the lower ones last */
    for (unsigned i = 0; i < COUNT; i++) {
      memset(pages + i * page, (int)i + 1, page);
      addresses[i] = (uint64_t)(uintptr_t)(pages + i * page + 64);
      addresses[COUNT + i] = addresses[i] - 48;
      if ((choice >> i & 1) == 0) munmap(pages + i * page, page);
    }
    walk_memory_t *memory = begin(false);
    memory->foresee(memory, addresses, 2 * COUNT, LEN);
    for (unsigned i = 0; i < 2 * COUNT; i++) {
      bool there = (choice >> i % COUNT & 1) != 0;
      uint8_t bytes[LEN] = {0};
      assert_int_equal(walk_read(memory, bytes, addresses[i], LEN, WALK_GUESS), there);
      assert_int_equal(bytes[LEN - 1], there ? (int)(i % COUNT) + 1 : 0);
      if (there) memset(pages + i % COUNT * page, 0x77, page);
    }
    memory->foresee(memory, NULL, 0, 0); /* from here on they are read as they are now */
    for (unsigned i = 0; i < COUNT; i++) {
      uint8_t bytes[LEN] = {0};
      walk_read(memory, bytes, addresses[i], LEN, WALK_GUESS);
      assert_int_equal(bytes[0], (choice >> i & 1) != 0 ? 0x77 : 0);
    }
    for (size_t i = 0; i < sizeof own.foreseen.bytes; i++) assert_int_equal(own.foreseen.bytes[i], 0);
    munmap(pages, COUNT * page);
  }
}

/* One of them goes on in a page that is not there: the others of its page are read all the same. */
static void a_foreseen_guess_at_the_end_of_a_mapping(void **state) {
  (void)state;
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  uint8_t *pages = map_pages(2);
  memset(pages, 0x5a, page);
  assert_int_equal(munmap(pages + page, page), 0);
  uint64_t end = (uint64_t)(uintptr_t)pages + page;
  uint64_t addresses[] = {end - 16, end - 64, end - 40, end + 8, end - 32};
  uint8_t bytes[32];
  walk_memory_t *memory = begin(false);
  memory->foresee(memory, addresses, 5, 32);
  assert_false(walk_read(memory, bytes, end - 16, 32, WALK_GUESS));
  assert_true(walk_read(memory, bytes, end - 64, 32, WALK_GUESS));
  assert_true(walk_read(memory, bytes, end - 40, 32, WALK_GUESS));
  assert_false(walk_read(memory, bytes, end + 8, 32, WALK_GUESS));
  assert_true(walk_read(memory, bytes, end - 32, 32, WALK_GUESS));
  munmap(pages, page);
}

/* More or larger ones than there is room for are read one by one. */
static void too_much_to_be_foreseen(void **state) {
  (void)state;
  static uint8_t data[8192];
  uint64_t addresses[WALK_FORESEEN + 1];
  static uint8_t bytes[sizeof data];
  memset(data, 0x5a, sizeof data);
  for (int i = 0; i <= WALK_FORESEEN; i++) addresses[i] = (uint64_t)(uintptr_t)data;
  walk_memory_t *memory = begin(false);
  memory->foresee(memory, addresses, WALK_FORESEEN + 1, 16);
  assert_true(walk_read(memory, bytes, addresses[0], 16, WALK_GUESS));
  memory->foresee(memory, addresses, 2, sizeof data);
  assert_true(walk_read(memory, bytes, addresses[0], sizeof data, WALK_GUESS));
  memory->foresee(memory, addresses, 2, 16); /* and more of one than was foreseen */
  assert_true(walk_read(memory, bytes, addresses[0], sizeof data, WALK_GUESS));
  assert_int_equal(bytes[sizeof data - 1], 0x5a);
}

/* Walks in an allocator are in the midst of the host's code. */
static void errno_is_kept(void **state) {
  (void)state;
  static uint8_t data[64];
  uint64_t here = (uint64_t)(uintptr_t)data, addresses[] = {65536, here, 131072};
  uint8_t bytes[16];
  walk_memory_t *memory = begin(false);
  errno = ENOTTY;
  assert_false(walk_read(memory, bytes, 65536, 16, WALK_GUESS));
  assert_false(walk_read(memory, bytes, 65536, 16, WALK_LEAD));
  memory->foresee(memory, addresses, 3, 16);
  assert_true(walk_read(memory, bytes, here, 16, WALK_GUESS));
  assert_int_equal(errno, ENOTTY);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(addresses_that_lead_nowhere_fail),
    cmocka_unit_test(what_is_mapped_is_read_and_what_is_not_is_not),
    cmocka_unit_test(a_page_that_has_gone_is_not_read_by_the_next_walk),
    cmocka_unit_test(a_guess_is_never_loaded),
    cmocka_unit_test(guesses_that_were_foreseen),
    cmocka_unit_test(a_foreseen_guess_at_the_end_of_a_mapping),
    cmocka_unit_test(too_much_to_be_foreseen),
    cmocka_unit_test(errno_is_kept),
};

UNIT_MAIN(tests)
