/* SPDX-License-Identifier: MIT */
/* Which Lua says in its constant data that it is there. The texts survive stripping, renaming and static linking; names of files
 * mean nothing. What is said is a claim: it chooses the layouts that are tried, the process decides. */
#ifndef LUAPULSE_ATTACH_IDENT_H
#define LUAPULSE_ATTACH_IDENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { IDENT_MAX = 8, IDENT_TEXT = 48, IDENT_PLACE = 256 };

typedef struct {
  uint8_t family;          /* layout_family_t */
  uint8_t language;        /* 51 … 55 */
  bool sure;               /* a Lua's own mark; false: only "Lua 5.4", which modules may have too */
  char text[IDENT_TEXT];   /* "Lua 5.4.4", "LuaJIT 2.1.0-beta3" */
  char place[IDENT_PLACE]; /* the file it was found in, cut at its beginning */
  uint64_t at;             /* address, or offset in a file */
} ident_t;

typedef struct {
  ident_t idents[IDENT_MAX];
  size_t count;
  size_t images;  /* looked at */
  uint64_t bytes; /* likewise */
  bool cut;       /* not all could be looked at */
} idents_t;

/* Looks through bytes of which the first is at `at`; `place` names them. Each Lua is entered once. */
void ident_search(idents_t *idents, const char *bytes, size_t len, uint64_t at, const char *place);
/* Takes out what is not sure where something is. */
void ident_settle(idents_t *idents);

#endif
