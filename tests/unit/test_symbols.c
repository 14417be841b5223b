/* SPDX-License-Identifier: MIT */
/* Names for frames, on prototypes made up in this very process: functions that die, addresses that are used again, caches and profiles
 * that are full. */
#include <stdlib.h>
#include <unistd.h>

#include "attach/symbols.h"
#include "invented_proto.h"
#include "unit.h"

enum { SPACE = 7 };

typedef struct {
  const layout_t *layout;
  profile_t *profile;
  symbols_t *symbols;
  target_t target;
  runtimes_t runtimes;
} fixture_t;

static int set_up(void **state) {
  fixture_t *x = calloc(1, sizeof *x);
  x->layout = invented_layout();
  assert_non_null(x->layout);
  x->profile = profile_new();
  x->symbols = symbols_new(x->profile);
  x->target.process.pid = getpid();
  x->runtimes.count = 1;
  x->runtimes.runtimes[0].layout = x->layout;
  *state = x;
  return 0;
}

static int tear_down(void **state) {
  fixture_t *x = *state;
  symbols_free(x->symbols);
  profile_free(x->profile);
  free(x);
  return 0;
}

/* The frame as a walk would have made it now. */
static walk_frame_t frame_of(const fixture_t *x, const function_t *f, int instruction) {
  return (walk_frame_t){.kind = WALK_LUA,
                        .proto = address(f->proto),
                        .mark = mark_of(x->layout, f),
                        .pc = address(&f->code[instruction])};
}

static uint32_t look(fixture_t *x, const walk_frame_t *frame, uint64_t space, bool *gone) {
  *gone = false;
  symbols_aim(x->symbols, space, &x->target, &x->runtimes);
  return symbols_frame(x->symbols, frame, NULL, 0, gone);
}

static void is_frame(const fixture_t *x, uint32_t frame, const char *name, const char *file, int64_t line) {
  assert_int_not_equal(frame, PROFILE_NONE);
  const profile_function_t *function = &x->profile->functions[x->profile->frames[frame].function];
  assert_string_equal(profile_text(x->profile, function->name).data, name);
  assert_string_equal(profile_text(x->profile, function->file).data, file);
  assert_int_equal(x->profile->frames[frame].line, line);
}

static const char text[] = "local function first()\nend\nlocal function second()\nend";
static const char file[] = "[string \"local function first()...\"]";

static void a_function_is_read_at_first_sight(void **state) {
  fixture_t *x = *state;
  static function_t f;
  bool gone;
  define(x->layout, &f, text, 3);
  walk_frame_t frame = frame_of(x, &f, 5);
  is_frame(x, look(x, &frame, SPACE, &gone), "second", file, 8);
  assert_false(gone);
  frame.pc = 0; /* unknown: the line of its definition */
  is_frame(x, look(x, &frame, SPACE, &gone), "second", file, 3);
}

static void functions_of_files_keep_their_place(void **state) {
  fixture_t *x = *state;
  static function_t f;
  bool gone;
  define(x->layout, &f, "@nowhere/app.lua", 12);
  walk_frame_t frame = frame_of(x, &f, 0);
  uint32_t made = look(x, &frame, SPACE, &gone);
  is_frame(x, made, "nowhere/app.lua:12", "nowhere/app.lua", 12);
  define(x->layout, &f, "@nowhere/app.lua", 0);
  frame = frame_of(x, &f, 4);
  is_frame(x, look(x, &frame, SPACE, &gone), "main chunk", "nowhere/app.lua", 5);
}

/* What stands there now is not what stood there: its name is not given to the sample. */
static void a_function_that_died_unseen_is_gone(void **state) {
  fixture_t *x = *state;
  static function_t f;
  bool gone;
  define(x->layout, &f, text, 1);
  walk_frame_t frame = frame_of(x, &f, 5);
  define(x->layout, &f, text, 3); /* the address is used again */
  is_frame(x, look(x, &frame, SPACE, &gone), "[gone]", "", 0);
  assert_true(gone);
  walk_frame_t next = frame_of(x, &f, 5);
  is_frame(x, look(x, &next, SPACE, &gone), "second", file, 8);
  assert_false(gone);
  memset(&f, 0, sizeof f); /* nothing is there */
  next.pc++;
  next.mark++;
  is_frame(x, look(x, &next, SPACE, &gone), "[gone]", "", 0);
  assert_true(gone);
}

