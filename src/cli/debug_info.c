/* SPDX-License-Identifier: MIT */
/* Structures from DWARF, by elfutils; see debug_info.h.
 *
 * The file may be anybody's: chains of types are followed a bounded number of steps, and nothing goes to the
 * network. */
#include "cli/debug_info.h"

#include <ctype.h>
#include <dwarf.h>
#include <elfutils/libdw.h>
#include <elfutils/libdwfl.h>
#include <errno.h>
#include <gelf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/debug_open.h"
#include "name/regular_file.h"
#include "profile/mem.h"

enum { MAX_STEPS = 32, BUILD_ID_BYTES = 64 };

typedef struct {
  const char *name; /* of the wanted structure */
  Dwarf_Die die;    /* a whole definition of it */
} definition_t;

struct debug_info {
  Dwfl *dwfl;
  const debug_struct_t *wanted;
  size_t wanted_count;
  definition_t *definitions;
  size_t count, room;
  GElf_Ehdr header; /* of the first module: an archive has many, all others one */
  char build_id[2 * BUILD_ID_BYTES + 1];
  size_t modules, with_debug; /* numbers of them */
  bool out_of_memory;
};

/* -- types ------------------------------------------------------------------------------------------------ */

/* What is left of a type without typedefs and qualifiers; false when it is void or endless. */
static bool type_of(Dwarf_Die *die, Dwarf_Die *type) {
  Dwarf_Die at = *die;
  for (int i = 0; i < MAX_STEPS; i++) {
    Dwarf_Attribute attribute;
    if (dwarf_attr_integrate(&at, DW_AT_type, &attribute) == NULL ||
        dwarf_formref_die(&attribute, type) == NULL)
      return false;
    int tag = dwarf_tag(type);
    if (tag != DW_TAG_typedef && tag != DW_TAG_const_type && tag != DW_TAG_volatile_type &&
        tag != DW_TAG_restrict_type && tag != DW_TAG_atomic_type)
      return true;
    at = *type;
  }
  return false;
}

static bool is_structure(Dwarf_Die *die) {
  int tag = dwarf_tag(die);
  return tag == DW_TAG_structure_type || tag == DW_TAG_union_type;
}

/* Where a member begins. Members of unions say nothing, DWARF 2 says it as an expression. */
static bool member_offset(Dwarf_Die *member, uint64_t *offset) {
  Dwarf_Attribute attribute;
  Dwarf_Op *operations;
  Dwarf_Word number;
  size_t count;
  *offset = 0;
  if (dwarf_attr(member, DW_AT_data_member_location, &attribute) == NULL) return true;
  if (dwarf_formudata(&attribute, &number) == 0) {
    *offset = number;
    return true;
  }
  if (dwarf_getlocation(&attribute, &operations, &count) != 0 || count != 1 ||
      operations[0].atom != DW_OP_plus_uconst)
    return false;
  *offset = operations[0].number;
  return true;
}

/* The member `path` leads to; *offset is from the beginning of the structure. */
static bool find_member(Dwarf_Die *structure, const char *path, int depth, uint64_t *offset,
                        Dwarf_Die *found) {
  size_t len = strcspn(path, ".");
  Dwarf_Die member, type;
  if (depth == MAX_STEPS || dwarf_child(structure, &member) != 0) return false;
  do {
    const char *name = dwarf_diename(&member);
    bool named = name != NULL && strlen(name) == len && memcmp(name, path, len) == 0;
    uint64_t inside;
    if (dwarf_tag(&member) != DW_TAG_member || (name != NULL && !named) || !member_offset(&member, offset))
      continue;
    if (named && path[len] == '\0') {
      *found = member;
      return true;
    }
    if (type_of(&member, &type) && is_structure(&type) &&
        find_member(&type, named ? path + len + 1 : path, depth + 1, &inside, found)) {
      *offset += inside;
      return true;
    }
  } while (dwarf_siblingof(&member, &member) == 0);
  return false;
}

/* -- collecting ------------------------------------------------------------------------------------------- */

static void add_definition(debug_info_t *info, const char *name, Dwarf_Die *structure) {
  if (!mem_reserve((void **)&info->definitions, &info->room, info->count + 1, sizeof *info->definitions)) {
    info->out_of_memory = true;
    return;
  }
  info->definitions[info->count++] = (definition_t){name, *structure};
}

