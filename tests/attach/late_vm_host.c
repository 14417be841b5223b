/* SPDX-License-Identifier: MIT */
/* A host that makes a second VM when it gets SIGUSR1: it runs in turn with the first, with the argument "inside" in a C function of
 * the first, or with "idle" never again. Its functions are in its tables alone, and it keeps 8 MB. */
#include <lauxlib.h>
#include <lualib.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static volatile sig_atomic_t wanted;

static void on_signal(int number) {
  (void)number;
  wanted = 1;
}

static lua_State *make(const char *text) {
  lua_State *L = luaL_newstate();
  if (L == NULL) abort();
  luaL_openlibs(L);
  if (luaL_loadbuffer(L, text, strlen(text), "=nowhere") != 0 || lua_pcall(L, 0, 0, 0) != 0) abort();
  return L;
}

static void run(lua_State *L, const char *name) {
  lua_getglobal(L, name);
  if (lua_pcall(L, 0, 0, 0) != 0) abort();
}

static lua_State *late;

static int run_inside(lua_State *L) {
  (void)L;
  if (late != NULL) run(late, "second_work");
  return 0;
}

int main(int argc, char **argv) {
  static const char first[] =
      "early = {function() local x = 0 for i = 1, 20000 do x = x + i % 7 end inside() return x end}\n"
      "function inside() end first_work = early[1]";
  static const char second[] =
      "kept = {} for i = 1, 8 do kept[i] = ('x'):rep(1000000 + i) end\n"
      "late = {function() local x = 0 for i = 1, 20000 do x = x + i % 7 end return x end}\n"
      "second_work = late[1]";
  int idle = argc > 1 && strcmp(argv[1], "idle") == 0;
  int inside = argc > 1 && strcmp(argv[1], "inside") == 0;
  lua_State *L = make(first);
  if (inside) lua_register(L, "inside", run_inside);
  signal(SIGUSR1, on_signal);
  printf("ready\n");
  fflush(stdout);
  for (;;) {
    run(L, "first_work");
    if (late != NULL && !idle && !inside) run(late, "second_work");
    if (!wanted) continue;
    wanted = 0;
    late = make(second);
    printf("made\n");
    fflush(stdout);
  }
}
