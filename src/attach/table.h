/* SPDX-License-Identifier: MIT */
/* One Lua table out of raw memory: its string keys, and what they lead to.
 *
 * The process may run meanwhile. What was read is whole or not there, as far as can be told: an entry counts when it is found the same
 * twice, and what a value leads to must call itself what the value says. */
#ifndef LUAPULSE_ATTACH_TABLE_H
#define LUAPULSE_ATTACH_TABLE_H

#include "walk/walk.h"

enum { TABLE_MOST_NODES = 1 << 24, TABLE_KEY = 64 };

typedef enum { VALUE_OTHER, VALUE_STRING, VALUE_TABLE, VALUE_FUNCTION, VALUE_LIGHT_FUNCTION } value_kind_t;

typedef struct {
  value_kind_t kind;
  uint64_t at; /* the object; VALUE_LIGHT_FUNCTION: the code */
} value_t;

/* The value at an address. False when that cannot be read. */
bool table_value(walk_t *walk, uint64_t at, value_t *value);

typedef struct {
  uint64_t address;
  uint64_t nodes;
  uint32_t node_count;
  uint64_t array;
  uint32_t array_count; /* slots that are there for certain; LuaJIT: 0, its array is not looked at */
  uint64_t metatable;   /* 0: none */
} table_t;

/* True when the layout says where tables are; otherwise nothing below works. */
bool table_is_known(const layout_t *layout);
/* The registry and the globals of a VM. False when no table is found there. */
bool table_registry(walk_t *walk, uint64_t global, uint64_t *table);
bool table_globals(walk_t *walk, uint64_t global, uint64_t *table);

bool table_open(walk_t *walk, uint64_t address, table_t *table);

typedef struct {
  uint32_t node;
  value_t key, value;
  char text[TABLE_KEY]; /* the key, ended by a zero */
  uint32_t len;
} table_entry_t;

/* Copies the next entry at or after *node whose value is a function or a table and whose key is a word: *node moves on. At most `most`
 * nodes are looked at. False when there is none left. */
bool table_next(walk_t *walk, const table_t *table, uint32_t most, uint32_t *node, table_entry_t *entry);
/* Whether it has an entry of that name, among as many nodes. */
bool table_has(walk_t *walk, uint64_t address, const char *key, uint32_t most);
/* The value of a key among as many nodes: of a string by its object, which must be a short one or LuaJIT's, or by its text, then functions
 * and tables alone. False when there is none. */
bool table_get(walk_t *walk, uint64_t address, uint64_t key, uint32_t most, value_t *value);
bool table_get_text(walk_t *walk, uint64_t address, const char *key, uint32_t most, value_t *value);
/* Whether the entry is still there. Call memory->forget() between the two. */
bool table_confirms(walk_t *walk, const table_t *table, const table_entry_t *entry);

/* PUC Lua with tags of four bytes (5.1): a mark of the functions that it has by number, as luaL_ref() keeps them, which other functions or
 * other numbers change. False when there is none, or it cannot be read. */
bool table_numbered(walk_t *walk, uint64_t address, uint64_t *mark);

/* Which function it is, as frames of stacks tell it: kind, function, proto and mark, code, ffid. */
bool table_function(walk_t *walk, const value_t *value, walk_frame_t *frame);
/* PUC Lua: whether a C function is a closure over a coroutine and nothing else, as coroutine.wrap returns it. */
bool table_wraps_coroutine(walk_t *walk, uint64_t function);

#endif
