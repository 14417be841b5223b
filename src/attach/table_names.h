/* SPDX-License-Identifier: MIT */
/* The best name of each function that tables lead to. */
#ifndef LUAPULSE_ATTACH_TABLE_NAMES_H
#define LUAPULSE_ATTACH_TABLE_NAMES_H

#include "walk/walk.h"

enum { NAME_BYTES = 128, NAMES_MOST = 1 << 14 };

/* What holds the function, from the best names to the worst. */
typedef enum {
  NAME_OF_MODULE,    /* a module of package.loaded itself: "string.find" */
  NAME_IN_MODULE,    /* a table in a module: "ngx.req.get_headers" */
  NAME_GLOBAL,       /* a global, or a table in the globals: "print", "Account.deposit" */
  NAME_OF_METATABLE, /* of a C library's objects: "file:read" */
  NAME_INHERITED,    /* a metatable, or what __index leads to */
  NAME_CLASSES
} name_class_t;

typedef struct {
  uint64_t key; /* 0: free */
  uint32_t mark;
  uint8_t class; /* name_class_t */
  uint8_t len;
  uint32_t text; /* where in `texts` it begins; a zero follows it */
} table_name_t;

typedef struct {
  table_name_t *slots;
  size_t room, count;
  char *texts;
  size_t text_bytes, text_room;
} table_names_t;

void table_names_free(table_names_t *names);
/* False when memory is out. Past NAMES_MOST functions, or 768 KiB of names, nothing is entered. */
bool table_names_add(table_names_t *names, const walk_frame_t *frame, name_class_t class, const char *name,
                     size_t len);
const char *table_names_find(const table_names_t *names, const walk_frame_t *frame);
/* LuaJIT: what no table holds: the functions that ipairs, coroutine.wrap and string.gmatch return, the metamethods of cdata and ffi.C. */
void table_names_add_hidden(table_names_t *names);

bool name_is_better(name_class_t class, const char *name, size_t len, name_class_t than_class,
                    const char *than, size_t than_len);

#endif
