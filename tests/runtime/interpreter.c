/* SPDX-License-Identifier: MIT */
/* A stand-alone interpreter for a LuaJIT that is packaged as a library alone: runs LUA_INIT, then what the command line says, as others do.
 *   luajit [-jon | -joff] [-e TEXT]… [FILE | -] [ARGUMENTS…]
 * Errors go to standard error with a traceback, and the status is 1 then. The VM is closed at the end. */
#include <lauxlib.h>
#include <luajit.h>
#include <lualib.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
  fprintf(stderr, "luajit: %s\n", message != NULL ? message : "(no message)");
  lua_pop(L, 1);
  return 1;
}

static int call_text(lua_State *L, const char *text, const char *name) {
  return call(L, luaL_loadbuffer(L, text, strlen(text), name), 0);
}

static int call_init(lua_State *L) {
  const char *init = getenv("LUA_INIT");
  if (init == NULL) return 0;
  return init[0] == '@' ? call(L, luaL_loadfile(L, init + 1), 0) : call_text(L, init, "=LUA_INIT");
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

/* The number of the argument that is the script, argc if there is none; -1: an option that is none. */
static int find_script(const command_line_t *line) {
  int i = 1;
  for (; i < line->argc; i++) {
    const char *option = line->argv[i];
    if (option[0] != '-' || option[1] == '\0') break;
    if (strcmp(option, "-e") == 0 && i + 1 < line->argc)
      i++;
    else if (strcmp(option, "-jon") != 0 && strcmp(option, "-joff") != 0)
      return -1;
  }
  return i;
}

static int call_options(lua_State *L, const command_line_t *line, int script) {
  for (int i = 1; i < script; i++) {
    if (strcmp(line->argv[i], "-e") == 0) {
      if (call_text(L, line->argv[++i], "=(command line)") != 0) return 1;
    } else {
      luaJIT_setmode(
          L, 0, LUAJIT_MODE_ENGINE | (strcmp(line->argv[i], "-jon") == 0 ? LUAJIT_MODE_ON : LUAJIT_MODE_OFF));
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
    fprintf(stderr, "usage: %s [-jon | -joff] [-e TEXT]... [FILE | -] [ARGUMENTS...]\n", line->argv[0]);
    line->status = 2;
    return 0;
  }
  lua_gc(L, LUA_GCSTOP, 0); /* as stand-alone interpreters do while libraries are made */
  luaL_openlibs(L);
  lua_gc(L, LUA_GCRESTART, -1);
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
    fprintf(stderr, "luajit: no memory for a VM in the low 2 GiB\n");
    return 1;
  }
  if (lua_cpcall(L, interpret, &line) != 0) fprintf(stderr, "luajit: %s\n", lua_tostring(L, -1));
  lua_close(L);
  return line.status;
}
