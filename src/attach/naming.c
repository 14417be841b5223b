/* SPDX-License-Identifier: MIT */
/* Naming functions; see naming.h. */
#include "attach/naming.h"

#include <ctype.h>
#include <fcntl.h>
#include <gelf.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "name/definition.h"
#include "name/place.h"
#include "name/source.h"
#include "profile/mem.h"

enum {
  CACHED = 256,
  FILES = 32,
  FILE_BYTES = 2 << 20,
  CHUNK = 65536,
  MOST_SYMBOLS = 1 << 20,
  SHOWN_CHUNK = 60,
  REGISTERED_NAME = 64
};

/* A source file, as long as it is wanted: of all together no more than FILE_BYTES are kept. */
typedef struct {
  char *path; /* NULL: this place is free */
  char *text; /* NULL: it cannot be read */
  size_t len;
} file_t;

typedef struct {
  uint64_t code;
  named_t named;
} cached_t;

struct naming {
  target_t *target;
  file_t files[FILES];
  size_t next_file; /* to be replaced */
  size_t file_bytes;
  cached_t *cached; /* C functions, by address */
};

naming_t *naming_open(target_t *target) {
  naming_t *n = mem_alloc(sizeof *n);
  if (n == NULL) return NULL;
  n->target = target;
  n->cached = mem_alloc(CACHED * sizeof *n->cached);
  remote_forget(target->remote); /* the process runs */
  if (n->cached != NULL) return n;
  naming_close(n);
  return NULL;
}

static void forget_file(naming_t *n, file_t *file) {
  n->file_bytes -= file->len;
  mem_free(file->path);
  mem_free(file->text);
  *file = (file_t){NULL, NULL, 0};
}

void naming_close(naming_t *n) {
  if (n == NULL) return;
  for (size_t i = 0; i < FILES; i++) forget_file(n, &n->files[i]);
  mem_free(n->cached);
  mem_free(n);
}

/* -- Lua functions ------------------------------------------------------------------------------------------------- */

/* The file at `path`, read once as long as it is kept. NULL when memory is out. */
static const file_t *file_at(naming_t *n, const char *path) {
  for (size_t i = 0; i < FILES; i++)
    if (n->files[i].path != NULL && strcmp(n->files[i].path, path) == 0) return &n->files[i];
  char *copy = mem_alloc(strlen(path) + 1);
  if (copy == NULL) return NULL;
  file_t *file = &n->files[n->next_file];
  n->next_file = (n->next_file + 1) % FILES;
  forget_file(n, file);
  file->path = strcpy(copy, path);
  file->text = source_read_file(path, &file->len);
  if (file->text == NULL) file->len = 0;
  n->file_bytes += file->len;
  for (size_t i = n->next_file; n->file_bytes > FILE_BYTES && &n->files[i] != file; i = (i + 1) % FILES)
    forget_file(n, &n->files[i]); /* the oldest first */
  return file;
}

static bool is_chunk(const naming_function_t *f) {
  return f->source != NULL && f->source_len > 0 && f->source[0] != '@' && f->source[0] != '=';
}

size_t naming_definition(naming_t *n, const naming_function_t *f, char name[NAMING_NAME]) {
  char path[PATH_MAX + 64];
  if (f->defined <= 0) return 0;
  if (is_chunk(f)) return definition_name(f->source, f->source_len, (uint32_t)f->defined, name, NAMING_NAME);
  if (f->source == NULL || f->source_len < 2 || f->source[0] != '@' || f->source_len > PATH_MAX ||
      memchr(f->source, '\0', f->source_len) != NULL)
    return 0;
  snprintf(path, sizeof path, "/proc/%d/%s%.*s", (int)n->target->process.pid,
           f->source[1] == '/' ? "root" : "cwd/", (int)f->source_len - 1, f->source + 1);
  const file_t *file = file_at(n, path);
  if (file == NULL || file->text == NULL) return 0;
  return definition_name(file->text, file->len, (uint32_t)f->defined, name, NAMING_NAME);
}

static void place_lua(const naming_function_t *f, named_t *named) {
  char line[16] = "", chunk[PLACE_CHUNK];
  if (f->line > 0) snprintf(line, sizeof line, ":%d", (int)f->line);
  place_t file = place_file(f->source, f->source != NULL ? f->source_len : 0, chunk);
  size_t most = sizeof named->place - sizeof line, len = file.len < most ? file.len : most;
  snprintf(named->place, sizeof named->place, "%.*s%s", (int)len, file.bytes + (file.len - len), line);
}

static void name_lua(naming_t *n, const naming_function_t *f, named_t *named) {
  place_lua(f, named);
  if (f->defined <= 0) { /* below: of LuaJIT's own library */
    snprintf(named->name, sizeof named->name, f->defined == 0 ? "main chunk" : "built-in function");
    return;
  }
  if (naming_definition(n, f, named->name) > 0) return;
  const char *base = "?";
  int len = 1;
  if (f->source != NULL && f->source_len > 1 && !is_chunk(f)) {
    const char *slash = memrchr(f->source, '/', f->source_len);
    base = slash != NULL ? slash + 1 : f->source + 1;
    len = (int)(f->source + f->source_len - base);
  }
  snprintf(named->name, sizeof named->name, "function <%.*s:%d>",
           len < NAMING_NAME / 2 ? len : NAMING_NAME / 2, base, (int)f->defined);
}

