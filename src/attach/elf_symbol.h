/* SPDX-License-Identifier: MIT */
/* Names of C and C++ functions by the symbols of files: the program or library itself, or its debug file where that is installed. */
#ifndef LUAPULSE_ATTACH_ELF_SYMBOL_H
#define LUAPULSE_ATTACH_ELF_SYMBOL_H

#include "attach/elf_table.h"
#include "attach/maps.h"

/* The name of the function that begins at `code`, in the file of its mapping or in /usr/lib/debug/.build-id; as the process sees it first.
 * C++ names are as in the source ("shop::price(int)") where libstdc++ is installed here. False when there is none. */
bool elf_symbol(const map_t *map, pid_t pid, uint64_t code, char *name, size_t size);

/* Calls `each` for every function in the symbols of the file of a mapping, or of its debug file where it has none; `start` is its address in
 * the process. `known`: an address in the mapping that something of the file is at. */
typedef void elf_each_t(void *context, const char *name, uint64_t start, uint64_t size);
void elf_functions(const map_t *map, uint64_t known, pid_t pid, elf_each_t *each, void *context);
/* The same for a file that is open, and the symbols of a section of that type: SHT_SYMTAB, or SHT_DYNSYM, of those that others may link with.
 * False when there was none. */
bool elf_each_function(const elf_file_t *file, uint32_t section_type, uint64_t bias, elf_each_t *each,
                       void *context);
/* Calls `use` with the file itself; `bias`: what its addresses are to be raised by. */
typedef void elf_use_t(void *context, const elf_file_t *file, uint64_t bias);
void elf_file(const map_t *map, uint64_t known, pid_t pid, elf_use_t *use, void *context);

#endif
