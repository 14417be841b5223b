/* SPDX-License-Identifier: MIT */
/* Names by the symbols of a file, and files that are damaged: whatever is in them, they are read or refused. */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "attach/elf_symbol.h"
#include "own_file.h"
#include "profile/random.h"

/* The function that is asked for. */
__attribute__((noinline)) int test_elf_symbol_wanted(int x);
int test_elf_symbol_wanted(int x) {
  return x * 3 + 1;
}

typedef struct {
  char path[64];
  uint8_t *bytes, *good;
  size_t len;
} fixture_t;

/* The test's own file. */
static int set_up(void **state) {
  fixture_t *x = calloc(1, sizeof *x);
  strcpy(x->path, "/tmp/test_elf_symbol.XXXXXX");
  int fd = mkstemp(x->path);
  assert_true(fd >= 0);
  close(fd);
  x->good = own_file(&x->len);
  x->bytes = malloc(x->len);
  *state = x;
  return 0;
}

static int tear_down(void **state) {
  fixture_t *x = *state;
  unlink(x->path);
  free(x->good);
  free(x->bytes);
  free(x);
  return 0;
}

/* Asks for the function at an offset of the file, which is mapped as a program is. */
static bool ask(const fixture_t *x, size_t len, uint64_t offset, char *name, size_t size) {
  int fd = open(x->path, O_WRONLY | O_TRUNC);
  assert_int_equal(write(fd, x->bytes, len), len);
  close(fd);
  fd = open(x->path, O_RDONLY);
  void *at = mmap(NULL, x->len, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
  close(fd);
  assert_true(at != MAP_FAILED);
  map_t map = {.start = (uint64_t)(uintptr_t)at,
               .end = (uint64_t)(uintptr_t)at + ((x->len + 4095) & ~(size_t)4095),
               .inode = 1,
               .readable = true,
               .executable = true,
               .path = x->path};
  bool found = elf_symbol(&map, getpid(), map.start + offset, name, size);
  munmap(at, x->len);
  return found;
}

/* Where a function of this program stands in its file: its place in memory, less where the file was put. */
static uint64_t offset_of(const void *function) {
  maps_t maps;
  failure_t failure;
  assert_true(maps_read(&maps, getpid(), &failure));
  uint64_t address = (uint64_t)(uintptr_t)function;
  const map_t *map = maps_find(&maps, address);
  assert_non_null(map);
  uint64_t offset = address - map->start + map->offset;
  maps_free(&maps);
  return offset;
}

static void a_function_has_its_name(void **state) {
  fixture_t *x = *state;
  char name[256] = "";
  memcpy(x->bytes, x->good, x->len);
  assert_true(ask(x, x->len, offset_of((const void *)(uintptr_t)test_elf_symbol_wanted), name, sizeof name));
  assert_string_equal(name, "test_elf_symbol_wanted");
  assert_false(
      ask(x, x->len, offset_of((const void *)(uintptr_t)test_elf_symbol_wanted) + 1, name, sizeof name));
}

static void damaged_files_do_no_harm(void **state) {
  fixture_t *x = *state;
  random_t random = {.state = 4711};
  uint64_t offset = offset_of((const void *)(uintptr_t)test_elf_symbol_wanted), sections;
  char name[256];
  memcpy(&sections, x->good + 40, sizeof sections); /* e_shoff */
  for (int round = 0; round < 300; round++) {
    memcpy(x->bytes, x->good, x->len);
    for (int i = 0; i < 1 + round % 8; i++) {
      /* the head, the table of sections, anywhere */
      uint64_t places[3] = {random_next(&random) % 1024,
                            sections + random_next(&random) % (x->len - sections),
                            random_next(&random) % x->len};
      x->bytes[places[random_next(&random) % 3] % x->len] = (uint8_t)random_next(&random);
    }
    if (round % 10 == 0) memset(x->bytes + sections, 0xff, x->len - sections);
    ask(x, x->len, offset, name, sizeof name);
  }
  memcpy(x->bytes, x->good, x->len);
  for (int round = 0; round < 100; round++) ask(x, random_next(&random) % x->len, offset, name, sizeof name);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test_setup_teardown(a_function_has_its_name, set_up, tear_down),
    cmocka_unit_test_setup_teardown(damaged_files_do_no_harm, set_up, tear_down),
};
UNIT_MAIN(tests)
