/* SPDX-License-Identifier: MIT */
/* A host whose Lua runs on fibers: native stacks of its own making, switched between within C functions that Lua calls. All but the one that
 * runs are in the midst of a Lua call. Four fibers share a VM, each with a coroutine; four have VMs of their own.
 * Argument "guarded": a page between stacks that nobody may touch; else they lie side by side. */
#include <lauxlib.h>
#include <lualib.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

enum { FIBERS = 8, STACK = 256 << 10, GUARD = 4096 };

static ucontext_t scheduler, fibers[FIBERS];
static lua_State *states[FIBERS];
static int current;

static int pass(lua_State *L) {
  int own = current;
  swapcontext(&fibers[own], &scheduler);
  return L == NULL;
}

static void run(void) {
  lua_State *L = states[current];
  char text[512];
  snprintf(text, sizeof text,
           "local function spin_%d(n) local x = 0 for i = 1, n do x = x + i %% 7 end return x end\n"
           "local function fiber_%d() while true do local x = spin_%d(20000) pass() end end\n"
           "local ok = pcall(fiber_%d)",
           current, current, current, current);
  if (luaL_loadbuffer(L, text, strlen(text), text) != 0 || lua_pcall(L, 0, 0, 0) != 0) abort();
}

int main(int argc, char **argv) {
  size_t apart = STACK + (argc > 1 && strcmp(argv[1], "guarded") == 0 ? GUARD : 0);
  char *stacks =
      mmap(NULL, FIBERS * apart + GUARD, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  lua_State *shared = luaL_newstate();
  for (int i = 0; i < FIBERS; i++) {
    lua_State *L = i % 2 == 0 ? lua_newthread(shared) : luaL_newstate();
    if (i == 0) luaL_openlibs(shared);
    if (i % 2 != 0) luaL_openlibs(L);
    lua_register(L, "pass", pass);
    states[i] = L;
    getcontext(&fibers[i]);
    fibers[i].uc_stack.ss_sp = stacks + (size_t)i * apart;
    fibers[i].uc_stack.ss_size = STACK;
    if (apart > STACK) mprotect(stacks + (size_t)i * apart + STACK, GUARD, PROT_NONE);
    makecontext(&fibers[i], run, 0);
  }
  puts("ready");
  fflush(stdout);
  for (;;)
    for (current = 0; current < FIBERS; current++) swapcontext(&scheduler, &fibers[current]);
}