/* Keeps the DIE when it is a whole definition of a structure that is wanted. */
static void consider(debug_info_t *info, Dwarf_Die *die) {
  const char *name = dwarf_diename(die);
  Dwarf_Die structure = *die, member;
  uint64_t offset;
  if (name == NULL) return;
  /* a typedef counts only where the structure has no name of its own */
  if (dwarf_tag(die) == DW_TAG_typedef && (!type_of(die, &structure) || dwarf_diename(&structure) != NULL))
    return;
  if (!is_structure(&structure) || dwarf_hasattr(&structure, DW_AT_declaration)) return;
  for (size_t i = 0; i < info->wanted_count; i++)
    if (strcmp(info->wanted[i].name, name) == 0 &&
        find_member(&structure, info->wanted[i].mark, 0, &offset, &member)) {
      add_definition(info, info->wanted[i].name, &structure);
      return;
    }
}

static void collect(debug_info_t *info, Dwarf *dwarf) {
  Dwarf_CU *unit = NULL;
  Dwarf_Die top, split, die;
  uint8_t kind;
  while (dwarf_get_units(dwarf, unit, &unit, NULL, &kind, &top, &split) == 0) {
    if (kind == DW_UT_skeleton && split.addr != NULL) top = split;
    if (dwarf_child(&top, &die) != 0) continue;
    do consider(info, &die);
    while (dwarf_siblingof(&die, &die) == 0);
  }
}

static int collect_module(Dwfl_Module *module, void **user, const char *name, Dwarf_Addr base,
                          void *context) {
  debug_info_t *info = context;
  GElf_Addr bias, address;
  const unsigned char *id;
  (void)user, (void)name, (void)base;
  Elf *elf = dwfl_module_getelf(module, &bias);
  if (info->modules++ == 0 && elf != NULL) {
    gelf_getehdr(elf, &info->header);
    int len = dwfl_module_build_id(module, &id, &address);
    for (size_t i = 0; len > 0 && i < (size_t)len && i < BUILD_ID_BYTES; i++)
      snprintf(info->build_id + 2 * i, 3, "%02x", (unsigned)id[i]);
  }
  Dwarf *dwarf = dwfl_module_getdwarf(module, &bias);
  if (dwarf == NULL) return DWARF_CB_OK;
  info->with_debug++;
  collect(info, dwarf);
  /* what dwz moved to a file that several share */
  Dwarf *shared = dwarf_getalt(dwarf);
  if (shared != NULL) collect(info, shared);
  return DWARF_CB_OK;
}

/* -- opening ---------------------------------------------------------------------------------------------- */

static int open_file(const char *path, failure_t *failure) {
  int fd = regular_file_open(path);
  if (fd == REGULAR_FILE_OTHER)
    failure_set(failure, "%s: is not a regular file", path);
  else if (fd < 0)
    failure_set(failure, "%s: cannot be opened: %s", path, strerror(errno));
  return fd;
}

static bool report(debug_info_t *info, const char *path, failure_t *failure) {
  static const Dwfl_Callbacks callbacks = {
      .find_debuginfo = dwfl_standard_find_debuginfo,
      .section_address = dwfl_offline_section_address,
  };
  int fd = open_file(path, failure);
  if (fd < 0) return false;
  unsetenv("DEBUGINFOD_URLS"); /* elfutils would ask servers there */
  info->dwfl = dwfl_begin(&callbacks);
  if (info->dwfl == NULL || dwfl_report_offline(info->dwfl, path, path, fd) == NULL) {
    failure_set(failure, "%s: is no program, library or debug file: %s", path, dwfl_errmsg(-1));
    close(fd); /* elfutils takes it only when all is well */
    return false;
  }
  dwfl_report_end(info->dwfl, NULL, NULL);
  return true;
}

static bool check(const debug_info_t *info, const char *path, failure_t *failure) {
  const char *advice = "install its -dbgsym package, or build it with -g";
  if (info->out_of_memory) return failure_set(failure, "%s: memory is out", path);
  if (info->modules > 0 && info->header.e_ident[EI_CLASS] != ELFCLASS64)
    return failure_set(failure, "%s: is not a 64-bit file; layouts are of 64-bit programs", path);
  if (info->with_debug > 0) return true;
  if (info->build_id[0] == '\0')
    return failure_set(failure,
                       "%s: has no debug information (.debug_info), and no build-id to find it by; %s", path,
                       advice);
  return failure_set(failure,
                     "%s: has no debug information (.debug_info), and /usr/lib/debug/.build-id/%.2s/%s.debug "
                     "is not there; %s",
                     path, info->build_id, info->build_id + 2, advice);
}

