/* SPDX-License-Identifier: MIT */
/* A C host that embeds Lua and profiles the script it runs, through the C API.
 *
 *   cc -Iinclude $(pkg-config --cflags lua5.4) -o embed examples/embed.c build/lib/libluapulse5.4.a \
 *      $(pkg-config --libs lua5.4) -lz -lm -lpthread -ldl -lrt
 *   ./embed examples/shop.lua shop.html
 *
 * The profile is written even when the script fails: what led to the failure is worth seeing. */
#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>
#include <stdio.h>
#include <stdlib.h>

#include "luapulse.h"

/* The global table `arg`, as the stand-alone interpreter sets it. */
static void set_arguments(lua_State *L, const char *script) {
  lua_newtable(L);
  lua_pushstring(L, script);
  lua_rawseti(L, -2, 0);
  lua_setglobal(L, "arg");
}

static int run_script(lua_State *L, const char *script) {
  if (luaL_loadfile(L, script) != 0 || lua_pcall(L, 0, 0, 0) != 0) {
    const char *message = lua_tostring(L, -1);
    fprintf(stderr, "embed: %s\n", message != NULL ? message : "error object is not a string");
    lua_pop(L, 1);
    return -1;
  }
  return 0;
}

/* Runs the script and writes its profile to `path`; the extension names the format. */
static int profile_script(lua_State *L, const char *script, const char *path) {
  luapulse_error_t error;
  luapulse_profile_options_t options;
  luapulse_options_init(&options);
  options.features = LUAPULSE_FEATURE_CPU;
  options.cpu_hz = 100;
  if (luapulse_start(L, &options, &error) != 0) {
    fprintf(stderr, "embed: %s\n", error.text);
    return -1;
  }

  int result = run_script(L, script);

  luapulse_status_t status;
  luapulse_get_status(L, &status);
  luapulse_profile_t *profile = luapulse_stop(L, &error);
  if (profile == NULL || luapulse_profile_write(profile, path, NULL, &error) != 0) {
    fprintf(stderr, "embed: %s\n", error.text);
    result = -1;
  } else {
    printf("%llu samples in %s\n", (unsigned long long)status.samples, path);
  }
  if (profile != NULL) luapulse_profile_free(profile);
  return result;
}

int main(int argc, char **argv) {
  if (argc != 3) {
    fprintf(stderr, "usage: %s SCRIPT PROFILE\n", argv[0]);
    return EXIT_FAILURE;
  }
  lua_State *L = luaL_newstate();
  if (L == NULL) {
    fprintf(stderr, "embed: not enough memory for a Lua state\n");
    return EXIT_FAILURE;
  }
  luaL_openlibs(L);
  set_arguments(L, argv[1]);
  int result = profile_script(L, argv[1], argv[2]);
  lua_close(L);
  return result == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
