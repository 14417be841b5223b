/* SPDX-License-Identifier: MIT */
/* The symbols of an ELF file, one after another.
 *
 * Whatever the file says of itself, no more than a few hundred KiB of it are in memory at once, and no more than ELF_TABLE_BYTES are read in
 * one go through it: sections may be as large as the file, lie one over the other, and be many. Only 64-bit files of this machine's order
 * of bytes are taken. */
#ifndef LUAPULSE_ATTACH_ELF_TABLE_H
#define LUAPULSE_ATTACH_ELF_TABLE_H

#include <elf.h>
#include <libelf.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Browsers have symbols of 30 MiB, with names of 100. */
#define ELF_TABLE_BYTES ((uint64_t)256 << 20)
enum { ELF_TABLE_NAME = 1024 /* of a longer one that much is told, its NUL included */ };

typedef struct {
  Elf *elf;             /* NULL: it is no such file */
  int fd;               /* negative: none */
  const uint8_t *bytes; /* of the whole file, where it is in memory already, else NULL */
  uint64_t len;
} elf_file_t;

/* Takes a descriptor, which may be negative. */
elf_file_t elf_file_open(int fd);
void elf_file_close(elf_file_t *file);

typedef struct elf_table elf_table_t;

/* Goes through the sections of that type: SHT_SYMTAB, SHT_DYNSYM, or SHT_NULL for both. The file stays open as long. NULL when memory is out. */
elf_table_t *elf_table_open(const elf_file_t *file, uint32_t section_type);
void elf_table_close(elf_table_t *table); /* NULL is allowed */
/* The next function that is defined in the file. False when there is none, or enough was read. */
bool elf_table_next(elf_table_t *table, Elf64_Sym *symbol);
/* The name of it, until the next call; NULL: it has none. */
const char *elf_table_name(elf_table_t *table, const Elf64_Sym *symbol);

#endif
