/* SPDX-License-Identifier: MIT */
/* Entered through LUA_INIT in a program started by `luapulse run`: puts the environment back as the user had
 * it, starts profiling into the tables shared with the parent, then runs the user's own LUA_INIT. Nothing is
 * printed: what goes wrong is left in the shared tables for the parent to say. */
#include "agent/autostart.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "agent/options.h"
#include "agent/session.h"

LUAPULSE_API int luaopen_luapulse_autostart(lua_State *L);

typedef struct {
  int fd;
  session_region_t region;
  luapulse_profile_options_t options;
  char layout[4096], filter[4096];
} request_t;

static bool read_request(request_t *request) {
  const char *text = getenv(AUTOSTART_VARIABLE);
  unsigned clock, engine, mode, heap_mode, gc;
  int path = 0;
  unsigned long long seed;
  request->options = options_default();
  if (text == NULL ||
      sscanf(text, "%d %zu %u %u %u %u %llu %u %u %u %u %u %zu %u %n", &request->fd, &request->region.size,
             &clock, &request->options.cpu_hz, &request->options.cpu_sample_mean_instr,
             &request->options.cpu_max_samples_per_sec, &seed, &engine, &mode, &request->options.trace_events,
             &request->options.features, &heap_mode, &request->options.heap_sample_mean_bytes, &gc,
             &path) != 14)
    return false;
  request->options.heap_mode = (luapulse_collection_mode_t)heap_mode;
  request->options.heap_gc = (luapulse_gc_t)gc;
  request->options.cpu_engine = (luapulse_engine_t)engine;
  request->options.cpu_mode = (luapulse_collection_mode_t)mode;
  const char *filter = getenv(AUTOSTART_FILTER);
  if (filter != NULL) snprintf(request->filter, sizeof request->filter, "%s", filter);
  if (filter != NULL) request->options.trace_filter = request->filter;
  if (path > 0 && text[path] != '\0') { /* the variable is about to go */
    snprintf(request->layout, sizeof request->layout, "%s", text + path);
    request->options.layout_file = request->layout;
  }
  request->options.seed = seed;
  request->options.cpu_clock = (luapulse_clock_t)clock;
  request->options.max_memory_bytes = request->region.size;
  if (request->options.max_process_memory_bytes < 2 * request->region.size)
    request->options.max_process_memory_bytes = 2 * request->region.size;
  return true;
}

/* So that the program and its children see their environment as it was. Runs before any thread of the
 * program. */
static void put_environment_back(void) {
  const char *name = getenv(AUTOSTART_INIT_NAME), *value = getenv(AUTOSTART_INIT_VALUE);
  if (name != NULL && value != NULL)
    setenv(name, value, 1);
  else if (name != NULL)
    unsetenv(name);
  unsetenv(AUTOSTART_INIT_VALUE);
  unsetenv(AUTOSTART_INIT_NAME);
  unsetenv(AUTOSTART_FILTER);
  unsetenv(AUTOSTART_VARIABLE);
}

/* Only the first Lua of a process tree gets the tables: later ones find them in use. */
static bool map_tables(request_t *request) {
  void *memory = mmap(NULL, request->region.size, PROT_READ | PROT_WRITE, MAP_SHARED, request->fd, 0);
  close(request->fd);
  if (memory == MAP_FAILED) return false;
  live_t live;
  if (!live_open(&live, memory, request->region.size, NULL) || live_state(&live) != LIVE_WAITING) {
    munmap(memory, request->region.size);
    return false;
  }
  request->region.memory = memory;
  return true;
}

/* require "luapulse" in the program means this copy, which knows of the session. */
static void preload(lua_State *L) {
  lua_getglobal(L, "package");
  if (lua_istable(L, -1)) {
    lua_getfield(L, -1, "preload");
    if (lua_istable(L, -1)) {
      lua_pushcfunction(L, luaopen_luapulse);
      lua_setfield(L, -2, "luapulse");
    }
    lua_pop(L, 1);
  }
  lua_pop(L, 1);
}

/* As the stock interpreter does it: the variable of this version first, '@' for a file. Errors are the
 * interpreter's to show. */
static void run_users_init(lua_State *L) {
  char name[32] = "LUA_INIT";
  const char *text = NULL;
  if (strcmp(lv_name, "Lua 5.1") != 0) {
    snprintf(name, sizeof name, "LUA_INIT_%c_%s", lv_name[4], lv_name + 6);
    text = getenv(name);
  }
  if (text == NULL) {
    strcpy(name, "LUA_INIT");
    text = getenv(name);
  }
  if (text == NULL) return;
  lua_pushfstring(L, "=%s", name);
  int status = text[0] == '@' ? luaL_loadfile(L, text + 1)
                              : luaL_loadbuffer(L, text, strlen(text), lua_tostring(L, -1));
  if (status != 0) lua_error(L);
  lua_call(L, 0, 0);
}

int luaopen_luapulse_autostart(lua_State *L) {
  request_t request = {0};
  failure_t failure = {{0}};
  bool asked = read_request(&request);
  put_environment_back();
  if (asked && map_tables(&request)) {
    if (session_start(L, &request.options, request.region, &failure))
      preload(L);
    else
      live_refuse(request.region.memory, request.region.size, failure.text);
  }
  run_users_init(L);
  return 0;
}
