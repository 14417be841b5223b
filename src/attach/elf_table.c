/* SPDX-License-Identifier: MIT */
/* Symbols in pieces; see elf_table.h. libelf gives the heads of sections, of which there are 65535 at most; it would read a section as a
 * whole, and keep it. */
#include "attach/elf_table.h"

#include <gelf.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "profile/mem.h"

enum {
  PIECE = 1024, /* symbols */
  BLOCK = 4096, /* of names, which are mostly in the order of the symbols, … */
  BLOCKS = 64   /* … but for those that are the end of another one */
};

typedef struct {
  uint64_t offset; /* in the file */
  size_t len;      /* 0: nothing */
  char bytes[BLOCK];
} block_t;

struct elf_table {
  const elf_file_t *file;
  uint32_t type;
  uint64_t bytes_left;
  Elf_Scn *section;
  uint64_t at, end;          /* in the file: of the section's symbols those that were not read */
  uint64_t names, names_len; /* in the file: those of the section */
  size_t next, count;        /* of the piece */
  Elf64_Sym piece[PIECE];
  block_t blocks[BLOCKS];
  char name[ELF_TABLE_NAME];
};

/* -- the file --------------------------------------------------------------------------------------------------------- */

/* Numbers of parts that do not fit into the head have no bound, and libelf makes room for all of them. */
static bool is_taken(const Elf64_Ehdr *header) {
  return memcmp(header->e_ident, ELFMAG, SELFMAG) == 0 && header->e_ident[EI_CLASS] == ELFCLASS64 &&
         header->e_ident[EI_DATA] == ELFDATA2LSB && header->e_phnum != PN_XNUM &&
         (header->e_shnum != 0 || header->e_shoff == 0);
}

elf_file_t elf_file_open(int fd) {
  elf_file_t file = {.fd = fd};
  Elf64_Ehdr header;
  struct stat status;
  if (fd < 0 || fstat(fd, &status) != 0 || pread(fd, &header, sizeof header, 0) != (ssize_t)sizeof header ||
      !is_taken(&header))
    return file;
  elf_version(EV_CURRENT);
  file.len = (uint64_t)status.st_size;
  file.elf = elf_begin(fd, ELF_C_READ, NULL);
  return file;
}

void elf_file_close(elf_file_t *file) {
  elf_end(file->elf);
  if (file->fd >= 0) close(file->fd);
}

/* Gives how much it was. */
static size_t read_at(elf_table_t *t, uint64_t offset, void *into, size_t size) {
  const elf_file_t *file = t->file;
  if (offset >= file->len || t->bytes_left < size) return 0;
  if (size > file->len - offset) size = (size_t)(file->len - offset);
  t->bytes_left -= size;
  if (file->bytes != NULL) {
    memcpy(into, file->bytes + offset, size);
    return size;
  }
  ssize_t got = pread(file->fd, into, size, (off_t)offset);
  return got > 0 ? (size_t)got : 0;
}

/* -- symbols ---------------------------------------------------------------------------------------------------------- */

elf_table_t *elf_table_open(const elf_file_t *file, uint32_t section_type) {
  elf_table_t *t = mem_alloc(sizeof *t);
  if (t == NULL) return NULL;
  t->file = file;
  t->type = section_type;
  t->bytes_left = ELF_TABLE_BYTES;
  return t;
}

void elf_table_close(elf_table_t *t) {
  mem_free(t);
}

static bool is_wanted(const elf_table_t *t, const GElf_Shdr *header) {
  bool is_symbols = header->sh_type == SHT_SYMTAB || header->sh_type == SHT_DYNSYM;
  return is_symbols && (t->type == SHT_NULL || t->type == header->sh_type) &&
         header->sh_entsize == sizeof(Elf64_Sym) && header->sh_offset <= t->file->len;
}

static bool next_section(elf_table_t *t) {
  GElf_Shdr header, names;
  while ((t->section = elf_nextscn(t->file->elf, t->section)) != NULL) {
    if (gelf_getshdr(t->section, &header) == NULL || !is_wanted(t, &header)) continue;
    if (gelf_getshdr(elf_getscn(t->file->elf, header.sh_link), &names) == NULL ||
        names.sh_type != SHT_STRTAB || names.sh_offset > t->file->len)
      continue;
    uint64_t room = t->file->len - header.sh_offset, names_room = t->file->len - names.sh_offset;
    t->at = header.sh_offset;
    t->end = t->at + (header.sh_size < room ? header.sh_size : room);
    t->names = names.sh_offset;
    t->names_len = names.sh_size < names_room ? names.sh_size : names_room;
    return true;
  }
  return false;
}

static bool next_piece(elf_table_t *t) {
  while (t->end - t->at < sizeof(Elf64_Sym))
    if (!next_section(t)) return false;
  uint64_t wanted = (t->end - t->at) / sizeof(Elf64_Sym);
  if (wanted > PIECE) wanted = PIECE;
  t->next = 0;
  t->count = read_at(t, t->at, t->piece, wanted * sizeof(Elf64_Sym)) / sizeof(Elf64_Sym);
  t->at += wanted * sizeof(Elf64_Sym);
  return t->count > 0;
}

bool elf_table_next(elf_table_t *t, Elf64_Sym *symbol) {
  do {
    if (t->next == t->count && !next_piece(t)) return false;
    *symbol = t->piece[t->next++];
  } while (symbol->st_shndx == SHN_UNDEF || ELF64_ST_TYPE(symbol->st_info) != STT_FUNC);
  return true;
}

/* -- names ------------------------------------------------------------------------------------------------------------ */

static const block_t *block_at(elf_table_t *t, uint64_t offset) {
  uint64_t start = offset / BLOCK * BLOCK;
  block_t *block = &t->blocks[offset / BLOCK % BLOCKS];
  if (block->len == 0 || block->offset != start) {
    block->offset = start;
    block->len = read_at(t, start, block->bytes, BLOCK);
  }
  return block;
}

const char *elf_table_name(elf_table_t *t, const Elf64_Sym *symbol) {
  uint64_t at = t->names + symbol->st_name, end = t->names + t->names_len;
  size_t used = 0;
  while (at < end && used + 1 < sizeof t->name) {
    const block_t *block = block_at(t, at);
    size_t from = (size_t)(at - block->offset);
    if (from >= block->len) return NULL;
    size_t len = block->len - from;
    if (len > end - at) len = (size_t)(end - at);
    if (len > sizeof t->name - 1 - used) len = sizeof t->name - 1 - used;
    const char *nul = memchr(block->bytes + from, '\0', len);
    if (nul != NULL) len = (size_t)(nul - (block->bytes + from));
    memcpy(t->name + used, block->bytes + from, len);
    used += len;
    at += len;
    if (nul != NULL) break;
  }
  t->name[used] = '\0';
  return used > 0 ? t->name : NULL;
}
