/* SPDX-License-Identifier: MIT */
/* Reading symbols; see elf_symbol.h. Files are anybody's: target_file.h finds and opens them, elf_table.h reads them. */
#include "attach/elf_symbol.h"

#include <dlfcn.h>
#include <gelf.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "attach/target_file.h"
#include "name/regular_file.h"
#include "profile/mem.h"

enum {
  MOST_MANGLED = ELF_TABLE_NAME, /* the demangler recurses: not into longer ones */
  BUILD_ID = 20,                 /* bytes at most: SHA-1 */
  MOST_NOTES = 64,               /* sections that it may be in, … */
  NOTE_BYTES = 4096              /* … of such a size at most: libelf keeps what it reads */
};

/* -- symbols ------------------------------------------------------------------------------------------------------ */

/* The symbol whose value is this address of the file. */
static bool find_symbol(const elf_file_t *file, uint64_t address, char *name, size_t size) {
  Elf64_Sym symbol;
  const char *text = NULL;
  elf_table_t *table = elf_table_open(file, SHT_NULL);
  while (table != NULL && text == NULL && elf_table_next(table, &symbol))
    if (symbol.st_value == address) text = elf_table_name(table, &symbol);
  if (text != NULL) snprintf(name, size, "%s", text);
  elf_table_close(table);
  return text != NULL;
}

/* From the place in the file to the address its symbols use. */
static bool address_in_file(Elf *elf, uint64_t offset, uint64_t *address) {
  size_t count;
  if (elf_getphdrnum(elf, &count) != 0) return false;
  for (size_t i = 0; i < count; i++) {
    GElf_Phdr header;
    if (gelf_getphdr(elf, (int)i, &header) == NULL || header.p_type != PT_LOAD || offset < header.p_offset ||
        offset - header.p_offset >= header.p_filesz)
      continue;
    *address = header.p_vaddr + (offset - header.p_offset);
    return true;
  }
  return false;
}

/* -- debug files ---------------------------------------------------------------------------------------------------- */

static size_t id_in_notes(Elf_Data *notes, uint8_t id[BUILD_ID]) {
  GElf_Nhdr note;
  size_t name, at;
  for (size_t next = 0; (next = gelf_getnote(notes, next, &note, &name, &at)) > 0;) {
    const char *bytes = notes->d_buf;
    if (note.n_type != NT_GNU_BUILD_ID || note.n_namesz != 4 || memcmp(bytes + name, "GNU", 4) != 0) continue;
    if (note.n_descsz < 2 || note.n_descsz > BUILD_ID) return 0;
    memcpy(id, bytes + at, note.n_descsz);
    return note.n_descsz;
  }
  return 0;
}

static size_t build_id(Elf *elf, uint8_t id[BUILD_ID]) {
  GElf_Shdr header;
  size_t len = 0, left = MOST_NOTES;
  for (Elf_Scn *section = NULL; len == 0 && left > 0 && (section = elf_nextscn(elf, section)) != NULL;) {
    if (gelf_getshdr(section, &header) == NULL || header.sh_type != SHT_NOTE || header.sh_size > NOTE_BYTES)
      continue;
    left--;
    Elf_Data *data = elf_getdata(section, NULL);
    if (data != NULL) len = id_in_notes(data, id);
  }
  return len;
}

/* In the process's view of files, then here: a container has its own. `here`: 0 or 1. False when the file has no build-id. */
static bool open_debug_file(Elf *elf, pid_t pid, int here, elf_file_t *file) {
  uint8_t id[BUILD_ID];
  char hex[2 * BUILD_ID + 1], path[128];
  size_t len = build_id(elf, id);
  if (len == 0) return false;
  for (size_t i = 0; i < len; i++) snprintf(hex + 2 * i, 3, "%02x", id[i]);
  snprintf(path, sizeof path, "/usr/lib/debug/.build-id/%.2s/%s.debug", hex, hex + 2);
  *file = elf_file_open(here ? regular_file_open(path) : target_file_open(pid, path));
  return true;
}

