/* SPDX-License-Identifier: MIT */
/* Reading symbols; see elf_symbol.h. Files are anybody's: libelf checks them, and target_file.h finds and opens them. */
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
  MOST_SYMBOLS = 1 << 20,
  MOST_MANGLED = 1024, /* the demangler recurses: not into longer ones */
  BUILD_ID = 20        /* bytes at most: SHA-1 */
};

typedef struct {
  int fd;
  Elf *elf; /* NULL: none */
} file_t;

/* A descriptor, or a negative number: then there is none. */
static file_t read_file(int fd) {
  file_t file = {fd, NULL};
  elf_version(EV_CURRENT);
  if (fd >= 0) file.elf = elf_begin(fd, ELF_C_READ, NULL);
  return file;
}

static void close_file(file_t *file) {
  elf_end(file->elf);
  if (file->fd >= 0) close(file->fd);
}

/* -- symbols ------------------------------------------------------------------------------------------------------ */

/* The symbol whose value is this address of the file. */
static bool find_in_section(Elf *elf, Elf_Scn *section, const GElf_Shdr *header, uint64_t address, char *name,
                            size_t size) {
  Elf_Data *data = elf_getdata(section, NULL);
  size_t count = data != NULL && header->sh_entsize > 0 ? header->sh_size / header->sh_entsize : 0;
  for (size_t i = 0; i < count && i < MOST_SYMBOLS; i++) {
    GElf_Sym symbol;
    if (gelf_getsym(data, (int)i, &symbol) == NULL || symbol.st_value != address ||
        symbol.st_shndx == SHN_UNDEF || GELF_ST_TYPE(symbol.st_info) != STT_FUNC)
      continue;
    const char *text = elf_strptr(elf, header->sh_link, symbol.st_name);
    if (text == NULL || text[0] == '\0') continue;
    snprintf(name, size, "%s", text);
    return true;
  }
  return false;
}

static bool find_symbol(Elf *elf, uint64_t address, char *name, size_t size) {
  GElf_Shdr header;
  for (Elf_Scn *section = NULL; (section = elf_nextscn(elf, section)) != NULL;)
    if (gelf_getshdr(section, &header) != NULL &&
        (header.sh_type == SHT_SYMTAB || header.sh_type == SHT_DYNSYM) &&
        find_in_section(elf, section, &header, address, name, size))
      return true;
  return false;
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
  size_t len = 0;
  for (Elf_Scn *section = NULL; len == 0 && (section = elf_nextscn(elf, section)) != NULL;) {
    if (gelf_getshdr(section, &header) == NULL || header.sh_type != SHT_NOTE) continue;
    Elf_Data *data = elf_getdata(section, NULL);
    if (data != NULL) len = id_in_notes(data, id);
  }
  return len;
}

/* In the process's view of files, then here: a container has its own. `here`: 0 or 1. False when the file has no build-id. */
static bool open_debug_file(Elf *elf, pid_t pid, int here, file_t *file) {
  uint8_t id[BUILD_ID];
  char hex[2 * BUILD_ID + 1], path[128];
  size_t len = build_id(elf, id);
  if (len == 0) return false;
  for (size_t i = 0; i < len; i++) snprintf(hex + 2 * i, 3, "%02x", id[i]);
  snprintf(path, sizeof path, "/usr/lib/debug/.build-id/%.2s/%s.debug", hex, hex + 2);
  *file = read_file(here ? regular_file_open(path) : target_file_open(pid, path));
  return true;
}

static bool find_in_debug_file(Elf *elf, pid_t pid, uint64_t address, char *name, size_t size) {
  file_t file;
  bool found = false;
  for (int here = 0; here < 2 && !found; here++) {
    if (!open_debug_file(elf, pid, here, &file)) return false;
    found = file.elf != NULL && find_symbol(file.elf, address, name, size);
    close_file(&file);
  }
  return found;
}

/* -- all functions --------------------------------------------------------------------------------------------------- */

bool elf_each_function(Elf *elf, uint32_t section_type, uint64_t bias, elf_each_t *each, void *context) {
  GElf_Shdr header;
  bool any = false;
  for (Elf_Scn *section = NULL; (section = elf_nextscn(elf, section)) != NULL;) {
    if (gelf_getshdr(section, &header) == NULL || header.sh_type != section_type) continue;
    Elf_Data *data = elf_getdata(section, NULL);
    size_t count = data != NULL && header.sh_entsize > 0 ? header.sh_size / header.sh_entsize : 0;
    for (size_t i = 0; i < count && i < MOST_SYMBOLS; i++) {
      GElf_Sym symbol;
      if (gelf_getsym(data, (int)i, &symbol) == NULL || symbol.st_shndx == SHN_UNDEF ||
          GELF_ST_TYPE(symbol.st_info) != STT_FUNC)
        continue;
      const char *text = elf_strptr(elf, header.sh_link, symbol.st_name);
      if (text == NULL) continue;
      each(context, text, symbol.st_value + bias, symbol.st_size);
      any = true;
    }
  }
  return any;
}

void elf_file(const map_t *map, uint64_t known, pid_t pid, elf_use_t *use, void *context) {
  uint64_t address;
  file_t file = read_file(target_file_open_mapped(map, pid));
  if (file.elf != NULL && address_in_file(file.elf, known - map->start + map->offset, &address))
    use(context, file.elf, known - address);
  close_file(&file);
}

typedef struct {
  pid_t pid;
  elf_each_t *each;
  void *context;
} asking_t;

static void use_symbols(void *context, Elf *elf, uint64_t bias) {
  const asking_t *a = context;
  file_t debug;
  bool any = elf_each_function(elf, SHT_SYMTAB, bias, a->each, a->context);
  for (int here = 0; here < 2 && !any; here++) {
    if (!open_debug_file(elf, a->pid, here, &debug)) break;
    any = debug.elf != NULL && elf_each_function(debug.elf, SHT_SYMTAB, bias, a->each, a->context);
    close_file(&debug);
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
  file_t file = read_file(target_file_open_mapped(map, pid));
  bool found = file.elf != NULL && address_in_file(file.elf, code - map->start + map->offset, &address) &&
               (find_symbol(file.elf, address, symbol, sizeof symbol) ||
                find_in_debug_file(file.elf, pid, address, symbol, sizeof symbol));
  close_file(&file);
  if (!found) return false;
  demangle(symbol, sizeof symbol);
  snprintf(name, size, "%s", symbol);
  return true;
}
