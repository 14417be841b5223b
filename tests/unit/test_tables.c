/* SPDX-License-Identifier: MIT */
/* Names out of tables, in VMs that were made up by every known layout: which name is taken, and that no memory, whatever is in it, leads
 * to a fault or to no end. */
#include "attach/tables.h"

#include <time.h>

#include "unit.h"

#include "failing_memory.h"
#include "invented_tables.h"

static int64_t soon(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec + 2000000000;
}

static void read_names(tables_t *tables, invented_t *vm) {
  static walk_t walk;
  memset(&walk, 0, sizeof walk);
  walk.layout = vm->layout;
  walk.memory = &vm->memory;
  tables_read(tables, &walk, vm->global, soon());
}

static const char *name_of_code(const tables_t *tables, uint64_t code) {
  const walk_frame_t frame = {.kind = WALK_C, .code = code};
  return tables_name(tables, &frame);
}

static void expect(const tables_t *tables, uint64_t code, const char *name) {
  const char *found = name_of_code(tables, code);
  if (name == NULL)
    assert_null(found);
  else
    assert_string_equal(found != NULL ? found : "(none)", name);
}

typedef void each_t(invented_t *vm, tables_t *tables);

static void with_every_layout(each_t *each) {
  const layout_t *layout;
  for (size_t i = 0; (layout = layout_known(i)) != NULL; i++) {
    invented_t vm;
    tables_t *tables = tables_new();
    invent(&vm, layout);
    each(&vm, tables);
    tables_free(tables);
    free(vm.bytes);
  }
}

/* -- which name ----------------------------------------------------------------------------------------------------- */

static void take_best(invented_t *vm, tables_t *tables) {
  value_t f[8];
  for (uint32_t i = 0; i < 8; i++) f[i] = new_c_function(vm, INVENTED_CODE + 16 * i, 1);
  value_t module = new_table(vm, 2), inner = new_table(vm, 1), class = new_table(vm, 2),
          base = new_table(vm, 0), object = new_table(vm, 1), file = new_table(vm, 1),
          methods = new_table(vm, 0);
  set(vm, in_loaded(vm), 3, "_G", in_globals(vm));
  set(vm, in_loaded(vm), 5, "string", module);
  set(vm, module, 0, "find", f[0]);
  set(vm, module, 1, "inner", inner);
  set(vm, module, 2, "itself", module);
  set(vm, inner, 0, "get", f[1]);
  set(vm, inner, 1, "find", f[0]);
  set(vm, in_globals(vm), 0, "f", f[0]); /* shorter, but a global */
  set(vm, in_globals(vm), 1, "print", f[2]);
  set(vm, in_globals(vm), 2, "_G", in_globals(vm));
  set(vm, in_globals(vm), 3, "b", f[3]); /* as short as the next: the first by alphabet */
  set(vm, in_globals(vm), 4, "a", f[3]);
  set(vm, in_globals(vm), 5, "Class", class);
  set(vm, in_globals(vm), 6, "string", module);
  set(vm, class, 0, "__index", class);
  set(vm, class, 1, "method", f[4]);
  set(vm, base, 0, "inherited", f[5]);
  set(vm, object, 0, "__index", base);
  set_metatable(vm, class, object);
  set(vm, in_registry(vm), 1, "FILE*", file);
  set(vm, file, 0, "__index", methods);
  set(vm, methods, 0, "read", f[6]);
  set(vm, in_registry(vm), 2, "_PRELOAD", object);
  for (int again = 0; again < 2; again++) {
    read_names(tables, vm);
    expect(tables, INVENTED_CODE, "string.find");
    expect(tables, INVENTED_CODE + 16, "string.inner.get");
    expect(tables, INVENTED_CODE + 32, "print");
    expect(tables, INVENTED_CODE + 48, "a");
    expect(tables, INVENTED_CODE + 64, "Class.method");
    expect(tables, INVENTED_CODE + 80, "Class.inherited");
    expect(tables, INVENTED_CODE + 96, "file:read");
    expect(tables, INVENTED_CODE + 112, NULL);
    assert_int_equal(tables_count(tables), 7);
  }
}

static void the_best_name_is_taken(void **state) {
  (void)state;
  with_every_layout(take_best);
}

static void take_filled(invented_t *vm, tables_t *tables) {
  value_t filled = new_table(vm, 0), apart = new_table(vm, 0);
  set(vm, in_loaded(vm), 1, "Editor.shared", filled); /* a module that fills a global of that name */
  set(vm, in_globals(vm), 1, "Editor", filled);
  set(vm, in_globals(vm), 2, "Edit", filled);    /* shorter, but not what the module is called by */
  set(vm, in_loaded(vm), 2, "list.sort", apart); /* one that is a global by another name */
  set(vm, in_globals(vm), 3, "sort", apart);
  set(vm, filled, 0, "open", new_c_function(vm, INVENTED_CODE, 1));
  set(vm, apart, 0, "quick", new_c_function(vm, INVENTED_CODE + 16, 1));
  read_names(tables, vm);
  expect(tables, INVENTED_CODE, "Editor.open");
  expect(tables, INVENTED_CODE + 16, "list.sort.quick");
}

