/* SPDX-License-Identifier: MIT */
/* Names for the functions of a process, while it runs.
 *
 * Lua functions are named by their definition in the source: its text where the chunk is one, else the file as the process sees it
 * (target_file.h); else by where the program's tables keep them (tables.h); else by what their caller calls them
 * (caller_name.h). C functions and LuaJIT's built-ins by those
 * tables, else by the name they were registered with (luaL_Reg), else by symbol, else by file and offset. Tables are read when they are
 * first wanted, and again for functions that are in none of them, but for a small share of the time only.
 * Files are anybody's: only regular ones are opened, and those of bounded size read. */
#ifndef LUAPULSE_ATTACH_NAMING_H
#define LUAPULSE_ATTACH_NAMING_H

#include "attach/runtime.h"

enum { NAMING_NAME = 256, NAMING_PLACE = 1024 };

typedef struct naming naming_t;

/* For the target as it is now; it must stay open as long, and so must the runtimes, whose VMs' tables are read. NULL when memory is
 * out. */
naming_t *naming_open(target_t *target, const runtimes_t *runtimes);
void naming_close(naming_t *naming);
/* Another target is asked for next: of the texts of files only a little stays at hand. */
void naming_rest(naming_t *naming);

/* A function on a stack, by what was read of it. */
typedef struct {
  uint32_t kind;         /* walk_kind_t */
  uint32_t ffid;         /* WALK_BUILTIN */
  uint64_t code;         /* WALK_C, WALK_BUILTIN */
  uint64_t function;     /* WALK_C: its object, 0: none, or not known */
  uint64_t proto;        /* WALK_LUA: the prototype, and … */
  uint32_t mark;         /* … walk_mark() of it */
  int32_t line, defined; /* WALK_LUA: at work, of definition; 0 when unknown, defined 0: a main chunk */
  const char
      *source; /* WALK_LUA: as Lua keeps it, "@file", "=name" or a text; NULL when it could not be read */
  size_t source_len;
  const walk_frame_t *frame,
      *caller;    /* WALK_LUA: as walks mark them, itself and who called it; NULL when unknown */
  size_t runtime; /* the index of their Lua */
} naming_function_t;

typedef struct {
  char name[NAMING_NAME];   /* "parse", "main chunk", "function <app.lua:12>"; bytes as they are */
  char place[NAMING_PLACE]; /* "app.lua:12", "[C] in lua5.4" */
} named_t;

/* As people read it in a list of calls. */
void naming_frame(naming_t *naming, const naming_function_t *function, named_t *named);
/* The name in the definition of a Lua function alone, and its length; 0: there is none. */
size_t naming_definition(naming_t *naming, const naming_function_t *function, char name[NAMING_NAME]);
/* What the main function of a chunk is called: "main chunk", or what tells a script of Redis from all others. */
size_t naming_chunk(naming_t *naming, const naming_function_t *function, char name[NAMING_NAME]);
/* The name that tables of the process have for a function of any kind, and its length; 0: there is none. target->walk is aimed as it was
 * before, but has read other things. */
size_t naming_held(naming_t *naming, const naming_function_t *function, char name[NAMING_NAME]);

#endif
