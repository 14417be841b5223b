/* SPDX-License-Identifier: MIT */
/* Names out of LuaJIT's bytecode, in VMs that were made up by every known layout of it: a name is there when it leads to the function that
 * runs, and to no other; and no memory, whatever is in it, leads to a fault or to no end. */
#include "attach/caller_name.h"

#include "unit.h"

#include "invented_tables.h"

enum { MOVE = 18, STRING = 39, UPVALUE = 45, CLOSURE = 51, GLOBAL = 54, GET = 56, FIELD = 57, CALL = 66 };
enum { ADD = 32, ITERATE = 69, FUNCTION = 89, NOTHING = 17 };
enum { CALL_AT = 4, INSTRUCTIONS = 16, MOST_READS = 200000 };
/* places in the prototype's own memory, behind its code; and registers */
enum { UPVALUE_NAMES = 176, LOCAL_NAMES = 200, PROTO_BYTES = 256 };
enum { LOCAL, CALLED = 4 };

typedef struct {
  invented_t vm; /* first */
  walk_t walk;
  uint64_t proto, called_proto, other_proto, code, stack, upvalue, constants[2];
  value_t function, other;
  walk_frame_t called, caller;
} fixture_t;

static uint32_t ad(uint32_t op, uint32_t a, uint32_t d) {
  return op | a << 8 | d << 16;
}
static uint32_t abc(uint32_t op, uint32_t a, uint32_t b, uint32_t c) {
  return op | a << 8 | c << 16 | b << 24;
}
static void write_code(fixture_t *x, uint32_t at, uint32_t instruction) {
  put(&x->vm, x->code + at * 4, instruction, 4);
}
static const layout_luajit_t *luajit(const fixture_t *x) {
  return &x->vm.layout->luajit;
}

static walk_frame_t frame_of(fixture_t *x, uint64_t function, uint64_t proto) {
  walk_proto_t read;
  assert_true(walk_proto(&x->walk, proto, WALK_GUESS, &read));
  return (walk_frame_t){
      .kind = WALK_LUA, .function = function, .proto = proto, .mark = walk_mark(&x->walk, &read)};
}

static void put_frame(fixture_t *x, uint64_t base, uint64_t function, uint64_t link) {
  if (luajit(x)->pointer == 4) {
    put(&x->vm, base - 8, function | link << 32, 8);
    return;
  }
  put_value(&x->vm, base - 16, (value_t){VALUE_FUNCTION, function});
  put(&x->vm, base - 8, link, 8);
}

static void put_register(fixture_t *x, uint32_t reg, value_t value) {
  put_value(&x->vm, x->caller.slot + reg * 8, value);
}

/* The constants are "name" and the prototype of the function that runs. */
static void put_constants(fixture_t *x) {
  const layout_luajit_t *l = luajit(x);
  uint64_t k = room(&x->vm, 64) + 64;
  x->constants[0] = new_string(&x->vm, "name");
  x->constants[1] = x->called_proto;
  for (uint32_t i = 0; i < 2; i++) put(&x->vm, k - (i + 1) * l->pointer, x->constants[i], l->pointer);
  put(&x->vm, x->proto + l->proto_constants, k, l->pointer);
  put(&x->vm, x->proto + l->proto_const_count, 2, 4);
}

