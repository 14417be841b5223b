/* SPDX-License-Identifier: MIT */
/* Names out of bytecode, in VMs that were made up by every known layout of PUC Lua: which name is found, and that no memory, whatever is
 * in it, leads to a fault or to no end. */
#include "attach/caller_name.h"

#include "unit.h"

#include "invented_tables.h"

enum { MOVE, UPVALUE, JUMP, CALL, OPCODES };
enum { INSTRUCTIONS = 16, MOST_READS = 100000, STACK = 1 << 20 };

static const uint8_t opcodes[][OPCODES] = {
    {0, 4, 22, 28}, {0, 5, 23, 29}, {0, 5, 30, 36}, {0, 9, 56, 68}, {0, 9, 56, 68}};

typedef struct {
  invented_t vm;
  walk_t walk;
  uint64_t proto, code, locals;
  walk_frame_t called, caller;
} fixture_t;

static uint32_t encode(const fixture_t *x, int opcode, uint32_t a, uint32_t b) {
  uint8_t language = x->vm.layout->language;
  uint32_t op = opcodes[language - 51][opcode];
  return language >= 54 ? op | a << 7 | b << 16 : op | a << 6 | b << 23;
}

static uint32_t jump(const fixture_t *x, int32_t distance) {
  uint8_t language = x->vm.layout->language;
  uint32_t op = opcodes[language - 51][JUMP];
  return language >= 54 ? op | (uint32_t)(distance + 16777215) << 7
                        : op | (uint32_t)(distance + 131071) << 14;
}

static void write_code(fixture_t *x, uint32_t at, uint32_t instruction) {
  put(&x->vm, x->code + at * 4, instruction, 4);
}

/* As the walk would have marked it, at an instruction. */
static void mark(fixture_t *x, uint32_t at) {
  walk_proto_t proto;
  assert_true(walk_proto(&x->walk, x->proto, WALK_GUESS, &proto));
  x->caller = (walk_frame_t){.kind = WALK_LUA,
                             .proto = x->proto,
                             .mark = walk_mark(&x->walk, &proto),
                             .pc = x->code + at * 4,
                             .slot = STACK,
                             .shift = 1};
  x->called = (walk_frame_t){.kind = WALK_LUA,
                             .proto = x->proto,
                             .mark = x->caller.mark,
                             .pc = x->code,
                             .slot = STACK + 2 * 16,
                             .shift = WALK_NO_SHIFT};
}

/* A function with a local variable "work" in register 0 and an upvalue "upper", which calls register 1 at its third instruction. */
static void set_up(fixture_t *x, const layout_t *layout) {
  const layout_puc_t *l = &layout->puc;
  invented_t *vm = &x->vm;
  memset(x, 0, sizeof *x);
  invent(vm, layout);
  x->walk.layout = layout;
  x->walk.memory = &vm->memory;
  new_lua_function(vm, &x->proto, 3);
  uint64_t upvalues = room(vm, 64), name = new_string(vm, "upper");
  x->code = room(vm, INSTRUCTIONS * 4);
  x->locals = room(vm, 64);
  put(vm, x->proto + l->proto_source, new_string(vm, "=nowhere"), 8);
  put(vm, x->proto + l->proto_code, x->code, 8);
  put(vm, x->proto + l->proto_code_count, INSTRUCTIONS, 4);
  put(vm, x->proto + l->proto_locals, x->locals, 8);
  put(vm, x->proto + l->proto_local_count, 1, 4);
  put(vm, x->locals + l->local_name, new_string(vm, "work"), 8);
  put(vm, x->locals + l->local_end, INSTRUCTIONS, 4);
  put(vm, x->proto + l->proto_upvalues, upvalues, 8);
  put(vm, x->proto + l->proto_upvalue_count, 1, 4);
  put(vm, upvalues + (l->upvalue_name != LAYOUT_ABSENT ? l->upvalue_name : 0), name, 8);
  for (uint32_t i = 0; i < INSTRUCTIONS; i++) write_code(x, i, encode(x, MOVE, 9, 0));
  write_code(x, 1, encode(x, MOVE, 1, 0));
  write_code(x, 2, encode(x, CALL, 1, 1));
  mark(x, 2);
}

typedef void each_t(fixture_t *x);

