/* SPDX-License-Identifier: MIT */
/* A host with a thread in uninterruptible sleep: it waits for its vfork, until somebody kills the child. Prints "ready" as it begins and
 * "awake" when the thread has run on. Meanwhile it runs Lua, or with the argument "none" has the library but no VM. */
#include <lauxlib.h>
#include <lualib.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

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

int main(int argc, char **argv) {
  pthread_t thread;
  pthread_create(&thread, NULL, wait_for_child, NULL);
  puts("ready");
  fflush(stdout);
  if (argc > 1 && strcmp(argv[1], "none") == 0) return pause();
  lua_State *L = luaL_newstate();
  luaL_openlibs(L);
  return luaL_dostring(L, "local function work() local x = 0 while true do x = x + 1 end end work()");
}
