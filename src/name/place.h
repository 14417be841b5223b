/* SPDX-License-Identifier: MIT */
/* Where a Lua function is from, as profiles tell it: the file of its source, and file and line in place of a name.
 * Async-signal-safe: no allocation, no stdio. */
#ifndef LUAPULSE_NAME_PLACE_H
#define LUAPULSE_NAME_PLACE_H

#include <stddef.h>
#include <stdint.h>

enum {
  PLACE_NAME = 256, /* room for a name */
  PLACE_CHUNK = 60, /* room for the file of a chunk that has none */
  PLACE_FILE = 4096 /* bytes of a file's name at most */
};

typedef struct {
  const char *bytes;
  size_t len;
} place_t;

/* The file of a source as Lua keeps it: "@file" and "=name" without their sign, a text as `[string "its first line..."]`, made in
 * `chunk`; "?" when there is none. */
place_t place_file(const char *source, size_t len, char chunk[PLACE_CHUNK]);
/* "file:line", of a long file its end; gives the length. There is no NUL behind it. */
size_t place_name(place_t file, int32_t line, char name[PLACE_NAME]);

#endif
