/* SPDX-License-Identifier: MIT */
/* Where the process's break is: what small blocks come from, and nothing else. */
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../sanitized.h"
#include "agent/process_break.h"
#include "unit.h"

static bool has(const void *address) {
  uint64_t low, high, at = (uint64_t)(uintptr_t)address;
  process_break_span(0, &low, &high);
  return at >= low && at < high;
}

static void it_is_what_sbrk_gives(void **state) {
  (void)state;
  process_break_learn();
  char *more = sbrk(1 << 16);
  assert_true(more != (char *)-1);
  assert_true(has(more) && has(more + (1 << 16) - 1) && !has(more + (1 << 16)));
  assert_true(sbrk(-(1 << 16)) != (void *)-1);
  assert_false(has(more));
}

static void small_blocks_come_from_it(void **state) {
  (void)state;
  process_break_learn();
  void *block = malloc(64);
  if (!SANITIZED_ADDRESS && !SANITIZED_THREAD) assert_true(has(block)); /* theirs come from elsewhere */
  free(block);
}

static void what_is_mapped_and_what_is_static_is_not_of_it(void **state) {
  (void)state;
  static int variable;
  process_break_learn();
  void *pages = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  assert_true(pages != MAP_FAILED);
  assert_false(has(pages) || has(&variable) || has(&pages));
  munmap(pages, 4096);
}

/* There it may be smaller already than the C library knows. */
static void within_brk_nothing_is(void **state) {
  (void)state;
  uint64_t low, high, code = (uint64_t)(uintptr_t)brk;
  process_break_learn();
  process_break_span(code + 7, &low, &high);
  assert_true(low == 0 && high == 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(it_is_what_sbrk_gives),
    cmocka_unit_test(small_blocks_come_from_it),
    cmocka_unit_test(what_is_mapped_and_what_is_static_is_not_of_it),
    cmocka_unit_test(within_brk_nothing_is),
};

UNIT_MAIN(tests)
