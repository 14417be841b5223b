/* SPDX-License-Identifier: MIT */
/* The profile of a recording: what samples become of, and that memory is bounded whatever comes. */
#include <stdlib.h>
#include <unistd.h>

#include "attach/recording.h"
#include "invented_proto.h"
#include "profile/random.h"
#include "unit.h"

#include "failing_memory.h"

enum { FUNCTIONS = 64, DEPTH = 48, MANY = 120000, IN_WINDOWS = FEWER(MANY) };
static const size_t most_bytes = (size_t)100 << 20; /* that a recorder may take */

typedef struct {
  recording_t *recording;
  target_t target;
  runtimes_t runtimes;
  function_t functions[FUNCTIONS];
  walk_frame_t frames[DEPTH];
  engine_sample_t sample;
} fixture_t;

static int set_up(void **state) {
  fixture_t *x = calloc(1, sizeof *x);
  const layout_t *layout = invented_layout();
  x->recording = recording_new(100);
  x->target.process.pid = getpid();
  x->runtimes.count = 1;
  x->runtimes.runtimes[0].layout = layout;
  for (int i = 0; i < FUNCTIONS; i++) define(layout, &x->functions[i], "@app.lua", i * 1000 + 1);
  x->sample =
      (engine_sample_t){.origin = {.space = 1, .pid = getpid(), .tid = getpid()}, .frames = x->frames};
  *state = x;
  return 0;
}

static int tear_down(void **state) {
  fixture_t *x = *state;
  recording_free(x->recording);
  free(x);
  return 0;
}

static void set_frame(fixture_t *x, uint32_t i, uint32_t function, uint32_t instruction) {
  const function_t *f = &x->functions[function];
  x->frames[i] = (walk_frame_t){.kind = WALK_LUA,
                                .proto = address(f->proto),
                                .mark = mark_of(x->runtimes.runtimes[0].layout, f),
                                .pc = address(&f->code[instruction])};
}

static profile_t *finish(fixture_t *x) {
  recorder_counts_t counts;
  recording_settle(x->recording);
  recording_counts(x->recording, &counts);
  return recording_finish(x->recording, "test", &counts);
}

static int64_t total(const profile_t *p, size_t type) {
  int64_t sum = 0;
  for (size_t i = 0; i < p->sample_count; i++) sum += p->samples[i].values[type];
  return sum;
}

/* The name of a sample's innermost function. */
static const char *leaf(const profile_t *p, size_t sample) {
  uint32_t frame = p->stacks[p->samples[sample].stack].frame;
  return profile_text(p, p->functions[p->frames[frame].function].name).data;
}

static void add(fixture_t *x) {
  recording_take(x->recording, &x->sample, &x->target, &x->runtimes);
}

static void samples_of_every_kind(void **state) {
  fixture_t *x = *state;
  set_frame(x, 0, 1, 5);
  set_frame(x, 1, 0, 7);
  x->sample.frame_count = 2;
  add(x);
  add(x);
  x->sample.truncated = true;
  add(x);
  x->sample.truncated = false;
  x->sample.origin.reason = WALK_NO_STATE;
  add(x);
  x->sample.origin.reason = WALK_BAD_SLOT;
  add(x);
  x->sample.unknown = true;
  x->sample.origin.reason = WALK_NO_STATE;
  add(x);
  x->sample = (engine_sample_t){.origin = x->sample.origin, .frames = x->frames, .frame_count = 1};
  x->sample.origin.reason = WALK_OK;
  x->frames[0].mark++;
  add(x);
  profile_t *p = finish(x);
  assert_non_null(p);
  assert_int_equal(total(p, 0), 7);
  assert_int_equal(total(p, 1), 7 * 10000000);
  assert_int_equal(p->losses[LOSS_TRUNCATED], 1);
  assert_int_equal(p->losses[LOSS_UNATTRIBUTED], 3);
  assert_int_equal(p->losses[LOSS_GONE], 1);
  assert_int_equal(p->losses[LOSS_OVERFLOW], 0);
  bool outside = false, unreadable = false, known = false;
  for (size_t i = 0; i < p->sample_count; i++) {
    outside |= strcmp(leaf(p, i), "[outside Lua]") == 0 && p->samples[i].values[0] == 2;
    unreadable |= strcmp(leaf(p, i), "[unreadable stack]") == 0;
    known |= strcmp(leaf(p, i), "app.lua:1001") == 0 && p->samples[i].values[0] == 2;
  }
  assert_true(outside && unreadable && known);
  bool told = false;
  for (size_t i = 0; i < p->comment_count; i++)
    told |= strcmp(profile_text(p, p->comments[i]).data,
                   "unattributed: no state 1, bad slot 1, not looked into yet 1") == 0;
  assert_true(told);
  profile_free(p);
}

