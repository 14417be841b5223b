/* SPDX-License-Identifier: MIT */
/* A host with two Luas of different versions, as plug-ins bring them along: a thread and a VM for each, whose symbols nobody else sees.
 *   two_luas_host LIBRARY LIBRARY     of each a chunk that never ends, in a function of_1 or of_2. Prints "ready". */
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct lua_State lua_State;

typedef struct {
  void *library;
  int number;
} plugin_t;

static void *symbol(const plugin_t *plugin, const char *name) {
  void *found = dlsym(plugin->library, name);
  if (found == NULL) abort();
  return found;
}

/* lua_pcall, which is a macro from 5.2 on. */
static void call(const plugin_t *plugin, lua_State *L) {
  int (*pcall)(lua_State *, int, int, int) = dlsym(plugin->library, "lua_pcall");
  if (pcall != NULL) {
    pcall(L, 0, 0, 0);
    return;
  }
  int (*pcallk)(lua_State *, int, int, int, intptr_t, void *) = symbol(plugin, "lua_pcallk");
  pcallk(L, 0, 0, 0, 0, NULL);
}

static void *run(void *context) {
  const plugin_t *plugin = context;
  lua_State *(*new_state)(void) = symbol(plugin, "luaL_newstate");
  int (*load)(lua_State *, const char *) = symbol(plugin, "luaL_loadstring");
  char text[200];
  snprintf(text, sizeof text, "local function of_%d() local x = 0 while true do x = x + 1 end end of_%d()",
           plugin->number, plugin->number);
  lua_State *L = new_state();
  if (L == NULL || load(L, text) != 0) abort();
  call(plugin, L);
  abort();
}

int main(int count, char **arguments) {
  static plugin_t plugins[2];
  pthread_t thread;
  for (int i = 0; i < 2 && i + 1 < count; i++) {
    plugins[i] = (plugin_t){dlopen(arguments[i + 1], RTLD_NOW | RTLD_LOCAL), i + 1};
    if (plugins[i].library == NULL) return 1;
  }
  puts("ready");
  fflush(stdout);
  if (pthread_create(&thread, NULL, run, &plugins[0]) != 0) return 1;
  run(&plugins[1]);
}
