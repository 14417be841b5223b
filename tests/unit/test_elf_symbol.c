/* SPDX-License-Identifier: MIT */
/* Names by the symbols of a file, and files that are damaged: whatever is in them, they are read or refused. */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
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
static bool ask_file(const fixture_t *x, uint64_t offset, char *name, size_t size) {
  int fd = open(x->path, O_RDONLY);
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

static bool ask(const fixture_t *x, size_t len, uint64_t offset, char *name, size_t size) {
  int fd = open(x->path, O_WRONLY | O_TRUNC);
  assert_int_equal(write(fd, x->bytes, len), len);
  close(fd);
  return ask_file(x, offset, name, size);
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

static long most_memory(void) { /* KiB */
  struct rusage usage;
  assert_int_equal(getrusage(RUSAGE_SELF, &usage), 0);
  return usage.ru_maxrss;
}

enum { HUGE = 96 << 20 };

/* The file with `more` sections behind its own, each as large as all that nothing is stored for; in their heads if the number of sections
 * does not fit into the file's. */
static void write_huge(const fixture_t *x, uint16_t more, uint64_t number_apart, uint64_t type_of_own) {
  Elf64_Ehdr head;
  memcpy(&head, x->good, sizeof head);
  int fd = open(x->path, O_WRONLY | O_TRUNC);
  uint64_t base = (x->len + 4095) & ~(uint64_t)4095, at = base + HUGE;
  assert_int_equal(write(fd, x->good, x->len), x->len);
  for (size_t i = 0; i < (size_t)head.e_shnum + more; i++, at += sizeof(Elf64_Shdr)) {
    Elf64_Shdr section = {.sh_type = SHT_SYMTAB,
                          .sh_offset = base,
                          .sh_size = HUGE,
                          .sh_link = head.e_shstrndx,
                          .sh_addralign = 8,
                          .sh_entsize = sizeof(Elf64_Sym)};
    if (i < head.e_shnum) memcpy(&section, x->good + head.e_shoff + i * sizeof section, sizeof section);
    if (i < head.e_shnum && (section.sh_type == SHT_SYMTAB || section.sh_type == SHT_DYNSYM))
      section.sh_type = (uint32_t)type_of_own;
    if (i == 0) section.sh_size = number_apart;
    assert_int_equal(pwrite(fd, &section, sizeof section, (off_t)at), sizeof section);
  }
  head.e_shoff = number_apart > 0 ? base : base + HUGE;
  head.e_shnum = number_apart > 0 ? 0 : (uint16_t)(head.e_shnum + more);
  assert_int_equal(pwrite(fd, &head, sizeof head, 0), sizeof head);
  if (number_apart > 0) {
    Elf64_Shdr first = {.sh_size = number_apart};
    assert_int_equal(pwrite(fd, &first, sizeof first, (off_t)base), sizeof first);
  }
  close(fd);
}

/* Sections that lie one over the other, and more of them than a file can have. */
static void huge_files_take_little_memory(void **state) {
  fixture_t *x = *state;
  uint64_t offset = offset_of((const void *)(uintptr_t)test_elf_symbol_wanted);
  char name[256];
  long before = most_memory();
  write_huge(x, 8, 0, SHT_PROGBITS);
  assert_false(ask_file(x, offset, name, sizeof name));
  write_huge(x, 0, HUGE / sizeof(Elf64_Shdr), SHT_PROGBITS);
  assert_false(ask_file(x, offset, name, sizeof name));
  assert_true(most_memory() - before < 16 << 10);
  write_huge(x, 8, 0, SHT_SYMTAB); /* what is read before them counts */
  assert_true(ask_file(x, offset, name, sizeof name));
}

/* Names that are cut by pieces of the file, and those of symbols in no order. */
static void every_name_is_whole(void **state) {
  fixture_t *x = *state;
  enum { COUNT = 3000, LONGEST = 1500 };
  Elf64_Ehdr head = {.e_ident = {ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB, EV_CURRENT},
                     .e_type = ET_DYN,
                     .e_machine = EM_X86_64,
                     .e_version = EV_CURRENT,
                     .e_ehsize = sizeof(Elf64_Ehdr),
                     .e_shentsize = sizeof(Elf64_Shdr),
                     .e_shnum = 3,
                     .e_shoff = sizeof(Elf64_Ehdr)};
  Elf64_Shdr sections[3] = {{0}};
  Elf64_Sym *symbols = calloc(COUNT, sizeof *symbols);
  char *names = calloc(COUNT, LONGEST);
  size_t used = 1, found = 0;
  random_t random = {.state = 815};
  for (size_t i = 0; i < COUNT; i++) {
    size_t len = 8 + random_next(&random) % (i % 7 == 0 ? LONGEST - 8 : 40);
    uint64_t value = i * 7919 % COUNT; /* each once */
    symbols[value] =
        (Elf64_Sym){.st_name = (uint32_t)used, .st_info = STT_FUNC, .st_shndx = 1, .st_value = i};
    snprintf(names + used, 9, "f%07zu", i);
    memset(names + used + 8, 'x', len - 8);
    used += len + 1;
  }
  sections[1] = (Elf64_Shdr){.sh_type = SHT_SYMTAB,
                             .sh_offset = sizeof head + sizeof sections,
                             .sh_size = COUNT * sizeof *symbols,
                             .sh_link = 2,
                             .sh_entsize = sizeof *symbols};
  sections[2] = (Elf64_Shdr){
      .sh_type = SHT_STRTAB, .sh_offset = sections[1].sh_offset + sections[1].sh_size, .sh_size = used};
  int fd = open(x->path, O_RDWR | O_TRUNC);
  assert_int_equal(write(fd, &head, sizeof head), sizeof head);
  assert_int_equal(write(fd, sections, sizeof sections), sizeof sections);
  assert_int_equal(write(fd, symbols, COUNT * sizeof *symbols), COUNT * sizeof *symbols);
  assert_int_equal(write(fd, names, used), used);
  elf_file_t file = elf_file_open(fd);
  elf_table_t *table = elf_table_open(&file, SHT_SYMTAB);
  for (Elf64_Sym symbol; elf_table_next(table, &symbol); found++) {
    const char *name = elf_table_name(table, &symbol), *whole = names + symbol.st_name;
    size_t len = strlen(whole) < ELF_TABLE_NAME - 1 ? strlen(whole) : ELF_TABLE_NAME - 1;
    assert_non_null(name);
    assert_int_equal(strlen(name), len);
    assert_memory_equal(name, whole, len);
  }
  assert_int_equal(found, COUNT);
  elf_table_close(table);
  elf_file_close(&file);
  free(symbols);
  free(names);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test_setup_teardown(a_function_has_its_name, set_up, tear_down),
    cmocka_unit_test_setup_teardown(damaged_files_do_no_harm, set_up, tear_down),
    cmocka_unit_test_setup_teardown(huge_files_take_little_memory, set_up, tear_down),
    cmocka_unit_test_setup_teardown(every_name_is_whole, set_up, tear_down),
};
UNIT_MAIN(tests)
