/* SPDX-License-Identifier: MIT */
/* Names for the functions of a snapshot, when the process runs again.
 *
 * Lua functions are named by their definition in the source: its text where the chunk is one, else the file as the process sees it
 * (/proc/PID/root, /proc/PID/cwd); else by where the program's tables keep them (tables.h). C functions and LuaJIT's built-ins by those
 * tables, else by the name they were registered with (luaL_Reg), else by symbol, else by file and offset.
 * Files are anybody's: only regular ones are read, of bounded size, and opening one never waits. */
#ifndef LUAPULSE_ATTACH_NAMING_H
#define LUAPULSE_ATTACH_NAMING_H

#include "attach/snapshot.h"

enum { NAMING_NAME = 256, NAMING_PLACE = 1024 };

typedef struct naming naming_t;

/* Reads the tables of the VMs. NULL when memory is out. */
naming_t *naming_open(target_t *target, const runtimes_t *runtimes, const snapshot_t *snapshot);
void naming_close(naming_t *naming);

typedef struct {
  char name[NAMING_NAME];   /* "parse", "main chunk", "function <app.lua:12>"; bytes as they are */
  char place[NAMING_PLACE]; /* "app.lua:12", "[C] in lua5.4" */
} named_t;

void naming_frame(naming_t *naming, const snapshot_frame_t *frame, named_t *named);

#endif
