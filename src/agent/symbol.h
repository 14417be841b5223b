/* SPDX-License-Identifier: MIT */
/* The name of a C function out of the symbol tables of loaded programs and libraries. Async-signal-safe: asks the loader by
 * _dl_find_object, which takes no lock, and reads the tables in memory. */
#ifndef LUAPULSE_AGENT_SYMBOL_H
#define LUAPULSE_AGENT_SYMBOL_H

#include <stddef.h>
#include <stdint.h>

/* "luaopen_cjson", else "cjson.so+0x12a0", else "C function 0x…". Returns its length. The function is on a stack, so what
 * it is part of is loaded. */
size_t symbol_name(uint64_t address, char *name, size_t size);

#endif
