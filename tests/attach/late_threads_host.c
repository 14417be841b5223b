/* SPDX-License-Identifier: MIT */
/* A host whose first thread sleeps until there is a file "go". Then it starts three more, each with a VM of its own, and all four use the
 * processor for as long, 0.3 s, in functions work_0 to work_3. */
#include <lauxlib.h>
#include <lualib.h>
#include <pthread.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

enum { THREADS = 4, WORK_MS = 300 };

static int spent_ms(lua_State *L) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  lua_pushinteger(L, (lua_Integer)t.tv_sec * 1000 + t.tv_nsec / 1000000);
  return 1;
}

static lua_State *new_vm(int number) {
  char text[256];
  lua_State *L = luaL_newstate();
  luaL_openlibs(L);
  lua_register(L, "spent_ms", spent_ms);
  snprintf(text, sizeof text,
           "function work_%d() local done = spent_ms() + %d repeat for i = 1, 10000 do end until spent_ms() "
           ">= done end return work_%d",
           number, WORK_MS, number);
  return luaL_dostring(L, text) == 0 ? L : NULL;
}

static void *work(void *vm) {
  lua_State *L = vm;
  lua_pcall(L, 0, 0, 0);
  lua_close(L);
  return NULL;
}

int main(void) {
  pthread_t threads[THREADS];
  lua_State *first = new_vm(0);
  puts("ready");
  fflush(stdout);
  while (access("go", F_OK) != 0) usleep(10000);
  for (int i = 1; i < THREADS; i++) pthread_create(&threads[i], NULL, work, new_vm(i));
  work(first);
  for (int i = 1; i < THREADS; i++) pthread_join(threads[i], NULL);
  return 0;
}
