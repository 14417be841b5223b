/* SPDX-License-Identifier: MIT */
/* A host that had a thread which used the processor for a second and is gone. It calls two Lua functions in turn, for as much work each: one
 * while it has no other thread, one while it has another, which sleeps. */
#include <lauxlib.h>
#include <lualib.h>
#include <pthread.h>
#include <stdio.h>
#include <time.h>

static pthread_mutex_t wanted = PTHREAD_MUTEX_INITIALIZER;

static void *burn(void *unused) {
  while (clock() < CLOCKS_PER_SEC) continue;
  return unused;
}

static void *sleep_while_wanted(void *unused) {
  pthread_mutex_lock(&wanted);
  pthread_mutex_unlock(&wanted);
  return unused;
}

static void call(lua_State *L, const char *name) {
  lua_getglobal(L, name);
  if (lua_pcall(L, 0, 0, 0) != 0) lua_pop(L, 1);
}

int main(void) {
  pthread_t thread;
  lua_State *L = luaL_newstate();
  luaL_openlibs(L);
  if (luaL_dostring(
          L, "function alone() for i = 1, 2e6 do end end function with_another() for i = 1, 2e6 do end end"))
    return 1;
  pthread_create(&thread, NULL, burn, NULL);
  pthread_join(thread, NULL);
  puts("ready");
  fflush(stdout);
  for (;;) {
    call(L, "alone");
    pthread_mutex_lock(&wanted);
    pthread_create(&thread, NULL, sleep_while_wanted, NULL);
    call(L, "with_another");
    pthread_mutex_unlock(&wanted);
    pthread_join(thread, NULL);
  }
}