static void a_function_that_was_seen_keeps_its_name(void **state) {
  fixture_t *x = *state;
  static function_t f;
  bool gone;
  define(x->layout, &f, text, 1);
  walk_frame_t frame = frame_of(x, &f, 5), other = frame_of(x, &f, 6);
  look(x, &frame, SPACE, &gone);
  memset(&f, 0, sizeof f);
  is_frame(x, look(x, &frame, SPACE, &gone), "first", file, 6);
  assert_false(gone);
  is_frame(x, look(x, &other, SPACE, &gone), "first", file, 0); /* the line cannot be told any more */
  assert_false(gone);
  symbols_forget_target(x->symbols, &x->target);
  gone = false;
  symbols_aim(x->symbols, SPACE, NULL, NULL); /* it has ended */
  is_frame(x, symbols_frame(x->symbols, &frame, NULL, 0, &gone), "first", file, 6);
  assert_false(gone);
}

/* Freed, but not overwritten yet, while what it leads to is another's. */
static void a_function_whose_lines_are_not_its_own(void **state) {
  fixture_t *x = *state;
  static function_t f;
  bool gone;
  define(x->layout, &f, text, 3);
  walk_frame_t frame = frame_of(x, &f, 5);
  f.lines[5] = 2;
  is_frame(x, look(x, &frame, SPACE, &gone), "[gone]", "", 0);
  assert_true(gone);
}

static void address_spaces_are_apart(void **state) {
  fixture_t *x = *state;
  static function_t f;
  bool gone;
  define(x->layout, &f, text, 1);
  walk_frame_t frame = frame_of(x, &f, 5);
  look(x, &frame, SPACE, &gone);
  memset(&f, 0, sizeof f);
  is_frame(x, look(x, &frame, SPACE + 1, &gone), "[gone]", "", 0);
  is_frame(x, look(x, &frame, SPACE, &gone), "first", file, 6);
}

/* More than is kept: all is forgotten, and read again. */
static void more_frames_than_are_kept(void **state) {
  fixture_t *x = *state;
  static function_t f;
  bool gone;
  define(x->layout, &f, text, 3);
  walk_frame_t frame = frame_of(x, &f, 5);
  for (uint64_t space = 1; space <= 120000; space++)
    if (x->profile->frames[look(x, &frame, space, &gone)].line != 8 || gone) fail();
  is_frame(x, look(x, &frame, 1, &gone), "second", file, 8);
  assert_true(x->profile->function_count <= 3);
}

static void a_profile_that_is_full(void **state) {
  fixture_t *x = *state;
  static function_t f;
  bool gone;
  define(x->layout, &f, text, 3);
  walk_frame_t seen = frame_of(x, &f, 5), unseen = frame_of(x, &f, 6);
  look(x, &seen, SPACE, &gone);
  x->profile->frozen = true;
  is_frame(x, look(x, &seen, SPACE, &gone), "second", file, 8);
  assert_int_equal(look(x, &unseen, SPACE, &gone), PROFILE_NONE);
  define(x->layout, &f, text, 1);
  unseen = frame_of(x, &f, 6);
  assert_int_equal(look(x, &unseen, SPACE, &gone), PROFILE_NONE);
  assert_true(profile_ok(x->profile));
  x->profile->frozen = false;
  is_frame(x, look(x, &unseen, SPACE, &gone), "first", file, 7);
}

/* Read while its thread stood still, asked for when it was gone. */
static void a_function_that_was_met_in_time(void **state) {
  fixture_t *x = *state;
  static function_t f;
  bool gone = false;
  define(x->layout, &f, text, 3);
  walk_frame_t frames[] = {frame_of(x, &f, 5), frame_of(x, &f, 6)};
  symbols_aim(x->symbols, SPACE, &x->target, &x->runtimes);
  symbols_meet(x->symbols, frames, 2, 0);
  define(x->layout, &f, "=other", 70);
  is_frame(x, look(x, &frames[0], SPACE, &gone), "second", file, 8);
  assert_false(gone);
  is_frame(x, look(x, &frames[1], SPACE, &gone), "second", file, 9);
  symbols_met(x->symbols);
  is_frame(x, look(x, &frames[1], SPACE, &gone), "second", file, 9);
  assert_false(gone);
}

#define SYMBOLS_TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
/* -- callers ------------------------------------------------------------------------------------------------------------ */