static bool find_in_debug_file(Elf *elf, pid_t pid, uint64_t address, char *name, size_t size) {
  elf_file_t file;
  bool found = false;
  for (int here = 0; here < 2 && !found; here++) {
    if (!open_debug_file(elf, pid, here, &file)) return false;
    found = file.elf != NULL && find_symbol(&file, address, name, size);
    elf_file_close(&file);
  }
  return found;
}

/* -- all functions --------------------------------------------------------------------------------------------------- */

bool elf_each_function(const elf_file_t *file, uint32_t section_type, uint64_t bias, elf_each_t *each,
                       void *context) {
  Elf64_Sym symbol;
  const char *name;
  bool any = false;
  elf_table_t *table = elf_table_open(file, section_type);
  while (table != NULL && elf_table_next(table, &symbol)) {
    if ((name = elf_table_name(table, &symbol)) == NULL) continue;
    each(context, name, symbol.st_value + bias, symbol.st_size);
    any = true;
  }
  elf_table_close(table);
  return any;
}

void elf_file(const map_t *map, uint64_t known, pid_t pid, elf_use_t *use, void *context) {
  uint64_t address;
  elf_file_t file = elf_file_open(target_file_open_mapped(map, pid));
  if (file.elf != NULL && address_in_file(file.elf, known - map->start + map->offset, &address))
    use(context, &file, known - address);
  elf_file_close(&file);
}

typedef struct {
  pid_t pid;
  elf_each_t *each;
  void *context;
} asking_t;

static void use_symbols(void *context, const elf_file_t *file, uint64_t bias) {
  const asking_t *a = context;
  elf_file_t debug;
  bool any = elf_each_function(file, SHT_SYMTAB, bias, a->each, a->context);
  for (int here = 0; here < 2 && !any; here++) {
    if (!open_debug_file(file->elf, a->pid, here, &debug)) break;
    any = debug.elf != NULL && elf_each_function(&debug, SHT_SYMTAB, bias, a->each, a->context);
    elf_file_close(&debug);
  }
}

void elf_functions(const map_t *map, uint64_t known, pid_t pid, elf_each_t *each, void *context) {
  asking_t asking = {pid, each, context};
  elf_file(map, known, pid, use_symbols, &asking);
}

/* -- C++ -------------------------------------------------------------------------------------------------------------- */

/* Demanglers are parts of C++ libraries. LuaPulse needs none to run: it asks for the one that any machine with C++ programs has. */
static void demangle(char *name, size_t size) {
  static char *(*demangler)(const char *, char *, size_t *, int *);
  static bool asked;
  int status = 0;
  if (strncmp(name, "_Z", 2) != 0 || strlen(name) >= MOST_MANGLED) return;
  if (!asked) {
    void *library = dlopen("libstdc++.so.6", RTLD_NOW | RTLD_LOCAL);
    if (library != NULL) *(void **)&demangler = dlsym(library, "__cxa_demangle");
    asked = true;
  }
  char *text = demangler != NULL ? demangler(name, NULL, NULL, &status) : NULL;
  if (text != NULL && status == 0) snprintf(name, size, "%s", text);
  mem_free(text);
}

bool elf_symbol(const map_t *map, pid_t pid, uint64_t code, char *name, size_t size) {
  char symbol[MOST_MANGLED];
  uint64_t address;
  elf_file_t file = elf_file_open(target_file_open_mapped(map, pid));
  bool found = file.elf != NULL && address_in_file(file.elf, code - map->start + map->offset, &address) &&
               (find_symbol(&file, address, symbol, sizeof symbol) ||
                find_in_debug_file(file.elf, pid, address, symbol, sizeof symbol));
  elf_file_close(&file);
  if (!found) return false;
  demangle(symbol, sizeof symbol);
  snprintf(name, size, "%s", symbol);
  return true;
}