debug_info_t *debug_info_open(const char *path, const debug_struct_t *wanted, size_t count,
                              failure_t *failure) {
  debug_info_t *info = mem_alloc(sizeof *info);
  if (info == NULL) {
    failure_set(failure, "%s: memory is out", path);
    return NULL;
  }
  info->wanted = wanted;
  info->wanted_count = count;
  debug_open_regular_only(true);
  if (report(info, path, failure)) {
    dwfl_getmodules(info->dwfl, collect_module, info, 0);
    if (check(info, path, failure)) return info;
  }
  debug_info_close(info);
  return NULL;
}

void debug_info_close(debug_info_t *info) {
  if (info == NULL) return;
  debug_open_regular_only(false);
  if (info->dwfl != NULL) dwfl_end(info->dwfl);
  mem_free(info->definitions);
  mem_free(info);
}

/* -- asking ----------------------------------------------------------------------------------------------- */

static bool place_in(Dwarf_Die *structure, const char *member, uint64_t *place) {
  Dwarf_Die found;
  if (member != NULL) return find_member(structure, member, 0, place, &found);
  int size = dwarf_bytesize(structure);
  *place = size > 0 ? (uint64_t)size : 0;
  return size > 0;
}

debug_result_t debug_info_place(const debug_info_t *info, const char *structure, const char *member,
                                uint64_t *place) {
  debug_result_t result = DEBUG_ABSENT;
  for (size_t i = 0; i < info->count; i++) {
    Dwarf_Die die = info->definitions[i].die;
    uint64_t here;
    if (strcmp(info->definitions[i].name, structure) != 0 || !place_in(&die, member, &here)) continue;
    if (result == DEBUG_FOUND && here != *place) return DEBUG_DIFFERS;
    result = DEBUG_FOUND;
    *place = here;
  }
  return result;
}

/* Of the first definition that has the member. */
static bool type_of_member(const debug_info_t *info, const char *structure, const char *member,
                           Dwarf_Die *type) {
  for (size_t i = 0; i < info->count; i++) {
    Dwarf_Die die = info->definitions[i].die, found;
    uint64_t offset;
    if (strcmp(info->definitions[i].name, structure) == 0 && find_member(&die, member, 0, &offset, &found))
      return type_of(&found, type);
  }
  return false;
}

bool debug_info_is_pointer(const debug_info_t *info, const char *structure, const char *member) {
  Dwarf_Die type;
  return type_of_member(info, structure, member, &type) && dwarf_tag(&type) == DW_TAG_pointer_type;
}

uint64_t debug_info_bytes(const debug_info_t *info, const char *structure, const char *member) {
  Dwarf_Die type;
  int size = type_of_member(info, structure, member, &type) ? dwarf_bytesize(&type) : 0;
  return size > 0 ? (uint64_t)size : 0;
}

const char *debug_info_build_id(const debug_info_t *info) {
  return info->build_id;
}

int debug_info_machine(const debug_info_t *info) {
  return info->header.e_machine;
}

typedef struct {
  const char *prefix;
  char *text;
  size_t size;
} constant_t;

static bool copy_constant(const constant_t *constant, const char *bytes, size_t len) {
  size_t prefix_len = strlen(constant->prefix), used = 0;
  const char *at = memmem(bytes, len, constant->prefix, prefix_len);
  if (at == NULL) return false;
  for (at += prefix_len; at < bytes + len && used + 1 < constant->size; at++) {
    if (!isalnum((unsigned char)*at) && *at != '.' && *at != '-') break;
    constant->text[used++] = *at;
  }
  constant->text[used] = '\0';
  return used > 0;
}

static int search_module(Dwfl_Module *module, void **user, const char *name, Dwarf_Addr base, void *context) {
  GElf_Addr bias;
  GElf_Shdr header;
  (void)user, (void)name, (void)base;
  Elf *elf = dwfl_module_getelf(module, &bias);
  for (Elf_Scn *section = NULL; elf != NULL && (section = elf_nextscn(elf, section)) != NULL;) {
    if (gelf_getshdr(section, &header) == NULL || header.sh_type != SHT_PROGBITS ||
        (header.sh_flags & (SHF_ALLOC | SHF_EXECINSTR)) != SHF_ALLOC)
      continue;
    Elf_Data *data = elf_rawdata(section, NULL);
    if (data != NULL && data->d_buf != NULL && copy_constant(context, data->d_buf, data->d_size))
      return DWARF_CB_ABORT;
  }
  return DWARF_CB_OK;
}

bool debug_info_constant(const debug_info_t *info, const char *prefix, char *text, size_t size) {
  constant_t constant = {prefix, text, size};
  text[0] = '\0';
  dwfl_getmodules(info->dwfl, search_module, &constant, 0);
  return text[0] != '\0';
}
