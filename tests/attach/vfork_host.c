/* SPDX-License-Identifier: MIT */
/* A host with a thread in uninterruptible sleep: it waits for its vfork, until somebody kills the child. Prints "ready" as it begins and
 * "awake" when that thread has run on. Meanwhile it runs Lua, or with the argument "none" has the library but no VM; and whenever it has not
 * had a processor for a tenth of a second it prints how long that was, in ms. */
#include <lauxlib.h>
#include <lualib.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { NOTED_MS = 100 };

static void *wait_for_child(void *unused) {
  pid_t child = vfork();
  if (child == 0) {
    pause();
    _exit(0);
  }
  puts("awake");
  fflush(stdout);
  waitpid(child, NULL, 0);
  return unused;
}

static long now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static int note_gap(lua_State *L) {
  static long last;
  long now = now_ms();
  if (last != 0 && now - last >= NOTED_MS) {
    printf("gap %ld\n", now - last);
    fflush(stdout);
  }
  last = now;
  return L == NULL;
}

int main(int argc, char **argv) {
  pthread_t thread;
  pthread_create(&thread, NULL, wait_for_child, NULL);
  puts("ready");
  fflush(stdout);
  while (argc > 1 && strcmp(argv[1], "none") == 0) {
    usleep(1000);
    note_gap(NULL);
  }
  lua_State *L = luaL_newstate();
  luaL_openlibs(L);
  lua_register(L, "note_gap", note_gap);
  return luaL_dostring(
      L, "local function work() while true do for i = 1, 10000 do end note_gap() end end work()");
}
