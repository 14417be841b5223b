/* SPDX-License-Identifier: MIT */
/* Which Lua a command runs, decided by what is in its file, never by its name, and the module that goes with
 * it. */
#ifndef LUAPULSE_CLI_INTERPRETER_H
#define LUAPULSE_CLI_INTERPRETER_H

#include <limits.h>

#include "profile/failure.h"

typedef struct {
  char version[8];       /* "5.4"; LuaJIT is "5.1" */
  char init[16];         /* the variable it runs at start: LUA_INIT_5_4, or LUA_INIT on 5.1 and LuaJIT */
  char module[PATH_MAX]; /* luapulse.so for it */
  int not_found;         /* 0, or why no such command was found: errno */
} interpreter_t;

/* Looks at the program that `command` starts (found by PATH; scripts lead to their #! interpreter). */
bool interpreter_find(interpreter_t *interpreter, const char *command, failure_t *failure);
/* The user says which version it is. */
bool interpreter_named(interpreter_t *interpreter, const char *version, failure_t *failure);

#endif