static void a_global_that_a_module_fills(void **state) {
  (void)state;
  with_every_layout(take_filled);
}

static void take_light(invented_t *vm, tables_t *tables) {
  if (is_jit(vm) || vm->layout->puc.tag_light == LAYOUT_ABSENT) return;
  set(vm, in_globals(vm), 7, "light", (value_t){VALUE_LIGHT_FUNCTION, INVENTED_CODE});
  read_names(tables, vm);
  expect(tables, INVENTED_CODE, "light");
}

static void light_functions_have_names(void **state) {
  (void)state;
  with_every_layout(take_light);
}

/* Another function at the same address has not the name of the first. */
static void take_prototypes(invented_t *vm, tables_t *tables) {
  uint64_t proto;
  static walk_t walk;
  walk_proto_t read;
  walk.layout = vm->layout;
  walk.memory = &vm->memory;
  set(vm, in_globals(vm), 0, "work", new_lua_function(vm, &proto, 12));
  read_names(tables, vm);
  assert_true(walk_proto(&walk, proto, WALK_GUESS, &read));
  walk_frame_t frame = {.kind = WALK_LUA, .proto = proto, .mark = walk_mark(&walk, &read)};
  assert_string_equal(tables_name(tables, &frame), "work");
  frame.mark++;
  assert_null(tables_name(tables, &frame));
  put(vm, proto + (is_jit(vm) ? vm->layout->luajit.proto_line : vm->layout->puc.proto_line), 99, 4);
  set(vm, in_globals(vm), 0, "another_one", new_c_function(vm, INVENTED_CODE, 1));
  assert_true(walk_proto(&walk, proto, WALK_GUESS, &read));
  frame.mark = walk_mark(&walk, &read);
  read_names(tables, vm);
  assert_null(tables_name(tables, &frame));
}

static void lua_functions_are_known_by_their_mark(void **state) {
  (void)state;
  with_every_layout(take_prototypes);
}

static void take_builtins(invented_t *vm, tables_t *tables) {
  value_t coroutine = new_table(vm, 0);
  walk_frame_t frame = {.kind = WALK_BUILTIN, .ffid = 36, .code = INVENTED_CODE};
  if (!is_jit(vm)) return;
  set(vm, in_loaded(vm), 0, "coroutine", coroutine);
  set(vm, coroutine, 0, "wrap", new_c_function(vm, INVENTED_CODE, 36));
  read_names(tables, vm);
  assert_string_equal(tables_name(tables, &frame), "coroutine.wrap");
  frame.ffid = 35; /* what it returns */
  assert_string_equal(tables_name(tables, &frame), "coroutine.wrap");
  frame.ffid = 37;
  assert_null(tables_name(tables, &frame));
  expect(tables, INVENTED_CODE, NULL); /* their code is shared */
}

static void builtins_are_known_by_their_number(void **state) {
  (void)state;
  with_every_layout(take_builtins);
}

static void wrap(invented_t *vm, tables_t *tables) {
  const layout_puc_t *l = &vm->layout->puc;
  static walk_t walk;
  uint64_t proto;
  (void)tables;
  walk.layout = vm->layout;
  walk.memory = &vm->memory;
  value_t wrapper = new_c_function(vm, INVENTED_CODE, 1), lua = new_lua_function(vm, &proto, 1);
  assert_false(table_wraps_coroutine(&walk, wrapper.at));
  if (is_jit(vm)) return; /* where it has a number */
  uint64_t count = wrapper.at + l->closure_tag + (l->closure_is_c != LAYOUT_ABSENT ? 3 : 2),
           upvalue = wrapper.at + l->closure_code + 8;
  put(vm, count, 1, 1);
  put(vm, upvalue + 8, l->tag_thread | (vm->layout->language > 51 ? 64 : 0), l->tag_bytes);
  assert_true(table_wraps_coroutine(&walk, wrapper.at));
  put(vm, count, 2, 1);
  assert_false(table_wraps_coroutine(&walk, wrapper.at));
  assert_false(table_wraps_coroutine(&walk, lua.at));
  assert_false(table_wraps_coroutine(&walk, proto));
  assert_false(table_wraps_coroutine(&walk, 12345));
}

static void what_wraps_a_coroutine_is_seen(void **state) {
  (void)state;
  with_every_layout(wrap);
}