/* A function with a local variable "work" in register 0, of all its instructions, and an upvalue "upper". */
static void put_variables(fixture_t *x, uint64_t caller) {
  static const char upvalue_names[] = "upper", local_names[] = "work\0\0\20";
  const layout_luajit_t *l = luajit(x);
  uint8_t *bytes = x->vm.bytes + (x->proto - INVENTED_BASE);
  memcpy(bytes + UPVALUE_NAMES, upvalue_names, sizeof upvalue_names);
  memcpy(bytes + LOCAL_NAMES, local_names, sizeof local_names);
  put(&x->vm, x->proto + l->proto_bytes, PROTO_BYTES, 4);
  put(&x->vm, x->proto + l->proto_upvalues, x->proto + UPVALUE_NAMES, l->pointer);
  put(&x->vm, x->proto + l->proto_locals, x->proto + LOCAL_NAMES, l->pointer);
  put(&x->vm, x->proto + l->proto_upvalue_count, 1, 1);
  uint64_t upvalue = room(&x->vm, 64);
  x->upvalue = room(&x->vm, 16);
  put(&x->vm, upvalue + l->state_tag, 5, 1);
  put(&x->vm, upvalue + l->upvalue_value, x->upvalue, l->pointer);
  put(&x->vm, caller + l->function_upvalues, upvalue, l->pointer);
  put(&x->vm, caller + l->function_globals, x->vm.globals, l->pointer);
}

/* It has called register 4, which it set from register 0. */
static void set_up(fixture_t *x, const layout_t *layout) {
  memset(x, 0, sizeof *x);
  invent(&x->vm, layout);
  x->walk.layout = layout;
  x->walk.memory = &x->vm.memory;
  value_t caller = new_lua_function(&x->vm, &x->proto, 3);
  x->function = new_lua_function(&x->vm, &x->called_proto, 5);
  x->other = new_lua_function(&x->vm, &x->other_proto, 7);
  x->code = x->proto + luajit(x)->proto_size;
  put(&x->vm, x->proto + luajit(x)->proto_code_count, INSTRUCTIONS, 4);
  put_constants(x);
  put_variables(x, caller.at);
  for (uint32_t i = 0; i < INSTRUCTIONS; i++) write_code(x, i, ad(NOTHING, 9, 0));
  write_code(x, 0, ad(FUNCTION, 9, 0));
  write_code(x, CALL_AT - 1, ad(MOVE, CALLED, LOCAL));
  write_code(x, CALL_AT, abc(CALL, CALLED, 1, 1));
  x->stack = room(&x->vm, 1024);
  x->caller = frame_of(x, caller.at, x->proto);
  x->called = frame_of(x, x->function.at, x->called_proto);
  x->caller.pc = x->code + CALL_AT * 4;
  x->caller.slot = x->stack + 32;
  x->called.slot = x->caller.slot + (CALLED + luajit(x)->pointer / 4u) * 8;
  put_frame(x, x->caller.slot, x->caller.function, 0);
  put_frame(x, x->called.slot, x->called.function, x->caller.pc + 4);
  put_register(x, LOCAL, x->function);
}

typedef void each_t(fixture_t *x);

static void with_every_layout(each_t *each) {
  static fixture_t x;
  const layout_t *layout;
  for (size_t i = 0; (layout = layout_known(i)) != NULL; i++) {
    if (layout->family != LAYOUT_LUAJIT) continue;
    set_up(&x, layout);
    each(&x);
    free(x.vm.bytes);
  }
}

static void expect(fixture_t *x, const char *name) {
  char found[CALLER_NAME] = "";
  size_t len = caller_name(&x->walk, &x->called, &x->caller, found);
  if (len != strlen(name) || (len > 0 && strcmp(found, name) != 0))
    fail_msg("%s: '%.*s' is not '%s'", x->vm.layout->name, (int)len, found, name);
}

/* -- which name ------------------------------------------------------------------------------------------------------- */

static void find_locals(fixture_t *x) {
  expect(x, "work");
  put_register(x, LOCAL, x->other); /* that has called by a tail call what runs */
  expect(x, "");
  write_code(x, 1, ad(CLOSURE, LOCAL, 1)); /* the caller says itself that the variable is this function */
  expect(x, "work");
  put_frame(x, x->called.slot, x->called.function, x->caller.pc + 8); /* wherever the frames are by now */
  expect(x, "work");
  write_code(x, 1, ad(NOTHING, LOCAL, 1));
  put_register(x, LOCAL, x->function);
  expect(x, ""); /* registers are another call's */
  put_frame(x, x->called.slot, x->called.function, x->caller.pc + 4);
  expect(x, "work");
  put_frame(x, x->caller.slot, x->other.at, 0);
  expect(x, "");
}
static void a_local_variable_that_holds_the_function(void **state) {
  (void)state;
  with_every_layout(find_locals);
}

