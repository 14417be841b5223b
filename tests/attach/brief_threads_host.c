/* SPDX-License-Identifier: MIT */
/* A host that starts threads which end at once, all the time that its argument tells in seconds, and calls Lua meanwhile. Then it ends. */
#include <lauxlib.h>
#include <lualib.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { AT_ONCE = 2 };

static void *work(void *unused) {
  for (volatile int i = 0; i < 60000; i++) continue; /* so that it is seen at work now and then */
  return unused;
}

int main(int argc, char **argv) {
  pthread_t threads[AT_ONCE];
  long count = 0;
  time_t end = time(NULL) + (argc > 1 ? atoi(argv[1]) : 1);
  lua_State *L = luaL_newstate();
  luaL_openlibs(L);
  if (luaL_dostring(L, "function work() local x = 0 for i = 1, 2000 do x = x + i % 7 end end")) return 1;
  while (time(NULL) < end) {
    for (int i = 0; i < AT_ONCE; i++) pthread_create(&threads[i], NULL, work, NULL);
    lua_getglobal(L, "work");
    if (lua_pcall(L, 0, 0, 0) != 0) return 1;
    for (int i = 0; i < AT_ONCE; i++) pthread_join(threads[i], NULL);
    count += AT_ONCE;
  }
  printf("%ld threads ended\n", count);
  return 0;
}