static void with_every_layout(each_t *each) {
  static fixture_t x;
  const layout_t *layout;
  for (size_t i = 0; (layout = layout_known(i)) != NULL; i++) {
    if (layout->family != LAYOUT_PUC) continue;
    set_up(&x, layout);
    each(&x);
    free(x.vm.bytes);
  }
}

static void expect(fixture_t *x, const char *name) {
  char found[CALLER_NAME] = "";
  size_t len = caller_name(&x->walk, &x->called, &x->caller, found);
  assert_int_equal(len, strlen(name));
  if (len > 0) assert_string_equal(found, name);
}

/* -- which name ------------------------------------------------------------------------------------------------------- */

static void find_names(fixture_t *x) {
  expect(x, "work");
  write_code(x, 1, encode(x, UPVALUE, 1, 0));
  expect(x, "upper");
  write_code(x, 1, encode(x, UPVALUE, 1, 1)); /* there is no such upvalue */
  expect(x, "");
  write_code(x, 1, encode(x, MOVE, 2, 0)); /* nothing sets the register */
  expect(x, "");
  x->caller.pc = x->code + 1 * 4; /* no call */
  expect(x, "");
}
static void a_call_has_the_name_of_what_it_calls(void **state) {
  (void)state;
  with_every_layout(find_names);
}

static void jump_over(fixture_t *x) {
  write_code(x, 0, jump(x, 1));
  expect(x, "");
  write_code(x, 0, jump(x, 0));
  expect(x, "work");
}
static void what_may_be_jumped_over_is_not_certain(void **state) {
  (void)state;
  with_every_layout(jump_over);
}

static void misplace(fixture_t *x) {
  walk_frame_t whole = x->called;
  bool is_54 = x->vm.layout->language >= 54;
  x->called.slot += 16; /* a finalizer, a hook, or what is left of a call before */
  expect(x, "");
  x->called.slot = 0; /* not known */
  expect(x, "");
  x->called = whole;
  x->called.pc = x->code - 4; /* it has run nothing yet */
  expect(x, "");
  x->called.pc = x->code + 4 * INSTRUCTIONS; /* another function's */
  expect(x, "");
  x->called = whole;
  x->called.tail = true;
  expect(x, "");
  x->called = whole;
  expect(x, "work");
  x->caller.shift =
      is_54 ? WALK_NO_SHIFT : 4; /* a vararg function, with its registers behind its arguments */
  if (!is_54) x->called.slot += 3 * 16;
  expect(x, "work");
  x->caller.shift = WALK_NO_SHIFT;
  expect(x, is_54 ? "work" : "");
}
static void what_lies_elsewhere_was_not_called_there(void **state) {
  (void)state;
  with_every_layout(misplace);
}

/* From 5.4 on what is called may have been moved past its arguments: so many of them that it has no names for, and its parameters. */
static void move_past_arguments(fixture_t *x) {
  uint8_t language = x->vm.layout->language;
  if (language < 54) return;
  put(&x->vm, x->proto + x->vm.layout->puc.proto_parameters, 2, 1);
  x->called.slot += (3 + 2 + 1) * 16;
  x->called.shift = 3;
  expect(x, ""); /* it is no vararg function */
  write_code(x, 0, language == 54 ? 81 : 83);
  expect(x, "work");
  x->called.shift = 4;
  expect(x, "");
  x->called.shift = WALK_NO_SHIFT; /* its record may be in the making */
  expect(x, "");
  x->called.slot -= (3 + 2 + 1) * 16; /* it is not moved yet */
  expect(x, "work");
}
static void vararg_functions_are_moved(void **state) {
  (void)state;
  with_every_layout(move_past_arguments);
}

static void replace_proto(invented_t *vm) {
  fixture_t *x = (fixture_t *)vm;
  put(vm, x->proto + vm->layout->puc.proto_line, 4, 4);
}
static void replace(fixture_t *x) {
  x->vm.on_forget = replace_proto;
  expect(x, ""); /* while it was read */
  x->vm.on_forget = NULL;
  expect(x, ""); /* before */
  mark(x, 2);
  expect(x, "work");
}
static void a_caller_that_is_another_by_now_names_nothing(void **state) {
  (void)state;
  with_every_layout(replace);
}

