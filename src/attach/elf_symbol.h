/* SPDX-License-Identifier: MIT */
/* Names of C and C++ functions by the symbols of files: the program or library itself, or its debug file where that is installed. */
#ifndef LUAPULSE_ATTACH_ELF_SYMBOL_H
#define LUAPULSE_ATTACH_ELF_SYMBOL_H

#include "attach/maps.h"

/* The name of the function that begins at `code`, in the file of its mapping or in /usr/lib/debug/.build-id; as the process sees it first.
 * C++ names are as in the source ("shop::price(int)") where libstdc++ is installed here. False when there is none. */
bool elf_symbol(const map_t *map, pid_t pid, uint64_t code, char *name, size_t size);

#endif