static size_t resident_bytes(void) {
  FILE *file = fopen("/proc/self/statm", "r");
  unsigned long pages = 0, resident = 0;
  assert_int_equal(fscanf(file, "%lu %lu", &pages, &resident), 2);
  fclose(file);
  return resident * (size_t)sysconf(_SC_PAGESIZE);
}

/* Stacks that are never the same: what finds no room is counted, nothing else is lost. */
static void memory_is_bounded(void **state) {
  fixture_t *x = *state;
  random_t random = {1};
  x->sample.frame_count = DEPTH;
  for (int i = 0; i < MANY; i++) {
    for (uint32_t k = 0; k < DEPTH; k++)
      set_frame(x, k, (uint32_t)(random_next(&random) % FUNCTIONS), (uint32_t)(random_next(&random) % CODE));
    x->sample.origin.tid = 1 + i % 5000; /* and threads without number */
    add(x);
  }
  assert_true(resident_bytes() < most_bytes || SANITIZED_ADDRESS); /* which keeps more */
  profile_t *p = finish(x);
  assert_non_null(p);
  assert_true(p->losses[LOSS_OVERFLOW] > 0);
  assert_int_equal(total(p, 0), MANY);
  int64_t overflown = 0;
  for (size_t i = 0; i < p->sample_count; i++)
    if (strcmp(leaf(p, i), "[overflow]") == 0) overflown += p->samples[i].values[0];
  assert_int_equal(overflown, p->losses[LOSS_OVERFLOW]);
  profile_free(p);
}

/* Each window has what came since the last, and names that are known stay so when the process cannot be read any more. */
static void windows_follow_each_other(void **state) {
  fixture_t *x = *state;
  recorder_counts_t counts;
  set_frame(x, 0, 1, 5);
  x->sample.frame_count = 1;
  add(x);
  add(x);
  profile_t *first = recording_window(x->recording);
  assert_non_null(first);
  assert_int_equal(total(first, 0), 2);
  recording_take(x->recording, &x->sample, NULL, NULL);
  x->sample.origin.reason = WALK_NO_STATE;
  add(x);
  profile_t *second = recording_window(x->recording), *third = recording_window(x->recording);
  assert_non_null(second);
  assert_non_null(third);
  assert_int_equal(total(second, 0), 2);
  bool known = false, outside = false;
  for (size_t i = 0; i < second->sample_count; i++) {
    known |= strcmp(leaf(second, i), "app.lua:1001") == 0;
    outside |= strcmp(leaf(second, i), "[outside Lua]") == 0;
  }
  assert_true(known && outside);
  assert_int_equal(total(third, 0), 0);
  recording_counts(x->recording, &counts); /* which go on */
  assert_int_equal(counts.samples, 4);
  assert_int_equal(counts.unattributed, 1);
  assert_int_equal(counts.gone, 0);
  profile_free(first);
  profile_free(second);
  profile_free(third);
}

