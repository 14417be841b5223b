/* SPDX-License-Identifier: MIT */
/* Makes garbage and collects it, by steps of its own, and prints which share of its CPU time the steps took, in percent. The argument says how:
 * "incremental", "generational" or "full". Finalizers are left out: there are none. For Lua 5.4. */
#include <lauxlib.h>
#include <lualib.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char *how;
static double began, collected;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static int collect(lua_State *L) {
  static unsigned calls;
  double before = now();
  if (strcmp(how, "full") == 0)
    lua_gc(L, LUA_GCCOLLECT);
  else
    lua_gc(L, LUA_GCSTEP, 0);
  double after = now();
  collected += after - before;
  if (++calls % 64 != 0) return 0;
  printf("share %.1f\n", 100 * collected / (after - began));
  fflush(stdout);
  return 0;
}

int main(int argc, char **argv) {
  static const char text[] =
      "local kept, count = {}, 1\n"
      "for i = 1, 30000 do kept[i] = {i} end\n"
      "print('ready')\n"
      "while true do\n"
      "  for i = 1, 300 * FACTOR do kept[count] = {i} count = count % 30000 + 1 end\n"
      "  collect()\n"
      "end\n";
  how = argc > 1 ? argv[1] : "incremental";
  lua_State *L = luaL_newstate();
  if (L == NULL) abort();
  luaL_openlibs(L);
  lua_gc(L, LUA_GCSTOP);
  if (strcmp(how, "generational") == 0) lua_gc(L, LUA_GCGEN, 0, 0);
  lua_register(L, "collect", collect);
  lua_pushinteger(L, strcmp(how, "full") == 0 ? 100 : 1);
  lua_setglobal(L, "FACTOR");
  began = now();
  return luaL_dostring(L, text);
}
