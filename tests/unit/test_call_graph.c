/* SPDX-License-Identifier: MIT */
/* Who calls whom, read out of a file's code: of this test itself, of a library, and of damaged files, which are read or refused. */
#include <dlfcn.h>
#include <fcntl.h>
#include <gelf.h>
#include <stdlib.h>
#include <unistd.h>

#include "attach/call_graph.h"
#include "own_file.h"
#include "profile/random.h"

#if defined __x86_64__

/* A chain: first, second, third; by a pointer: pointed. */
typedef int number_t(int x);
number_t test_call_graph_first, test_call_graph_second, test_call_graph_third, test_call_graph_pointed;

#define APART __attribute__((noipa))
APART int test_call_graph_third(int x) {
  return x * 3 + 1;
}
APART int test_call_graph_second(int x) {
  return test_call_graph_third(x) + test_call_graph_third(x + 1);
}
APART int test_call_graph_first(int x) {
  return test_call_graph_second(x) + 5;
}
APART int test_call_graph_pointed(int x) {
  return x + 7;
}
static number_t *volatile pointer = test_call_graph_pointed;

typedef struct {
  uint8_t *bytes, *good;
  size_t len;
  Elf *elf;
  call_graph_t *graph;
} fixture_t;

static int set_up(void **state) {
  fixture_t *x = calloc(1, sizeof *x);
  x->good = own_file(&x->len);
  x->bytes = malloc(x->len);
  memcpy(x->bytes, x->good, x->len);
  elf_version(EV_CURRENT);
  x->elf = elf_memory((char *)x->bytes, x->len);
  x->graph = call_graph_read(x->elf);
  assert_non_null(x->graph);
  *state = x;
  return 0;
}

static int tear_down(void **state) {
  fixture_t *x = *state;
  call_graph_free(x->graph);
  elf_end(x->elf);
  free(x->good);
  free(x->bytes);
  free(x);
  return 0;
}

/* The number of a function of this test: its addresses in the file are those here less where the file lies. */
static uint32_t number_of(const fixture_t *x, const void *function) {
  Dl_info info;
  GElf_Ehdr header;
  assert_int_not_equal(dladdr(function, &info), 0);
  assert_non_null(gelf_getehdr(x->elf, &header));
  uint64_t base = header.e_type == ET_EXEC ? 0 : (uint64_t)(uintptr_t)info.dli_fbase;
  uint64_t address = (uint64_t)(uintptr_t)function - base;
  for (uint32_t i = 0; i < call_graph_count(x->graph); i++)
    if (call_graph_range(x->graph, i).start == address) return i;
  fail_msg("no function begins there");
  return 0;
}

static void calls_and_who_is_called_by_a_pointer(void **state) {
  const fixture_t *x = *state;
  uint32_t first = number_of(x, (void *)test_call_graph_first);
  uint32_t second = number_of(x, (void *)test_call_graph_second);
  uint32_t third = number_of(x, (void *)test_call_graph_third);
  assert_int_equal(pointer(1), 8);
  assert_true(call_graph_calls(x->graph, first, second));
  assert_true(call_graph_calls(x->graph, second, third));
  assert_false(call_graph_calls(x->graph, first, third));
  assert_false(call_graph_calls(x->graph, second, first));
  assert_true(call_graph_is_taken(x->graph, number_of(x, (void *)test_call_graph_pointed)));
  assert_int_equal(call_graph_call_count(x->graph, third), 0);
}

static void what_a_function_leads_to(void **state) {
  const fixture_t *x = *state;
  uint32_t first = number_of(x, (void *)test_call_graph_first);
  uint32_t second = number_of(x, (void *)test_call_graph_second);
  uint32_t third = number_of(x, (void *)test_call_graph_third);
  bool *set = calloc(call_graph_count(x->graph), sizeof *set);
  bool *stops = calloc(call_graph_count(x->graph), sizeof *stops);
  set[first] = stops[second] = true;
  assert_true(call_graph_follow(x->graph, set, stops));
  assert_false(set[second] || set[third]);
  assert_true(call_graph_follow(x->graph, set, NULL));
  assert_true(set[second] && set[third]);
  assert_false(set[number_of(x, (void *)test_call_graph_pointed)]);
  free(set);
  free(stops);
}

