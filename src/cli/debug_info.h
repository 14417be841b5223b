/* SPDX-License-Identifier: MIT */
/* Structures of a program as its debug information (DWARF) tells them: where members are, how large a structure is.
 *
 * Structures are asked for by name before the file is read. A name may have many definitions (one in every compiled
 * file): those that say the same count as one, others are reported, never chosen between. */
#ifndef LUAPULSE_CLI_DEBUG_INFO_H
#define LUAPULSE_CLI_DEBUG_INFO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "profile/failure.h"

typedef struct {
  const char *name; /* of a struct or union, by tag or by typedef */
  const char *mark; /* a member: a structure of that name without it is another one and is not seen */
} debug_struct_t;

typedef struct debug_info debug_info_t;

typedef enum {
  DEBUG_FOUND,
  DEBUG_ABSENT,  /* no such structure, or none with such a member */
  DEBUG_DIFFERS, /* definitions of that name disagree */
} debug_result_t;

/* Reads a 64-bit ELF file, its separate debug file being found by debug link or build-id. `wanted` must outlive the
 * result. NULL with a message that begins with the path. */
debug_info_t *debug_info_open(const char *path, const debug_struct_t *wanted, size_t count,
                              failure_t *failure);
void debug_info_close(debug_info_t *info); /* NULL is allowed */

/* The offset in bytes of a member ("u.l.savedpc": through members by name, through nameless ones by itself), or with
 * member NULL the structure's size. */
debug_result_t debug_info_place(const debug_info_t *info, const char *structure, const char *member,
                                uint64_t *place);
bool debug_info_is_pointer(const debug_info_t *info, const char *structure, const char *member);
/* How many bytes a member has; 0 when it is not there. */
uint64_t debug_info_bytes(const debug_info_t *info, const char *structure, const char *member);

const char *debug_info_build_id(const debug_info_t *info); /* in hexadecimal; "" when there is none */
int debug_info_machine(const debug_info_t *info);          /* EM_X86_64, … */

/* Copies what follows `prefix` in the constant data of the file, as long as it is letters, digits, dots and hyphens.
 * False when it does not occur; a separate debug file has no such data. */
bool debug_info_constant(const debug_info_t *info, const char *prefix, char *text, size_t size);

#endif