static void take_no_words(invented_t *vm, tables_t *tables) {
  char long_key[80];
  memset(long_key, 'x', sizeof long_key - 1);
  long_key[sizeof long_key - 1] = '\0';
  const char *keys[] = {"two words", "new\nline", "\x1b[31m", "", long_key, "\x7f"};
  for (uint32_t i = 0; i < 6; i++)
    set(vm, in_globals(vm), i, keys[i], new_c_function(vm, INVENTED_CODE + 16 * i, 1));
  read_names(tables, vm);
  assert_int_equal(tables_count(tables), 0);
}

static void keys_that_are_no_words_are_no_names(void **state) {
  (void)state;
  with_every_layout(take_no_words);
}

static void a_layout_without_tables_gives_no_names(void **state) {
  (void)state;
  const layout_t *known;
  for (size_t i = 0; (known = layout_known(i)) != NULL; i++) {
    invented_t vm;
    layout_t without = *known;
    tables_t *tables = tables_new();
    invent(&vm, known);
    set(&vm, in_globals(&vm), 0, "f", new_c_function(&vm, INVENTED_CODE, 1));
    if (known->family == LAYOUT_LUAJIT)
      without.luajit.node_key = LAYOUT_ABSENT;
    else
      without.puc.node_key = LAYOUT_ABSENT;
    vm.layout = &without;
    read_names(tables, &vm);
    assert_int_equal(tables_count(tables), 0);
    assert_int_equal(vm.reads, 0);
    tables_free(tables);
    free(vm.bytes);
  }
}

/* -- memory that changes ---------------------------------------------------------------------------------------------- */

static value_t other;

static void change_value(invented_t *vm) {
  set(vm, in_globals(vm), 1, "changing", other);
}

static void take_changing(invented_t *vm, tables_t *tables) {
  other = new_c_function(vm, INVENTED_CODE + 16, 1);
  set(vm, in_globals(vm), 0, "stays", new_c_function(vm, INVENTED_CODE + 32, 1));
  set(vm, in_globals(vm), 1, "changing", new_c_function(vm, INVENTED_CODE, 1));
  vm->on_forget = change_value;
  read_names(tables, vm);
  expect(tables, INVENTED_CODE, NULL); /* seen once */
  expect(tables, INVENTED_CODE + 32, "stays");
}

static void an_entry_counts_when_it_is_found_twice(void **state) {
  (void)state;
  with_every_layout(take_changing);
}

/* The globals are moved to other nodes between the looks, as often as they are looked at, or a few times. */
static int moves;
static void move_globals(invented_t *vm) {
  if (moves-- <= 0 || vm->used > INVENTED_BYTES / 2) return;
  value_t fresh = new_table(vm, 3);
  set(vm, fresh, 2, "moving", other);
  memcpy(vm->bytes + (vm->globals - INVENTED_BASE), vm->bytes + (fresh.at - INVENTED_BASE),
         LAYOUT_TABLE_BYTES);
}

static void take_moving(invented_t *vm, tables_t *tables) {
  other = new_c_function(vm, INVENTED_CODE, 1);
  vm->on_forget = move_globals;
  moves = 1000;
  read_names(tables, vm);
  expect(tables, INVENTED_CODE, NULL);
  moves = 4; /* the registry and package.loaded are looked at before */
  read_names(tables, vm);
  expect(tables, INVENTED_CODE, "moving");
}

static void a_table_that_moves_is_read_again(void **state) {
  (void)state;
  with_every_layout(take_moving);
}

/* -- memory that is anybody's -------------------------------------------------------------------------------------------- */

static void take_cycles(invented_t *vm, tables_t *tables) {
  value_t a = new_table(vm, 2), b = new_table(vm, 2);
  set(vm, a, 0, "__index", b);
  set(vm, b, 0, "__index", a);
  set(vm, a, 1, "a", a);
  set(vm, b, 1, "a", a);
  set(vm, a, 2, "registry", in_registry(vm));
  set(vm, b, 2, "loaded", in_loaded(vm));
  set(vm, b, 3, "f", new_c_function(vm, INVENTED_CODE, 1));
  set_metatable(vm, a, a);
  set_metatable(vm, b, a);
  set(vm, in_globals(vm), 0, "a", a);
  set(vm, in_loaded(vm), 0, "itself", in_loaded(vm));
  set(vm, in_loaded(vm), 1, "globals", in_globals(vm));
  set_metatable(vm, in_globals(vm), in_globals(vm));
  read_names(tables, vm);
  expect(tables, INVENTED_CODE, "a.f");
  assert_true(vm->reads < 2000);
}

static void cycles_end(void **state) {
  (void)state;
  with_every_layout(take_cycles);
}

