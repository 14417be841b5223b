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
#include <time.h>
#include <unistd.h>

#include "attach/tables.h"
#include "name/definition.h"
#include "name/source.h"
#include "profile/mem.h"

enum { CACHED = 256, CHUNK = 65536, MOST_SYMBOLS = 1 << 20, SHOWN_CHUNK = 60, REGISTERED_NAME = 64 };
enum { TABLES_NS = 1000000000 /* for the tables of all VMs together */ };

typedef struct {
  bool asked;
  char *text; /* of the file, NULL: it cannot be read */
  size_t len;
} file_t;

typedef struct {
  uint64_t code;
  named_t named;
} cached_t;

struct naming {
  target_t *target;
  const snapshot_t *snapshot;
  tables_t *tables;
  file_t *files;    /* by source */
  cached_t *cached; /* C functions, by address */
};

static int64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void read_tables(naming_t *n, const runtimes_t *runtimes) {
  int64_t deadline = now() + TABLES_NS;
  for (size_t i = 0; i < n->snapshot->vm_count; i++) {
    const snapshot_vm_t *vm = &n->snapshot->vms[i];
    target_aim(n->target, runtimes->runtimes[vm->runtime].layout, NULL);
    tables_read(n->tables, n->target->walk, vm->global, deadline);
  }
}

static const char *name_by_tables(const naming_t *n, const snapshot_frame_t *frame) {
  const walk_frame_t asked = {.kind = (uint16_t)frame->kind,
                              .proto = frame->proto,
                              .mark = frame->mark,
                              .code = frame->code,
                              .ffid = (uint16_t)frame->ffid};
  return tables_name(n->tables, &asked);
}

naming_t *naming_open(target_t *target, const runtimes_t *runtimes, const snapshot_t *snapshot) {
  naming_t *n = mem_alloc(sizeof *n);
  if (n == NULL) return NULL;
  n->target = target;
  n->snapshot = snapshot;
  n->files = mem_alloc((snapshot->source_count + 1) * sizeof *n->files);
  n->cached = mem_alloc(CACHED * sizeof *n->cached);
  n->tables = tables_new();
  if (n->files == NULL || n->cached == NULL || n->tables == NULL) {
    naming_close(n);
    return NULL;
  }
  remote_forget(target->remote); /* the process runs */
  read_tables(n, runtimes);
  return n;
}

void naming_close(naming_t *n) {
  if (n == NULL) return;
  for (size_t i = 0; n->files != NULL && i < n->snapshot->source_count; i++) mem_free(n->files[i].text);
  tables_free(n->tables);
  mem_free(n->files);
  mem_free(n->cached);
  mem_free(n);
}

/* -- Lua functions ------------------------------------------------------------------------------------------------- */

/* The text that the lines of a source count in. */
static const file_t *text_of(naming_t *n, uint32_t index) {
  const snapshot_source_t *source = &n->snapshot->sources[index];
  file_t *file = &n->files[index];
  char path[PATH_MAX + 64];
  if (file->asked) return file;
  file->asked = true;
  if (source->len < 2 || source->text[0] != '@' || source->len > PATH_MAX ||
      memchr(source->text, '\0', source->len) != NULL)
    return file;
  const char *name = source->text + 1;
  snprintf(path, sizeof path, "/proc/%d/%s%.*s", (int)n->target->process.pid,
           name[0] == '/' ? "root" : "cwd/", (int)source->len - 1, name);
  file->text = source_read_file(path, &file->len);
  return file;
}

static void name_lua(naming_t *n, const snapshot_frame_t *frame, named_t *named) {
  const snapshot_source_t *source =
      frame->source < SNAPSHOT_SOURCES ? &n->snapshot->sources[frame->source] : NULL;
  char line[16] = "";
  if (frame->line > 0) snprintf(line, sizeof line, ":%d", (int)frame->line);
  if (source == NULL || source->len == 0) {
    snprintf(named->place, sizeof named->place, "?%s", line);
  } else if (source->text[0] == '@' || source->text[0] == '=') {
    size_t len = source->len - 1, most = sizeof named->place - sizeof line, cut = len > most ? len - most : 0;
    snprintf(named->place, sizeof named->place, "%.*s%s", (int)(len - cut), source->text + 1 + cut, line);
  } else {
    size_t len = 0;
    while (len < source->len && len < SHOWN_CHUNK && source->text[len] != '\n') len++;
    snprintf(named->place, sizeof named->place, "[string \"%.*s%s\"]%s", (int)len, source->text,
             len < source->len ? "..." : "", line);
  }
  named->name[0] = '\0';
  const char *held = frame->defined != 0 ? name_by_tables(n, frame) : NULL;
  if (frame->defined == 0) {
    snprintf(named->name, sizeof named->name, "main chunk");
  } else if (frame->defined < 0) { /* of LuaJIT's own library */
    snprintf(named->name, sizeof named->name, "%s", held != NULL ? held : "built-in function");
  } else if (source != NULL && source->len > 0 && source->text[0] != '=') {
    bool chunk = source->text[0] != '@';
    const file_t *file = chunk ? NULL : text_of(n, frame->source);
    const char *text = chunk ? source->text : file->text;
    if (text != NULL)
      definition_name(text, chunk ? source->len : file->len, (uint32_t)frame->defined, named->name,
                      sizeof named->name);
  }
  if (named->name[0] == '\0' && held != NULL) snprintf(named->name, sizeof named->name, "%s", held);
  if (named->name[0] != '\0') return;
  const char *base = "?";
  int len = 1;
  if (source != NULL && source->len > 1 && (source->text[0] == '@' || source->text[0] == '=')) {
    const char *slash = memrchr(source->text, '/', source->len);
    base = slash != NULL ? slash + 1 : source->text + 1;
    len = (int)(source->text + source->len - base);
  }
  snprintf(named->name, sizeof named->name, "function <%.*s:%d>",
           len < NAMING_NAME / 2 ? len : NAMING_NAME / 2, base, (int)frame->defined);
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

static void name_c(naming_t *n, const snapshot_frame_t *frame, named_t *named) {
  const map_t *map = maps_find(&n->target->maps, frame->code);
  const char *held = name_by_tables(n, frame);
  char registered[REGISTERED_NAME];
  snprintf(named->place, sizeof named->place, "[C]");
  snprintf(named->name, sizeof named->name, frame->kind == WALK_BUILTIN ? "built-in function %u" : "?",
           frame->ffid);
  if (map == NULL || map->path[0] == '\0') {
    if (held != NULL)
      snprintf(named->name, sizeof named->name, "%s", held);
    else if (frame->kind != WALK_BUILTIN)
      snprintf(named->name, sizeof named->name, "C function 0x%llx", (unsigned long long)frame->code);
    return;
  }
  const char *slash = strrchr(map->path, '/'), *base = slash != NULL ? slash + 1 : map->path;
  snprintf(named->place, sizeof named->place, "[C] in %s", base);
  if (held != NULL)
    snprintf(named->name, sizeof named->name, "%s", held);
  else if (find_registered(n, map, frame->code, registered))
    snprintf(named->name, sizeof named->name, "%s", registered);
  else if (!find_symbol(n, map, frame->code, named->name, sizeof named->name) && frame->kind != WALK_BUILTIN)
    snprintf(named->name, sizeof named->name, "%.200s+0x%llx", base,
             (unsigned long long)(frame->code - maps_image(&n->target->maps, map)->start));
}

void naming_frame(naming_t *n, const snapshot_frame_t *frame, named_t *named) {
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
