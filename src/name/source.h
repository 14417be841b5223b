/* SPDX-License-Identifier: MIT */
/* Names for the functions of a profile that have none, from the files they are defined in.
 *
 * Limit: a file is read as it is now. When it was changed after the program loaded it, the names are those of
 * what stands at these lines today. */
#ifndef LUAPULSE_NAME_SOURCE_H
#define LUAPULSE_NAME_SOURCE_H

#include "profile/profile.h"

/* Files above this size are not read. */
#define SOURCE_MAX_BYTES ((size_t)8 << 20)

/* The bytes of a regular file that is open, which is closed; to be freed with mem_free(). NULL when it has none to give, and where `fd` is
 * negative. */
char *source_read(int fd, size_t *len);

/* A function that is called by its place only, "file:line", gets the name that definition_name() finds there;
 * " [reload N]" behind it stays, and so does its system_name. Each file is read once. Where a file cannot be
 * read, or memory is out, names stay as they are: it never fails, and never fails the profile. For profiles
 * that are complete: functions are not found by their old names any more. */
void source_name_functions(profile_t *p);

#endif