static uint64_t chance = 88172645463325252u;
static uint32_t random_below(uint32_t n) {
  chance ^= chance << 13;
  chance ^= chance >> 7;
  chance ^= chance << 17;
  return (uint32_t)(chance >> 33) % n;
}

static void take_damaged(invented_t *vm, tables_t *tables) {
  value_t module = new_table(vm, 2), inner = new_table(vm, 1);
  uint64_t proto;
  set(vm, in_loaded(vm), 5, "module", module);
  set(vm, module, 0, "f", new_c_function(vm, INVENTED_CODE, 1));
  set(vm, module, 1, "inner", inner);
  set(vm, inner, 0, "g", new_lua_function(vm, &proto, 3));
  set_metatable(vm, module, inner);
  set(vm, in_globals(vm), 0, "module", module);
  uint8_t *whole = malloc(vm->used);
  memcpy(whole, vm->bytes, vm->used);
  for (int round = 0; round < FEWER(1000); round++) {
    vm->reads = 0;
    for (uint32_t i = 0, count = 1 + random_below(12); i < count; i++) {
      uint32_t at = random_below(vm->used - 8);
      uint64_t word = random_below(2) ? INVENTED_BASE + random_below(vm->used) : chance;
      memcpy(vm->bytes + at, &word, 1u << random_below(4));
    }
    read_names(tables, vm);
    assert_true(vm->reads < 40000000);
    memcpy(vm->bytes, whole, vm->used);
  }
  tables_t *undamaged = tables_new(); /* the others have names that were there */
  read_names(undamaged, vm);
  expect(undamaged, INVENTED_CODE, "module.f");
  tables_free(undamaged);
  free(whole);
}

static void damaged_memory_does_no_harm(void **state) {
  (void)state;
  with_every_layout(take_damaged);
}

/* A table that says it has millions of nodes is data, unless it is a root; and what is not there is not read. */
static void take_large(invented_t *vm, tables_t *tables) {
  const layout_t *layout = vm->layout;
  value_t module = new_table(vm, 0);
  set(vm, in_loaded(vm), 0, "module", module);
  set(vm, module, 0, "f", new_c_function(vm, INVENTED_CODE, 1));
  for (int root = 0; root < 2; root++) {
    uint64_t at = root ? vm->globals : module.at;
    if (layout->family == LAYOUT_LUAJIT)
      put(vm, at + layout->luajit.table_node_mask, (1u << 22) - 1, 4);
    else
      put(vm, at + layout->puc.table_log_nodes, 22, 1);
    read_names(tables, vm);
    if (!root) assert_int_equal(tables_count(tables), 0);
    assert_true(vm->reads < 200000);
  }
}

static void large_tables_are_data(void **state) {
  (void)state;
  with_every_layout(take_large);
}

/* -- memory that runs out ---------------------------------------------------------------------------------------------- */

static void memory_may_run_out_at_any_moment(void **state) {
  (void)state;
  for (size_t fail_at = 1, failed = 1; failed; fail_at++) {
    invented_t vm;
    invent(&vm, layout_known(0));
    for (uint32_t i = 0; i < 8; i++) {
      value_t module = new_table(&vm, 3);
      char name[16];
      snprintf(name, sizeof name, "m%u", i);
      set(&vm, in_loaded(&vm), i, name, module);
      for (uint32_t k = 0; k < 8; k++)
        set(&vm, module, k, name, new_c_function(&vm, INVENTED_CODE + 128 * i + 16 * k, 1));
    }
    failing_memory_start(fail_at, true);
    tables_t *tables = tables_new();
    if (tables != NULL) read_names(tables, &vm);
    failed = failing_memory_stop();
    if (!failed) expect(tables, INVENTED_CODE, "m0.m0");
    tables_free(tables);
    free(vm.bytes);
  }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_best_name_is_taken),
    cmocka_unit_test(a_global_that_a_module_fills),
    cmocka_unit_test(light_functions_have_names),
    cmocka_unit_test(lua_functions_are_known_by_their_mark),
    cmocka_unit_test(builtins_are_known_by_their_number),
    cmocka_unit_test(what_wraps_a_coroutine_is_seen),
    cmocka_unit_test(keys_that_are_no_words_are_no_names),
    cmocka_unit_test(a_layout_without_tables_gives_no_names),
    cmocka_unit_test(an_entry_counts_when_it_is_found_twice),
    cmocka_unit_test(a_table_that_moves_is_read_again),
    cmocka_unit_test(cycles_end),
    cmocka_unit_test(damaged_memory_does_no_harm),
    cmocka_unit_test(large_tables_are_data),
    cmocka_unit_test(memory_may_run_out_at_any_moment),
};
UNIT_MAIN(tests)
