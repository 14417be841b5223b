/* SPDX-License-Identifier: MIT */
/* A stand-alone interpreter for Luas that are packaged as libraries alone, or whose own wants a newer libc than there is: LuaJIT, and Lua from
 * 5.4 on. Runs LUA_INIT, then what the command line says, as theirs do.
 *   interpreter [-v] [-jon | -joff] [-e TEXT]… [FILE | -] [ARGUMENTS…]      -j of LuaJIT only
 * Errors go to standard error with a traceback, and the status is 1 then. The VM is closed at the end. */
#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if LUA_VERSION_NUM == 501
#include <luajit.h>
#define VERSION_TEXT LUAJIT_VERSION
#else
#define VERSION_TEXT LUA_RELEASE
#endif

/* What libraries that were compiled for a newer libc call these. */
#if !__GLIBC_PREREQ(2, 38)
unsigned long __isoc23_strtoul(const char *text, char **end, int base);
int __isoc23_fscanf(FILE *file, const char *format, ...);

unsigned long __isoc23_strtoul(const char *text, char **end, int base) {
  return strtoul(text, end, base);
}
int __isoc23_fscanf(FILE *file, const char *format, ...) {
  va_list list;
  va_start(list, format);
  int count = vfscanf(file, format, list);
  va_end(list);
  return count;
}
#endif

/* by these names luapulse tells which Lua a file has in it */
#ifdef LUA_VERSUFFIX
static const char *const init_names[] = {"LUA_INIT" LUA_VERSUFFIX, "LUA_INIT"};
#else
static const char *const init_names[] = {"LUA_INIT"};
#endif

typedef struct {
  int argc;
  char **argv;
  int status; /* of the process */
} command_line_t;

static int with_traceback(lua_State *L) {
  const char *message = lua_tostring(L, 1);
  if (message == NULL) {
    if (!luaL_callmeta(L, 1, "__tostring"))
      lua_pushfstring(L, "(error object is a %s value)", luaL_typename(L, 1));
    message = lua_tostring(L, -1);
  }
  luaL_traceback(L, L, message, 1);
  return 1;
}

/* Calls the chunk below its `count` arguments; `failed` if there is none, but a message. */
static int call(lua_State *L, int failed, int count) {
  if (!failed) {
    int handler = lua_gettop(L) - count;
    lua_pushcfunction(L, with_traceback);
    lua_insert(L, handler);
    failed = lua_pcall(L, count, 0, handler);
    lua_remove(L, handler);
  }
  if (!failed) return 0;
  const char *message = lua_tostring(L, -1);
  fprintf(stderr, "interpreter: %s\n", message != NULL ? message : "(no message)");
  lua_pop(L, 1);
  return 1;
}

static int call_text(lua_State *L, const char *text, const char *name) {
  return call(L, luaL_loadbuffer(L, text, strlen(text), name), 0);
}

static int call_init(lua_State *L) {
  for (size_t i = 0; i < sizeof init_names / sizeof init_names[0]; i++) {
    const char *init = getenv(init_names[i]);
    if (init == NULL) continue;
    return init[0] == '@' ? call(L, luaL_loadfile(L, init + 1), 0) : call_text(L, init, "=LUA_INIT");
  }
  return 0;
}

/* The global arg: the script has number 0, what is before it negative ones. */
static void set_arg(lua_State *L, const command_line_t *line, int script) {
  lua_newtable(L);
  for (int i = 0; i < line->argc; i++) {
    lua_pushstring(L, line->argv[i]);
    lua_rawseti(L, -2, i - script);
  }
  lua_setglobal(L, "arg");
}

static int is_jit_mode(const char *option) {
  return LUA_VERSION_NUM == 501 && (strcmp(option, "-jon") == 0 || strcmp(option, "-joff") == 0);
}

static void set_jit_mode(lua_State *L, const char *option) {
#if LUA_VERSION_NUM == 501
  luaJIT_setmode(L, 0, LUAJIT_MODE_ENGINE | (strcmp(option, "-jon") == 0 ? LUAJIT_MODE_ON : LUAJIT_MODE_OFF));
#else
  (void)L;
  (void)option;
#endif
}

/* The number of the argument that is the script, argc if there is none; -1: an option that is none. */
static int find_script(const command_line_t *line) {
  int i = 1;
  for (; i < line->argc; i++) {
    const char *option = line->argv[i];
    if (option[0] != '-' || option[1] == '\0') break;
    if (strcmp(option, "-e") == 0 && i + 1 < line->argc)
      i++;
    else if (!is_jit_mode(option) && strcmp(option, "-v") != 0)
      return -1;
  }
  return i;
}

static int call_options(lua_State *L, const command_line_t *line, int script) {
  for (int i = 1; i < script; i++) {
    if (strcmp(line->argv[i], "-e") == 0) {
      if (call_text(L, line->argv[++i], "=(command line)") != 0) return 1;
    } else if (strcmp(line->argv[i], "-v") == 0) {
      puts(VERSION_TEXT);
    } else {
      set_jit_mode(L, line->argv[i]);
    }
  }
  return 0;
}

static int call_script(lua_State *L, const command_line_t *line, int script) {
  const char *name = line->argv[script];
  int failed = luaL_loadfile(L, strcmp(name, "-") == 0 ? NULL : name);
  if (failed) return call(L, failed, 0);
  int count = line->argc - script - 1;
  luaL_checkstack(L, count + LUA_MINSTACK, "too many arguments");
  for (int i = script + 1; i < line->argc; i++) lua_pushstring(L, line->argv[i]);
  return call(L, 0, count);
}

static int interpret(lua_State *L) {
  command_line_t *line = lua_touserdata(L, 1);
  int script = find_script(line);
  if (script < 0) {
    fprintf(stderr, "usage: %s [-v] [-jon | -joff] [-e TEXT]... [FILE | -] [ARGUMENTS...]\n", line->argv[0]);
    line->status = 2;
    return 0;
  }
  lua_gc(L, LUA_GCSTOP, 0); /* as stand-alone interpreters do while libraries are made */
  luaL_openlibs(L);
  lua_gc(L, LUA_GCRESTART, -1);
#ifdef LUA_GCGEN
  lua_gc(L, LUA_GCGEN, 0, 0); /* likewise */
#endif
  set_arg(L, line, script);
  line->status = call_init(L);
  if (line->status == 0) line->status = call_options(L, line, script);
  if (line->status == 0 && script < line->argc) line->status = call_script(L, line, script);
  return 0;
}

int main(int argc, char **argv) {
  command_line_t line = {argc, argv, 1};
  lua_State *L = luaL_newstate();
  if (L == NULL) {
    fprintf(stderr, "interpreter: no memory for a VM (LuaJIT with 32-bit references: in the low 2 GiB)\n");
    return 1;
  }
  lua_pushcfunction(L, interpret);
  lua_pushlightuserdata(L, &line);
  if (lua_pcall(L, 1, 0, 0) != 0) fprintf(stderr, "interpreter: %s\n", lua_tostring(L, -1));
  lua_close(L);
  return line.status;
}