/* A function that calls its local variable "work", at its instruction 1. */
static void define_caller(const fixture_t *x, function_t *f) {
  static uint8_t name[BYTES], local[LAYOUT_LOCAL_BYTES];
  const layout_puc_t *l = &x->layout->puc;
  uint64_t string = address(name), locals = address(local);
  int32_t one = 1, end = CODE;
  define(x->layout, f, "=nowhere", 50);
  name[l->string_tag] = 4;
  name[l->string_short_length] = 4;
  put(name, l->string_bytes, "work", 4);
  put(local, l->local_name, &string, sizeof string);
  put(local, l->local_end, &end, sizeof end);
  put(f->proto, l->proto_locals, &locals, sizeof locals);
  put(f->proto, l->proto_local_count, &one, sizeof one);
  f->code[0] = 1 << 6;      /* MOVE 1 0 */
  f->code[1] = 36 | 1 << 6; /* CALL 1 */
}

/* As they lie when the instruction has called register 1. */
static void call_above(walk_frame_t *called, walk_frame_t *caller) {
  caller->slot = 1 << 20;
  caller->shift = 1;
  called->slot = caller->slot + 2 * 16;
}

static void a_caller_names_what_nothing_else_does(void **state) {
  fixture_t *x = *state;
  static function_t f, named, caller;
  bool gone = false;
  define(x->layout, &f, "=nowhere", 12);
  define(x->layout, &named, text, 3);
  define_caller(x, &caller);
  walk_frame_t frame = frame_of(x, &f, 1), other = frame_of(x, &f, 2), below = frame_of(x, &caller, 1),
               source = frame_of(x, &named, 1);
  symbols_aim(x->symbols, SPACE, &x->target, &x->runtimes);
  is_frame(x, symbols_frame(x->symbols, &source, &below, 0, &gone), "second", file, 4);
  /* by its place as long as no caller has a name for it, */
  is_frame(x, symbols_frame(x->symbols, &frame, NULL, 0, &gone), "nowhere:12", "nowhere", 13);
  call_above(&other, &below);
  other.tail = true; /* and the frame below is another's */
  is_frame(x, symbols_frame(x->symbols, &other, &below, 0, &gone), "nowhere:12", "nowhere", 14);
  walk_frame_t fourth = frame_of(x, &f, 4); /* or it was called by another instruction, */
  is_frame(x, symbols_frame(x->symbols, &fourth, &below, 0, &gone), "nowhere:12", "nowhere", 16);
  walk_frame_t third = frame_of(x, &f, 3);
  call_above(&third, &below);
  is_frame(x, symbols_frame(x->symbols, &third, &below, 0, &gone), "work", "nowhere", 15);
  /* and by that name ever since */
  is_frame(x, symbols_frame(x->symbols, &frame, NULL, 0, &gone), "work", "nowhere", 13);
  is_frame(x, symbols_frame(x->symbols, &other, &below, 0, &gone), "work", "nowhere", 14);
  assert_false(gone);
}

static void a_caller_is_asked_when_the_frame_is_met(void **state) {
  fixture_t *x = *state;
  static function_t f, caller;
  bool gone = false;
  define(x->layout, &f, "=nowhere", 12);
  define_caller(x, &caller);
  walk_frame_t frames[] = {frame_of(x, &f, 1), frame_of(x, &caller, 1)};
  call_above(&frames[0], &frames[1]);
  symbols_aim(x->symbols, SPACE, &x->target, &x->runtimes);
  symbols_meet(x->symbols, frames, 2, 0);
  memset(&caller, 0, sizeof caller); /* it is collected */
  is_frame(x, symbols_frame(x->symbols, &frames[0], &frames[1], 0, &gone), "work", "nowhere", 13);
  assert_false(gone);
}

static const struct CMUnitTest tests[] = {
    SYMBOLS_TEST(a_function_is_read_at_first_sight),
    SYMBOLS_TEST(functions_of_files_keep_their_place),
    SYMBOLS_TEST(a_function_that_died_unseen_is_gone),
    SYMBOLS_TEST(a_function_that_was_seen_keeps_its_name),
    SYMBOLS_TEST(a_function_that_was_met_in_time),
    SYMBOLS_TEST(a_function_whose_lines_are_not_its_own),
    SYMBOLS_TEST(address_spaces_are_apart),
    SYMBOLS_TEST(more_frames_than_are_kept),
    SYMBOLS_TEST(a_profile_that_is_full),
    SYMBOLS_TEST(a_caller_names_what_nothing_else_does),
    SYMBOLS_TEST(a_caller_is_asked_when_the_frame_is_met),
};

UNIT_MAIN(tests)
