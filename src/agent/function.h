/* SPDX-License-Identifier: MIT */
/* Which function is that? Metadata (file, lines, name) is copied into the live tables at first sight; a
 * bounded cache leads from the function's address to its entry. Addresses are reused when code is collected
 * and reloaded, so every hit is checked: source, lines, and at least once a second a fingerprint of the code.
 */
#ifndef LUAPULSE_AGENT_FUNCTION_H
#define LUAPULSE_AGENT_FUNCTION_H

#include "agent/lua_version.h"
#include "profile/live.h"

struct vm;

/* How good a name is; a better one replaces it. Names from package.loaded are better the more a module is their place and the
 * shorter they are, so ranks go on above NAME_LOADED. */
enum {
  NAME_PLACE = 0,      /* file:line, or the symbol or address of a C function */
  NAME_CALL_SITE = 1,  /* what the first caller seen calls it */
  NAME_DEFINITION = 1, /* what its definition calls it */
  NAME_LOADED = 2,     /* where package.loaded or the globals hold it, + where and how short */
  NAME_FINAL = 1000    /* main chunk */
};

typedef struct {
  const void *key;    /* closure of a Lua function, address of a C function; NULL: free */
  const char *source; /* as lua_getinfo gave it; compared, never followed */
  char source_head[32];
  int32_t line, last_line;
  uint32_t code;
  live_ref_t function;
  uint64_t checked; /* monotonic time of the last look at the code, ns */
  uint32_t sightings;
} function_entry_t;

enum { FUNCTION_SETS = 512, FUNCTION_WAYS = 4 };

typedef struct {
  function_entry_t entries[FUNCTION_SETS][FUNCTION_WAYS];
} function_cache_t;

/* The live function of the frame `ar` at `level`, whose "S" fields are filled in and whose function lies on
 * top of L (and stays). 0 when the tables are full. Runs in hooks: no allocation. */
live_ref_t function_of_frame(struct vm *vm, lua_State *L, lua_Debug *ar, int level);

/* The cached entry of the function on top of L, or NULL. */
function_entry_t *function_cached(struct vm *vm, lua_State *L);
/* Names it when `rank` (above) beats the name it has. */
void function_name(struct vm *vm, live_ref_t function, const char *name, size_t len, uint32_t rank);

#endif
