/* SPDX-License-Identifier: MIT */
/* A host with five VMs: one on each of three threads, and on the first thread one that runs inside of another. */
#include <lauxlib.h>
#include <lualib.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* Runs `function NAME() … end NAME()` in a VM of its own; `call`, if any, is what it calls in a loop. */
static void run(const char *name, lua_CFunction call) {
  char text[256], chunk[64];
  lua_State *L = luaL_newstate();
  luaL_openlibs(L);
  if (call != NULL) lua_register(L, "call", call);
  snprintf(text, sizeof text, "local function %s() local x = 0 while true do x = x + 1 %s end end %s()", name,
           call != NULL ? "call()" : "", name);
  snprintf(chunk, sizeof chunk, "=%s", name);
  if (luaL_loadbuffer(L, text, strlen(text), chunk) == 0) lua_pcall(L, 0, 0, 0);
  lua_close(L);
}

static void *work(void *name) {
  run(name, NULL);
  return NULL;
}

static int go_inside(lua_State *L) {
  puts("ready");
  fflush(stdout);
  run("inside", NULL);
  return L == NULL;
}

int main(void) {
  static char names[3][16] = {"work_1", "work_2", "work_3"};
  pthread_t threads[3];
  for (int i = 0; i < 3; i++) pthread_create(&threads[i], NULL, work, names[i]);
  run("outside", go_inside);
  return 0;
}
