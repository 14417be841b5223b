/* SPDX-License-Identifier: MIT */
/* A host that is never the same for long: runs some milliseconds of Lua, and then itself again (exec), or a child beside it (fork).
 * Prints "ready" at first. */
#include <lauxlib.h>
#include <lualib.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void work(void) {
  lua_State *L = luaL_newstate();
  luaL_openlibs(L);
  if (luaL_dostring(
          L,
          "local function work() local x = 0 for i = 1, 200000 do x = x + i end return x end return work()"))
    exit(1);
  lua_close(L);
}

int main(int argc, char **argv) {
  if (argc != 2 && argc != 3) return 2;
  if (argc == 2) {
    puts("ready");
    fflush(stdout);
  }
  char *again[] = {argv[0], argv[1], "again", NULL};
  if (strcmp(argv[1], "exec") == 0) {
    work();
    execv("/proc/self/exe", again);
    return 1;
  }
  for (;;) {
    pid_t child = fork();
    if (child < 0) return 1;
    work();
    if (child == 0) _exit(0);
    waitpid(child, NULL, 0);
  }
}