static void functions_of_a_library(void **state) {
  (void)state;
  Dl_info info;
  void *wanted = dlsym(RTLD_DEFAULT, "_cmocka_run_group_tests");
  assert_non_null(wanted);
  assert_int_not_equal(dladdr(wanted, &info), 0);
  int fd = open(info.dli_fname, O_RDONLY);
  elf_version(EV_CURRENT);
  Elf *elf = elf_begin(fd, ELF_C_READ, NULL);
  call_graph_t *graph = call_graph_read(elf);
  assert_non_null(graph);
  uint32_t function = call_graph_exported(graph, "_cmocka_run_group_tests");
  assert_int_not_equal(function, CALL_GRAPH_NONE);
  walk_range_t range = call_graph_range(graph, function);
  assert_int_equal(range.start + (uint64_t)(uintptr_t)info.dli_fbase, (uint64_t)(uintptr_t)wanted);
  assert_true(range.end > range.start);
  assert_true(call_graph_is_taken(graph, function)); /* others may call it */
  assert_int_equal(call_graph_exported(graph, "no such function"), CALL_GRAPH_NONE);
  call_graph_free(graph);
  elf_end(elf);
  close(fd);
}

/* Whatever comes out of it, every function of it can be asked for. */
static void look(fixture_t *x, size_t len) {
  Elf *elf = elf_memory((char *)x->bytes, len);
  call_graph_t *graph = elf != NULL ? call_graph_read(elf) : NULL;
  if (graph != NULL) {
    uint32_t count = call_graph_count(graph);
    bool *set = calloc(count, sizeof *set);
    set[0] = true;
    call_graph_exported(graph, "lua_gc");
    for (uint32_t i = 0; i < count; i++)
      for (uint32_t k = 0; k < call_graph_call_count(graph, i); k++)
        assert_true(call_graph_called(graph, i, k) < count);
    assert_true(call_graph_follow(graph, set, NULL));
    free(set);
  }
  call_graph_free(graph);
  elf_end(elf);
}

/* The head, the program headers and the index are where a file says what is where. */
static void damaged_files(void **state) {
  fixture_t *x = *state;
  enum { ROUNDS = 60 };
  random_t random = {.state = 3};
  size_t count, index = 0;
  assert_int_equal(elf_getphdrnum(x->elf, &count), 0);
  for (size_t i = 0; i < count; i++) {
    GElf_Phdr header;
    if (gelf_getphdr(x->elf, (int)i, &header) != NULL && header.p_type == PT_GNU_EH_FRAME)
      index = header.p_offset;
  }
  assert_int_not_equal(index, 0);
  for (int round = 0; round < ROUNDS; round++) {
    size_t at = round % 2 == 0 ? random_next(&random) % 1024 : index + random_next(&random) % 64;
    memcpy(x->bytes, x->good, x->len);
    for (int i = 0; i < 1 + round % 8; i++) x->bytes[at + (size_t)i] = (uint8_t)random_next(&random);
    look(x, x->len);
  }
  memcpy(x->bytes, x->good, x->len);
  for (int round = 0; round < ROUNDS / 4; round++) look(x, random_next(&random) % x->len); /* cut short */
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test_setup_teardown(calls_and_who_is_called_by_a_pointer, set_up, tear_down),
    cmocka_unit_test_setup_teardown(what_a_function_leads_to, set_up, tear_down),
    cmocka_unit_test(functions_of_a_library),
    cmocka_unit_test_setup_teardown(damaged_files, set_up, tear_down),
};

#else

static void elsewhere_nothing_is_read(void **state) {
  (void)state;
  int fd = open("/proc/self/exe", O_RDONLY);
  elf_version(EV_CURRENT);
  Elf *elf = elf_begin(fd, ELF_C_READ, NULL);
  assert_null(call_graph_read(elf));
  elf_end(elf);
  close(fd);
}

static const struct CMUnitTest tests[] = {cmocka_unit_test(elsewhere_nothing_is_read)};

#endif

UNIT_MAIN(tests)
