/* SPDX-License-Identifier: MIT */
/* Coroutines that are alike: which are, and in what order they come. */
#include "attach/snapshot_groups.h"

#include "unit.h"

#include "failing_memory.h"

enum { VM = 0x1000, ANOTHER = 0x2000, STACKS = 12 };

typedef struct {
  snapshot_t snapshot;
  snapshot_stack_t stacks[STACKS];
  snapshot_frame_t frames[STACKS]; /* one each */
} fixture_t;

static snapshot_stack_t *add(fixture_t *f, uint64_t pc) {
  size_t i = f->snapshot.stack_count++;
  f->snapshot.stacks = f->stacks;
  f->snapshot.frames = f->frames;
  f->frames[i] = (snapshot_frame_t){
      .kind = WALK_LUA, .proto = 0x5000, .mark = 7, .pc = pc, .function = 0x100 * i, .code = 0x7000 + i};
  f->stacks[i] = (snapshot_stack_t){.state = 0x9000 + i,
                                    .global = VM,
                                    .status_known = true,
                                    .status = COROUTINE_SUSPENDED,
                                    .first = i,
                                    .count = 1};
  return &f->stacks[i];
}

static void expect_order(const fixture_t *f, const size_t *stacks, const size_t *alike, size_t count) {
  snapshot_resting_t *resting;
  size_t got;
  assert_true(snapshot_group(&f->snapshot, VM, &resting, &got));
  assert_int_equal(got, count);
  for (size_t i = 0; i < count; i++) {
    assert_int_equal(resting[i].stack, stacks[i]);
    assert_int_equal(resting[i].alike, alike[i]);
  }
  mem_free(resting);
}

static void the_most_come_first(void **state) {
  fixture_t f = {.snapshot = {.stack_count = 0}};
  (void)state;
  add(&f, 1);
  add(&f, 2);
  add(&f, 3);
  add(&f, 2); /* another closure of the same function, at the same instruction */
  add(&f, 3);
  add(&f, 3);
  expect_order(&f, (size_t[]){2, 4, 5, 1, 3, 0}, (size_t[]){3, 3, 3, 2, 2, 1}, 6);
}

static void what_differs_stands_apart(void **state) {
  fixture_t f = {.snapshot = {.stack_count = 0}};
  (void)state;
  add(&f, 1);
  add(&f, 1)->status = COROUTINE_DEAD;
  add(&f, 1)->status_known = false;
  add(&f, 1)->truncated = true;
  add(&f, 1)->runtime = 1;
  add(&f, 1)->reason = WALK_BAD_SLOT;
  add(&f, 1)->count = 0;
  add(&f, 1)->main = true;
  add(&f, 1);
  f.frames[8].mark = 8; /* another function that lies where the first one lay */
  add(&f, 1)->thread = 12;
  add(&f, 1)->global = ANOTHER;
  expect_order(&f, (size_t[]){0, 1, 2, 3, 4, 5, 6, 7, 8}, (size_t[]){1, 1, 1, 1, 1, 1, 1, 1, 1}, 9);
}

static void functions_of_c_by_their_code(void **state) {
  fixture_t f = {.snapshot = {.stack_count = 0}};
  (void)state;
  for (size_t i = 0; i < 3; i++) {
    add(&f, 0);
    f.frames[i] = (snapshot_frame_t){.kind = WALK_C, .code = i == 1 ? 0x8000 : 0x8800, .function = 0x500};
  }
  expect_order(&f, (size_t[]){0, 2, 1}, (size_t[]){2, 2, 1}, 3);
}

static void none_at_all(void **state) {
  fixture_t f = {.snapshot = {.stack_count = 0}};
  (void)state;
  expect_order(&f, NULL, NULL, 0);
}

static void memory_may_run_out(void **state) {
  fixture_t f = {.snapshot = {.stack_count = 0}};
  snapshot_resting_t *resting;
  size_t count;
  (void)state;
  add(&f, 1);
  failing_memory_start(1, true);
  assert_false(snapshot_group(&f.snapshot, VM, &resting, &count));
  assert_true(failing_memory_stop());
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_most_come_first),          cmocka_unit_test(what_differs_stands_apart),
    cmocka_unit_test(functions_of_c_by_their_code), cmocka_unit_test(none_at_all),
    cmocka_unit_test(memory_may_run_out),
};

UNIT_MAIN(tests)