static void find_upvalues(fixture_t *x) {
  const layout_luajit_t *l = luajit(x);
  write_code(x, CALL_AT - 1, ad(UPVALUE, CALLED, 0));
  put_value(&x->vm, x->upvalue, x->function);
  expect(x, "upper");
  put_frame(x, x->called.slot, x->other.at, 0);
  expect(x, "upper"); /* without the frames */
  put_value(&x->vm, x->upvalue, x->other);
  expect(x, "");
  put_value(&x->vm, x->upvalue, x->function);
  write_code(x, CALL_AT - 1, ad(UPVALUE, CALLED, 1)); /* there is no such upvalue */
  expect(x, "");
  write_code(x, CALL_AT - 1, ad(UPVALUE, CALLED, 0));
  put(&x->vm, x->proto + l->proto_upvalues, 0, l->pointer); /* without debug information */
  expect(x, "");
}
static void an_upvalue_that_holds_the_function(void **state) {
  (void)state;
  with_every_layout(find_upvalues);
}

/* An entry whose key is the caller's constant, as strings are the same object everywhere. */
static void set_name(fixture_t *x, value_t table, value_t value) {
  const layout_luajit_t *l = luajit(x);
  uint64_t node = node_at(&x->vm, table, 1);
  put_value(&x->vm, node + l->node_value, value);
  put_value(&x->vm, node + l->node_key, (value_t){VALUE_STRING, x->constants[0]});
}

static void find_globals(fixture_t *x) {
  write_code(x, CALL_AT - 1, ad(GLOBAL, CALLED, 0));
  expect(x, "");
  set_name(x, in_globals(&x->vm), x->function);
  expect(x, "name");
  set_name(x, in_globals(&x->vm), x->other);
  expect(x, "");
}
static void a_global_that_holds_the_function(void **state) {
  (void)state;
  with_every_layout(find_globals);
}

static void find_fields(fixture_t *x) {
  value_t object = new_table(&x->vm, 1), class = new_table(&x->vm, 2), metatable = new_table(&x->vm, 1);
  write_code(x, CALL_AT - 1, abc(FIELD, CALLED, LOCAL, 0));
  put_register(x, LOCAL, object);
  expect(x, "");
  set_name(x, class, x->function);
  set(&x->vm, metatable, 0, "__index", class);
  set_metatable(&x->vm, object, metatable);
  expect(x, "name");
  set_name(x, object, x->other); /* which comes first */
  expect(x, "");
  write_code(x, CALL_AT - 2, ad(STRING, CALLED, 0)); /* a key in a register */
  write_code(x, CALL_AT - 1, abc(GET, CALLED, LOCAL, CALLED));
  set_name(x, object, x->function);
  expect(x, "name");
  write_code(x, CALL_AT - 2, ad(UPVALUE, CALLED, 0)); /* of an upvalue, whose register is used again */
  write_code(x, CALL_AT - 1, abc(FIELD, CALLED, CALLED, 0));
  put_value(&x->vm, x->upvalue, object);
  expect(x, "name");
  set_metatable(&x->vm, metatable, metatable);
  set(&x->vm, metatable, 0, "__index", metatable); /* no end */
  put_value(&x->vm, x->upvalue, metatable);
  expect(x, "");
}
static void a_field_that_holds_the_function(void **state) {
  (void)state;
  with_every_layout(find_fields);
}

