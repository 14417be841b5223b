/* SPDX-License-Identifier: MIT */
/* A host that is not in Lua: two VMs with a coroutine that waits, and one that was closed; it sleeps in C, and tells of
 * each SIGUSR1. */
#include <lauxlib.h>
#include <lualib.h>
#include <signal.h>
#include <stdio.h>

static const char program[] =
    "local function wait_for_request() local r = coroutine.yield() return r end\n"
    "handler = coroutine.create(function() return (wait_for_request()) end)\n"
    "coroutine.resume(handler)\n";

static volatile sig_atomic_t got;

static void on_signal(int number) {
  (void)number;
  got++;
}

int main(void) {
  lua_State *vms[3];
  struct sigaction action = {.sa_handler = on_signal};
  sigset_t blocked, none;
  sigaction(SIGUSR1, &action, NULL);
  sigemptyset(&none);
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGUSR1);
  sigprocmask(SIG_BLOCK, &blocked, NULL); /* none arrives between the look and the sleep */
  for (int i = 0; i < 3; i++) {
    vms[i] = luaL_newstate();
    luaL_openlibs(vms[i]);
    if (luaL_loadstring(vms[i], program) != 0 || lua_pcall(vms[i], 0, 0, 0) != 0) return 1;
  }
  lua_close(vms[2]);
  puts("ready");
  fflush(stdout);
  for (int told = 0;;) { /* each signal is told */
    if (told == got) sigsuspend(&none);
    for (; told < got; told++) printf("got %d\n", told + 1);
    fflush(stdout);
  }
}
