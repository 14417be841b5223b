/* SPDX-License-Identifier: MIT */
/* Reading a process for samples: what is read is what is there now, and what cannot be read fails, whatever was fetched before. The
 * process is this one. */
#include "attach/glance.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "unit.h"

enum { PAGE = 4096, PAGES = 8 };

static glance_t glance; /* large */

static uint8_t *map_pages(void) {
  uint8_t *pages =
      mmap(NULL, (size_t)PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  assert_true(pages != MAP_FAILED);
  for (size_t i = 0; i < (size_t)PAGES * PAGE; i++) pages[i] = (uint8_t)(i * 31 + i / 256);
  return pages;
}

static bool reads(const uint8_t *from, uint32_t len) {
  static uint8_t to[PAGES * PAGE];
  memset(to, 0, sizeof to);
  if (!walk_read(&glance.memory, to, (uint64_t)(uintptr_t)from, len, WALK_LIVE)) return false;
  assert_memory_equal(to, from, len);
  return true;
}

static void any_length_from_anywhere(void **state) {
  (void)state;
  static const uint32_t lengths[] = {1, 4, 8, 192, 511, 512, 513, 1024, 1500, 4096, 5000, 3 * PAGE};
  glance_last_t last = {0};
  uint8_t *pages = map_pages();
  for (int round = 0; round < 3; round++) {
    glance_begin(&glance, getpid(), &last);
    for (size_t l = 0; l < sizeof lengths / sizeof lengths[0]; l++)
      for (size_t at = 0; at < 2 * PAGE; at += 97) assert_true(reads(pages + at, lengths[l]));
  }
  munmap(pages, (size_t)PAGES * PAGE);
}

/* … and not what it was a glance ago, nor what is kept in the same place. */
static void what_is_there_now(void **state) {
  (void)state;
  glance_last_t last = {0}, other = {0};
  uint8_t *pages = map_pages(), *far = map_pages();
  for (uint8_t round = 0; round < 20; round++) {
    glance_begin(&glance, getpid(), round % 3 == 0 ? &other : &last);
    assert_true(reads(pages + 100, 64));
    assert_true(reads(far + 100, 64));
    assert_true(reads(pages + 100, 64));
    memset(pages, round, PAGE);
    memset(far, ~round, PAGE);
  }
  munmap(pages, (size_t)PAGES * PAGE);
  munmap(far, (size_t)PAGES * PAGE);
}

/* What is fetched again lies apart in its pages, and the rest of them is not wanted. */
static void pieces_apart(void **state) {
  (void)state;
  static const size_t places[] = {5 * PAGE + 3000, 700, 3900, 2 * PAGE + 10, 10, 5 * PAGE + 600,
                                  2 * PAGE + 4090};
  enum { PLACES = sizeof places / sizeof places[0] };
  glance_last_t last = {0};
  uint8_t *pages = map_pages();
  for (uint8_t round = 1; round < 6; round++) {
    uint8_t bytes[PLACES], now;
    for (size_t i = 0; i < (size_t)PAGES * PAGE; i++) pages[i] = (uint8_t)(i * 7 + i / 512 + round);
    for (size_t i = 0; i < PLACES; i++) bytes[i] = pages[places[i]];
    glance_begin(&glance, getpid(), &last);
    if (round > 1) memset(pages, 0, (size_t)PAGES * PAGE); /* all was fetched at the beginning */
    for (size_t i = 0; i < PLACES; i++) {
      assert_true(walk_read(&glance.memory, &now, (uint64_t)(uintptr_t)&pages[places[i]], 1, WALK_LIVE));
      assert_int_equal(now, bytes[i]);
    }
    assert_int_equal(last.count, PLACES);
  }
  munmap(pages, (size_t)PAGES * PAGE);
}

/* Within a glance the process stands still: a piece is read once. */
static void what_was_used_is_fetched_again(void **state) {
  (void)state;
  glance_last_t last = {0};
  uint8_t *pages = map_pages(), byte;
  glance_begin(&glance, getpid(), &last);
  assert_true(reads(pages + 8, 8));
  assert_true(reads(pages + PAGE + 8, 8));
  for (int round = 0; round < GLANCE_IDLE; round++) {
    assert_int_equal(last.count, 2);
    glance_begin(&glance, getpid(), &last);
    pages[PAGE + 8] ^= 0xff; /* after it was fetched */
    assert_true(walk_read(&glance.memory, &byte, (uint64_t)(uintptr_t)&pages[PAGE + 8], 1, WALK_LIVE));
    assert_int_equal(byte, pages[PAGE + 8] ^ 0xff);
  }
  glance_begin(&glance, getpid(), &last);
  assert_int_equal(last.count, 1); /* the other was fetched in vain, and is not fetched again */
  glance.memory.forget(&glance.memory);
  assert_true(reads(pages + PAGE + 8, 1));
  munmap(pages, (size_t)PAGES * PAGE);
}

static void what_is_gone_fails(void **state) {
  (void)state;
  glance_last_t last = {0};
  uint8_t *pages = map_pages();
  glance_begin(&glance, getpid(), &last);
  for (size_t i = 0; i < PAGES; i++) assert_true(reads(pages + i * PAGE, 8));
  munmap(pages + PAGE, PAGE); /* what is fetched after it may still come */
  glance_begin(&glance, getpid(), &last);
  for (size_t i = 0; i < PAGES; i++)
    if (i != 1)
      assert_true(reads(pages + i * PAGE, 8));
    else
      assert_false(reads(pages + i * PAGE, 8));
  assert_false(reads(pages + PAGE - 4, 8)); /* half of it is there */
  glance_begin(&glance, getpid(), &last);
  assert_int_equal(last.count, PAGES); /* seven, and that half; what is gone is not asked for again */
  munmap(pages, (size_t)PAGES * PAGE);
}

/* What comes after a page that is gone is fetched at the beginning all the same. */
static void what_is_gone_keeps_nothing_else(void **state) {
  (void)state;
  glance_last_t last = {0};
  uint8_t *pages = map_pages(), byte;
  glance_begin(&glance, getpid(), &last);
  for (size_t i = 0; i < PAGES; i++) assert_true(reads(pages + i * PAGE, 8));
  munmap(pages + PAGE, PAGE);
  munmap(pages + (size_t)3 * PAGE, PAGE);
  glance_begin(&glance, getpid(), &last);
  for (size_t i = 0; i < PAGES; i++) {
    if (i == 1 || i == 3) continue;
    uint8_t before = pages[i * PAGE];
    pages[i * PAGE] ^= 0xff; /* after it was fetched */
    assert_true(walk_read(&glance.memory, &byte, (uint64_t)(uintptr_t)&pages[i * PAGE], 1, WALK_LIVE));
    assert_int_equal(byte, before);
  }
  munmap(pages, (size_t)PAGES * PAGE);
}

/* When there is no room for more, what was not used for longest makes it. */
static void the_newest_are_kept(void **state) {
  (void)state;
  enum { MANY = 2 * GLANCE_LAST };
  static glance_last_t last;
  uint8_t *all = mmap(NULL, (size_t)MANY * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  assert_true(all != MAP_FAILED);
  glance_begin(&glance, getpid(), &last);
  for (size_t i = 0; i < GLANCE_LAST; i++) assert_true(reads(all + i * PAGE, 8));
  glance_begin(&glance, getpid(), &last);
  for (size_t i = GLANCE_LAST - 4; i < MANY - 8; i++) assert_true(reads(all + i * PAGE, 8));
  glance_begin(&glance, getpid(), &last);
  assert_int_equal(last.count, GLANCE_LAST);
  for (size_t i = 0; i < last.count; i++) {
    size_t page = (size_t)(last.known[i].piece * GLANCE_PIECE - (uint64_t)(uintptr_t)all) / PAGE;
    assert_true(i == 0 || last.known[i - 1].piece < last.known[i].piece);
    assert_int_equal(last.known[i].idle, page >= GLANCE_LAST - 4 ? 1 : 2);
  }
  munmap(all, (size_t)MANY * PAGE);
}

static void addresses_that_lead_nowhere_fail(void **state) {
  (void)state;
  static const uint64_t nowhere[] = {
      0, 1, 65535, (uint64_t)1 << 56, (uint64_t)1 << 63, UINT64_MAX - 600, UINT64_MAX - 3};
  static const uint32_t lengths[] = {1, 8, 512, 4096};
  uint8_t to[4096];
  glance_last_t last = {0};
  glance_begin(&glance, getpid(), &last);
  for (size_t i = 0; i < sizeof nowhere / sizeof nowhere[0]; i++)
    for (size_t l = 0; l < sizeof lengths / sizeof lengths[0]; l++)
      assert_false(walk_read(&glance.memory, to, nowhere[i], lengths[l], WALK_GUESS));
  assert_int_equal(last.count, 0);
}

/* Guesses are fetched together, at once, and are not fetched again the next time. */
static void guesses_are_fetched_once(void **state) {
  (void)state;
  enum { LEN = 96, GUESSES = 9 };
  static const size_t places[] = {PAGE - 40, 480, 16, 5 * PAGE + 8, 2 * PAGE + 1000, 3 * PAGE, 16};
  enum { PLACES = sizeof places / sizeof places[0] };
  glance_last_t last = {0};
  uint8_t *pages = map_pages(), *before = map_pages(), to[LEN];
  uint64_t guesses[GUESSES] = {8, (uint64_t)(uintptr_t)pages + (size_t)4 * PAGE + 8};
  for (size_t i = 0; i < PLACES; i++) guesses[2 + i] = (uint64_t)(uintptr_t)pages + places[i];
  munmap(pages + (size_t)4 * PAGE, PAGE);
  for (int round = 0; round < 2; round++) {
    glance_begin(&glance, getpid(), &last);
    assert_true(reads(pages + (size_t)6 * PAGE, 8));
    glance.memory.foresee(&glance.memory, guesses, GUESSES, LEN);
    for (size_t i = 0; i < PLACES; i++) memset(pages + places[i], 0, LEN); /* after they were fetched */
    for (size_t i = 0; i < GUESSES; i++) {
      bool there = i >= 2;
      assert_int_equal(walk_read(&glance.memory, to, guesses[i], LEN, WALK_GUESS), there);
      if (there) assert_memory_equal(to, before + places[i - 2], LEN);
    }
    glance.memory.foresee(&glance.memory, NULL, 0, 0);
    assert_int_equal(last.count, 1);
    for (size_t i = 0; i < PLACES; i++) memcpy(pages + places[i], before + places[i], LEN);
  }
  assert_true(reads(pages + 480, 8)); /* what is used after all counts */
  assert_int_equal(last.count, 2);
  munmap(pages, (size_t)PAGES * PAGE);
  munmap(before, (size_t)PAGES * PAGE);
}

/* What is not there is asked for once in a glance, and anew in the next. */
static void what_comes_is_seen(void **state) {
  (void)state;
  glance_last_t last = {0};
  uint8_t *pages = map_pages();
  mprotect(pages + PAGE, PAGE, PROT_NONE);
  glance_begin(&glance, getpid(), &last);
  assert_false(reads(pages + PAGE, 8));
  mprotect(pages + PAGE, PAGE, PROT_READ | PROT_WRITE);
  assert_false(reads(pages + PAGE + 600, 8));
  glance_begin(&glance, getpid(), &last);
  assert_true(reads(pages + PAGE + 600, 8));
  munmap(pages, (size_t)PAGES * PAGE);
}

/* More than is remembered, and than there are places for. */
static void much_of_it(void **state) {
  (void)state;
  enum { MUCH = 3 * GLANCE_PIECES };
  glance_last_t last = {0};
  size_t bytes = (size_t)MUCH * GLANCE_PIECE;
  uint8_t *all = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  assert_true(all != MAP_FAILED);
  for (size_t i = 0; i < MUCH; i++) memset(all + i * GLANCE_PIECE, (int)(i % 251), GLANCE_PIECE);
  for (int round = 0; round < 2; round++) {
    glance_begin(&glance, getpid(), &last);
    for (size_t i = 0; i < MUCH; i++) assert_true(reads(all + i * GLANCE_PIECE + i % 400, 100));
    assert_int_equal(last.count, GLANCE_LAST);
  }
  munmap(all, bytes);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(any_length_from_anywhere),
    cmocka_unit_test(what_is_there_now),
    cmocka_unit_test(pieces_apart),
    cmocka_unit_test(what_was_used_is_fetched_again),
    cmocka_unit_test(what_is_gone_fails),
    cmocka_unit_test(what_is_gone_keeps_nothing_else),
    cmocka_unit_test(the_newest_are_kept),
    cmocka_unit_test(addresses_that_lead_nowhere_fail),
    cmocka_unit_test(guesses_are_fetched_once),
    cmocka_unit_test(what_comes_is_seen),
    cmocka_unit_test(much_of_it),
};

UNIT_MAIN(tests)