static void find_events(fixture_t *x) {
  value_t object = new_table(&x->vm, 1), metatable = new_table(&x->vm, 2);
  set(&x->vm, metatable, 0, "__call", x->function);
  set(&x->vm, metatable, 1, "__add", x->function);
  set_metatable(&x->vm, object, metatable);
  put_register(x, LOCAL, object);
  expect(x, "work");
  write_code(x, CALL_AT, abc(ADD, 9, 3, LOCAL));
  expect(x, "__add");
  set(&x->vm, metatable, 1, "__sub", x->function);
  expect(x, "");
  write_code(x, CALL_AT, abc(ITERATE, 3, 2, 2));
  expect(x, "for iterator"); /* the table, which can be called */
  put_register(x, LOCAL, x->other);
  expect(x, "");
  put_register(x, LOCAL, x->function);
  expect(x, "for iterator");
}
static void metamethods_and_iterators(void **state) {
  (void)state;
  with_every_layout(find_events);
}

static void change(invented_t *vm) {
  fixture_t *x = (fixture_t *)vm;
  put_register(x, LOCAL, x->other);
}
static void replace_proto(invented_t *vm) {
  fixture_t *x = (fixture_t *)vm;
  put(vm, x->proto + vm->layout->luajit.proto_line, 4, 4);
}
static void look_twice(fixture_t *x) {
  x->vm.on_forget = change;
  expect(x, "");
  put_register(x, LOCAL, x->function);
  x->vm.on_forget = NULL;
  expect(x, "work");
  x->vm.on_forget = replace_proto;
  expect(x, "");
}
static void what_changes_meanwhile_has_no_name(void **state) {
  (void)state;
  with_every_layout(look_twice);
}

static void old_layouts_give_none(void **state) {
  static fixture_t x;
  const layout_t *layout;
  size_t i = 0;
  (void)state;
  while ((layout = layout_known(i)) != NULL && layout->family != LAYOUT_LUAJIT) i++;
  set_up(&x, layout);
  layout_t old = *layout;
  x.walk.layout = &old;
  expect(&x, "work");
  old.luajit.proto_locals = LAYOUT_ABSENT;
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
  static const uint8_t ops[] = {MOVE, UPVALUE, CLOSURE, GLOBAL, GET, FIELD, CALL, STRING, ITERATE, ADD};
  char name[CALLER_NAME];
  value_t table = new_table(&x->vm, 2);
  set_metatable(&x->vm, table, table);
  put_value(&x->vm, x->upvalue, table);
  uint8_t *whole = malloc(x->vm.used);
  memcpy(whole, x->vm.bytes, x->vm.used);
  for (int round = 0; round < 3000; round++) {
    uint32_t near = (uint32_t)(x->proto - INVENTED_BASE);
    for (uint32_t i = 1; i < INSTRUCTIONS; i++)
      write_code(x, i, abc(ops[random_below(sizeof ops)], random_below(6), random_below(6), random_below(3)));
    for (uint32_t i = 0, count = random_below(12); i < count; i++) {
      uint64_t word = random_below(2) ? INVENTED_BASE + random_below(x->vm.used)
                                      : (uint64_t)random_below(UINT32_MAX) << random_below(33);
      memcpy(x->vm.bytes + near + random_below(x->vm.used - near - 8), &word, 1u << random_below(4));
    }
    walk_proto_t proto;
    if (walk_proto(&x->walk, x->proto, WALK_GUESS, &proto)) {
      walk_frame_t caller = x->caller;
      caller.mark = walk_mark(&x->walk, &proto);
      caller.pc = proto.code + 4 * (uint64_t)random_below(INSTRUCTIONS);
      x->vm.reads = 0;
      size_t len = caller_name(&x->walk, &x->called, &caller, name);
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

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_local_variable_that_holds_the_function),
    cmocka_unit_test(an_upvalue_that_holds_the_function),
    cmocka_unit_test(a_global_that_holds_the_function),
    cmocka_unit_test(a_field_that_holds_the_function),
    cmocka_unit_test(metamethods_and_iterators),
    cmocka_unit_test(what_changes_meanwhile_has_no_name),
    cmocka_unit_test(old_layouts_give_none),
    cmocka_unit_test(damaged_memory_does_no_harm),
};
UNIT_MAIN(tests)
