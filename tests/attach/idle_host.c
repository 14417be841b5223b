/* SPDX-License-Identifier: MIT */
/* A host that is not in Lua: two VMs with a coroutine that waits, and one that was closed; it sleeps in C. */
#include <lauxlib.h>
#include <lualib.h>
#include <stdio.h>
#include <unistd.h>

static const char program[] =
    "local function wait_for_request() local r = coroutine.yield() return r end\n"
    "handler = coroutine.create(function() return (wait_for_request()) end)\n"
    "coroutine.resume(handler)\n";

int main(void) {
  lua_State *vms[3];
  for (int i = 0; i < 3; i++) {
    vms[i] = luaL_newstate();
    luaL_openlibs(vms[i]);
    if (luaL_loadstring(vms[i], program) != 0 || lua_pcall(vms[i], 0, 0, 0) != 0) return 1;
  }
  lua_close(vms[2]);
  puts("ready");
  fflush(stdout);
  for (;;) pause();
}
