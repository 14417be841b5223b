/* SPDX-License-Identifier: MIT */
/* A host with many VMs, as game servers have them: any of four threads takes the next one that has something to do, runs it for a moment, and
 * puts it back. A VM is of one of ten kinds, which are called kind_0 to kind_9. */
#include <lauxlib.h>
#include <lualib.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { THREADS = 4 };

static lua_State **waiting; /* a ring */
static size_t count, first, used;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static lua_State *take(void) {
  pthread_mutex_lock(&lock);
  lua_State *L = waiting[first];
  first = (first + 1) % count;
  used--;
  pthread_mutex_unlock(&lock);
  return L;
}

static void give(lua_State *L) {
  pthread_mutex_lock(&lock);
  waiting[(first + used++) % count] = L;
  pthread_mutex_unlock(&lock);
}

static void *work(void *unused) {
  for (;;) {
    lua_State *L = take();
    lua_getglobal(L, "on_message");
    if (lua_pcall(L, 0, 0, 0) != 0) abort();
    give(L);
  }
  return unused;
}

static lua_State *make(size_t i) {
  char text[512];
  lua_State *L = luaL_newstate();
  if (L == NULL) abort();
  luaL_openlibs(L);
  snprintf(text, sizeof text,
           "local function kind_%zu(n) local x = 0 for i = 1, n do x = x + i %% 7 end return x end\n"
           "local co = coroutine.wrap(function() while true do local x = kind_%zu(2000) coroutine.yield(x) "
           "end end)\n"
           "function on_message() local x = co() return x end",
           i % 10, i % 10);
  if (luaL_dostring(L, text)) abort();
  return L;
}

int main(int argc, char **argv) {
  count = argc > 1 ? (size_t)atoi(argv[1]) : 1000;
  waiting = calloc(count, sizeof *waiting);
  pthread_t threads[THREADS];
  for (size_t i = 0; i < count; i++) give(make(i));
  for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, work, NULL);
  puts("ready");
  fflush(stdout);
  pthread_join(threads[0], NULL);
  return 0;
}