static void blanks(fixture_t *x) {
  const char *const names[] = {"", "(for state)", "two words", "\33[31m",
                               "a_name_that_is_as_long_as_no_name_should_be_a_name_that_is_as_long"};
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
    put(&x->vm, x->locals + x->vm.layout->puc.local_name, new_string(&x->vm, names[i]), 8);
    expect(x, "");
  }
}
static void what_is_no_word_is_no_name(void **state) {
  (void)state;
  with_every_layout(blanks);
}

static void old_layouts_give_none(void **state) {
  static fixture_t x;
  (void)state;
  set_up(&x, layout_known(0));
  layout_t old = *x.vm.layout;
  x.walk.layout = &old;
  expect(&x, "work");
  old.puc.local_end = LAYOUT_ABSENT;
  expect(&x, "");
  free(x.vm.bytes);
}

/* -- hostile memory --------------------------------------------------------------------------------------------------- */

static uint32_t random_below(uint32_t n) {
  static uint64_t seed = 1;
  seed = seed * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(seed >> 33) % n;
}

static void damage(fixture_t *x) {
  char name[CALLER_NAME];
  uint8_t *whole = malloc(x->vm.used);
  memcpy(whole, x->vm.bytes, x->vm.used);
  for (int round = 0; round < 3000; round++) {
    for (uint32_t i = 0, count = 1 + random_below(12); i < count; i++) {
      uint32_t near = (uint32_t)(x->proto - INVENTED_BASE), at = near + random_below(x->vm.used - near - 8);
      uint64_t word = random_below(2) ? INVENTED_BASE + random_below(x->vm.used)
                                      : (uint64_t)random_below(UINT32_MAX) << random_below(33);
      memcpy(x->vm.bytes + at, &word, 1u << random_below(4));
    }
    walk_proto_t proto;
    if (walk_proto(&x->walk, x->proto, WALK_GUESS, &proto)) {
      x->caller.mark = x->called.mark = walk_mark(&x->walk, &proto);
      x->called.pc = proto.code;
      x->called.slot = STACK + 16 * (uint64_t)(1 + random_below(8));
      x->caller.pc = proto.code + 4 * (uint64_t)random_below(INSTRUCTIONS);
      x->vm.reads = 0;
      size_t len = caller_name(&x->walk, &x->called, &x->caller, name);
      assert_true(len < CALLER_NAME && (len == 0 || strlen(name) == len));
      assert_true(x->vm.reads < MOST_READS);
    }
    memcpy(x->vm.bytes, whole, x->vm.used);
  }
  free(whole);
}
static void damaged_memory_does_no_harm(void **state) {
  (void)state;
  with_every_layout(damage);
}

/* Numbers that are as large as they can be, over memory that is all there. */
static void enlarge(fixture_t *x) {
  const layout_puc_t *l = &x->vm.layout->puc;
  put(&x->vm, x->proto + l->proto_code, INVENTED_BASE, 8);
  put(&x->vm, x->proto + l->proto_code_count, 1 << 28, 4);
  put(&x->vm, x->proto + l->proto_local_count, UINT32_MAX, 4);
  put(&x->vm, x->proto + l->proto_locals, INVENTED_BASE, 8);
  x->code = INVENTED_BASE;
  for (uint32_t at = 100; at < 1 << 18; at += 4999) {
    mark(x, at);
    x->vm.reads = 0;
    char name[CALLER_NAME];
    caller_name(&x->walk, &x->called, &x->caller, name);
    assert_true(x->vm.reads < MOST_READS);
  }
}
static void endless_functions_end(void **state) {
  (void)state;
  with_every_layout(enlarge);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_call_has_the_name_of_what_it_calls),
    cmocka_unit_test(what_may_be_jumped_over_is_not_certain),
    cmocka_unit_test(what_lies_elsewhere_was_not_called_there),
    cmocka_unit_test(vararg_functions_are_moved),
    cmocka_unit_test(a_caller_that_is_another_by_now_names_nothing),
    cmocka_unit_test(what_is_no_word_is_no_name),
    cmocka_unit_test(old_layouts_give_none),
    cmocka_unit_test(damaged_memory_does_no_harm),
    cmocka_unit_test(endless_functions_end),
};
UNIT_MAIN(tests)