/* Where a recording would have been full long since, windows never are. */
static void windows_are_never_full(void **state) {
  fixture_t *x = *state;
  random_t random = {1};
  int64_t seen = 0;
  x->sample.frame_count = DEPTH;
  for (int i = 1; i <= IN_WINDOWS; i++) {
    for (uint32_t k = 0; k < DEPTH; k++)
      set_frame(x, k, (uint32_t)(random_next(&random) % FUNCTIONS), (uint32_t)(random_next(&random) % CODE));
    x->sample.origin.tid = 1 + i; /* label sets stay from window to window, until there are too many */
    add(x);
    if (i % 1000 != 0) continue;
    profile_t *window = recording_window(x->recording);
    assert_non_null(window);
    seen += total(window, 0);
    profile_free(window);
  }
  recorder_counts_t counts;
  recording_counts(x->recording, &counts);
  assert_int_equal(seen, IN_WINDOWS);
  assert_int_equal(counts.overflow, 0);
  assert_true(resident_bytes() < most_bytes || SANITIZED_ADDRESS);
}

static void what_threads_were_at(void **state) {
  fixture_t *x = *state;
  recorder_counts_t counts;
  static const struct {
    walk_vmstate_t vmstate;
    doing_t doing;
  } states[] = {{WALK_VM_INTERPRETER, DOING_INTERPRETER},
                {WALK_VM_TRACE, DOING_COMPILED},
                {WALK_VM_EXIT, DOING_COMPILED},
                {WALK_VM_C, DOING_C},
                {WALK_VM_GC, DOING_GC},
                {WALK_VM_COMPILER, DOING_COMPILER},
                {WALK_VM_NONE, DOING_INTERPRETER}};
  uint64_t expected[DOING_KINDS] = {0};
  set_frame(x, 0, 1, 5);
  x->sample.frame_count = 1;
  for (size_t i = 0; i < sizeof states / sizeof states[0]; i++) {
    x->sample.vmstate = states[i].vmstate;
    recording_count(x->recording, &x->sample, false);
    expected[states[i].doing] += 10000000;
  }
  recording_count(x->recording, &x->sample, true); /* of PUC Lua, as the next */
  expected[DOING_GC] += 10000000;
  x->frames[0].kind = WALK_C;
  recording_count(x->recording, &x->sample, false);
  expected[DOING_C] += 10000000;
  x->sample.origin.weight = 12345;
  x->sample.origin.flags = WALK_IN_KERNEL;
  recording_count(x->recording, &x->sample, false);
  expected[DOING_KERNEL] += 12345;
  x->sample.origin.flags = 0;
  x->sample.origin.reason = WALK_NO_STATE;
  recording_count(x->recording, &x->sample, false);
  expected[DOING_OUTSIDE] += 12345;
  recording_counts(x->recording, &counts);
  assert_int_equal(counts.samples, 11);
  assert_memory_equal(counts.doing, expected, sizeof expected);
}

/* A recording of three samples in two windows; false when memory was out. A name that needs more than there is, is the place instead. */
static bool record_a_little(fixture_t *x) {
  x->recording = recording_new(100);
  if (x->recording == NULL) return false;
  for (int i = 0; i < 2; i++) {
    set_frame(x, 0, 1, 5);
    set_frame(x, 1, 0, (uint32_t)i);
    x->sample.frame_count = 2;
    add(x);
  }
  profile_t *window = recording_window(x->recording);
  add(x);
  profile_t *p = finish(x);
  bool whole = p != NULL && total(p, 0) == 1 && window != NULL && total(window, 0) == 2;
  profile_free(window);
  profile_free(p);
  recording_free(x->recording);
  x->recording = NULL;
  return whole;
}

static void running_out_of_memory(void **state) {
  fixture_t *x = *state;
  recording_free(x->recording);
  for (int for_good = 0; for_good < 2; for_good++) {
    bool whole, failed = true;
    for (size_t n = 1; failed; n++) {
      failing_memory_start(n, for_good != 0);
      whole = record_a_little(x);
      failed = failing_memory_stop();
      assert_true(whole || failed);
    }
  }
}

#define RECORDING_TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
static const struct CMUnitTest tests[] = {
    RECORDING_TEST(samples_of_every_kind),     RECORDING_TEST(memory_is_bounded),
    RECORDING_TEST(windows_follow_each_other), RECORDING_TEST(windows_are_never_full),
    RECORDING_TEST(what_threads_were_at),      RECORDING_TEST(running_out_of_memory),
};

UNIT_MAIN(tests)