/* -- C functions ------------------------------------------------------------------------------------------------------ */

/* An identifier in the image, as modules register functions by. */
static bool read_identifier(naming_t *n, const map_t *image, uint64_t at, char *name) {
  const map_t *map = maps_find(&n->target->maps, at);
  if (map == NULL || !maps_same_file(map, image)) return false;
  size_t room = map->end - at < REGISTERED_NAME ? (size_t)(map->end - at) : REGISTERED_NAME;
  size_t got = remote_copy(n->target->remote, name, at, room), len = 0;
  while (len < got && (isalnum((unsigned char)name[len]) || name[len] == '_')) len++;
  return len > 0 && len < got && name[len] == '\0' && !isdigit((unsigned char)name[0]);
}

/* {"name", function} in the data of the program or library that the function is in. */
static bool find_registered(naming_t *n, const map_t *code_map, uint64_t code, char *name) {
  static uint64_t words[CHUNK / 8];
  const maps_t *maps = &n->target->maps;
  for (size_t i = 0; i < maps->count; i++) {
    const map_t *map = &maps->maps[i];
    if (!maps_same_file(map, code_map) || map->executable || !map->readable) continue;
    for (uint64_t at = map->start; at < map->end; at += CHUNK - 8) {
      size_t wanted = map->end - at < CHUNK ? (size_t)(map->end - at) : CHUNK;
      size_t got = remote_copy(n->target->remote, words, at, wanted);
      for (size_t k = 1; k < got / 8; k++)
        if (words[k] == code && read_identifier(n, code_map, words[k - 1], name)) return true;
      if (got < CHUNK) break;
    }
  }
  return false;
}

/* The symbol whose value is this address of the file. */
static bool find_in_table(Elf *elf, Elf_Scn *section, const GElf_Shdr *header, uint64_t address, char *name,
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

static bool find_symbol(naming_t *n, const map_t *map, uint64_t code, char *name, size_t size) {
  char path[PATH_MAX + 64];
  GElf_Shdr header;
  uint64_t address;
  bool found = false;
  maps_open_path(map, n->target->process.pid, path, sizeof path);
  elf_version(EV_CURRENT);
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
  Elf *elf = fd >= 0 ? elf_begin(fd, ELF_C_READ, NULL) : NULL;
  if (elf != NULL && address_in_file(elf, code - map->start + map->offset, &address))
    for (Elf_Scn *section = NULL; !found && (section = elf_nextscn(elf, section)) != NULL;)
      if (gelf_getshdr(section, &header) != NULL &&
          (header.sh_type == SHT_SYMTAB || header.sh_type == SHT_DYNSYM))
        found = find_in_table(elf, section, &header, address, name, size);
  elf_end(elf);
  if (fd >= 0) close(fd);
  return found;
}

static void name_c(naming_t *n, const naming_function_t *frame, named_t *named) {
  const map_t *map = maps_find(&n->target->maps, frame->code);
  char registered[REGISTERED_NAME];
  snprintf(named->place, sizeof named->place, "[C]");
  snprintf(named->name, sizeof named->name, frame->kind == WALK_BUILTIN ? "built-in function %u" : "?",
           frame->ffid);
  if (map == NULL || map->path[0] == '\0') {
    if (frame->kind != WALK_BUILTIN)
      snprintf(named->name, sizeof named->name, "C function 0x%llx", (unsigned long long)frame->code);
    return;
  }
  const char *slash = strrchr(map->path, '/'), *base = slash != NULL ? slash + 1 : map->path;
  snprintf(named->place, sizeof named->place, "[C] in %s", base);
  if (find_registered(n, map, frame->code, registered))
    snprintf(named->name, sizeof named->name, "%s", registered);
  else if (!find_symbol(n, map, frame->code, named->name, sizeof named->name) && frame->kind != WALK_BUILTIN)
    snprintf(named->name, sizeof named->name, "%.200s+0x%llx", base,
             (unsigned long long)(frame->code - maps_image(&n->target->maps, map)->start));
}

void naming_frame(naming_t *n, const naming_function_t *frame, named_t *named) {
  if (frame->kind == WALK_LUA) {
    name_lua(n, frame, named);
    return;
  }
  if (frame->kind == WALK_COLLECTOR) {
    snprintf(named->name, sizeof named->name, "collector");
    named->place[0] = '\0';
    return;
  }
  cached_t *cached = &n->cached[(frame->code >> 4) % CACHED];
  if (cached->code != frame->code || frame->code == 0) {
    name_c(n, frame, &cached->named);
    cached->code = frame->kind == WALK_BUILTIN ? 0 : frame->code; /* built-ins may share code */
  }
  *named = cached->named;
}
