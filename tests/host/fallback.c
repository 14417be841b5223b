/* SPDX-License-Identifier: MIT */
/* Where stacks cannot be walked: the engine that asks Lua serves the cpu clock, the status says so and why, and what has no such
 * engine refuses in words. */
#include <dlfcn.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>

#include "host.h"

/* Given a VM whose stack cannot be walked, then samples come from the kernel's tick by the interface, with the right stacks. */
static void check_fallback(lua_State *L, const char *note) {
  luapulse_status_t status;
  host_start(L, LUAPULSE_CLOCK_CPU);
  luapulse_get_status(L, &status);
  if (strcmp(status.engine, HOST_INTERFACE) != 0) FAIL("engine \"%s\"", status.engine);
  if (strcmp(status.note, note) != 0) FAIL("note \"%s\", expected \"%s\"", status.note, note);
  host_sample(L, 20);
  luapulse_get_status(L, &status);
  CHECK(strcmp(status.engine, HOST_INTERFACE) == 0 && strcmp(status.note, note) == 0);
  luapulse_profile_t *profile = host_stop(L);
  int64_t all = host_total(profile, 0), right = host_sum(profile, 0, "burn", false);
  if (right * 10 < all * 9) FAIL("burn in %d of %d samples", (int)right, (int)all);
  luapulse_profile_free(profile);
}

/* What walks or fails: the engine asked for by name, the wall clock, the heap. */
static void check_refusals(lua_State *L, const char *part) {
  luapulse_error_t error = {""};
  luapulse_profile_options_t options = host_options(LUAPULSE_CLOCK_CPU);
  options.cpu_engine = LUAPULSE_ENGINE_WALK;
  CHECK(luapulse_start(L, &options, &error) != 0);
  CHECK_WORDS(error, "stacks cannot be walked here: ");
  CHECK_WORDS(error, part);
  options = host_options(LUAPULSE_CLOCK_WALL);
  CHECK(luapulse_start(L, &options, &error) != 0);
  CHECK_WORDS(error, "the wall clock walks stacks out of memory, which cannot be done here: ");
  CHECK_WORDS(error, part);
  options = host_options(LUAPULSE_CLOCK_CPU);
  options.features = LUAPULSE_FEATURE_HEAP;
  CHECK(luapulse_start(L, &options, &error) != 0);
  CHECK_WORDS(error, part);
}

/* -- a seccomp filter -------------------------------------------------------------------------------------------------- */

/* From here on the two calls that a filter may not know, process_vm_readv and perf_event_open, end the process. */
static void install_filter(void) {
  struct sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 1, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_perf_event_open, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  struct sock_fprog program = {sizeof code / sizeof code[0], code};
  CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
  if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) FAIL("no filter: %s", strerror(errno));
}

static void under_a_seccomp_filter(void) {
  lua_State *L = host_open();
  luapulse_status_t status;
  install_filter();
  host_start(L, LUAPULSE_CLOCK_CPU);
  luapulse_get_status(L, &status);
  CHECK(host_perf_events() == 0);
  CHECK(strcmp(status.source, "timer") == 0);
  struct timespec tick;
  CHECK(clock_getres(CLOCK_MONOTONIC_COARSE, &tick) == 0);
  CHECK(status.rate > 0 && status.rate <= 1000000000 / tick.tv_nsec);
  luapulse_profile_free(host_stop(L));
  check_fallback(L, "a seccomp filter is active: process_vm_readv is not tried");
  CHECK(host_perf_events() == 0);
  check_refusals(L, "a seccomp filter is active");
  check_fallback(L, "a seccomp filter is active: process_vm_readv is not tried");
  lua_close(L);
}

/* -- a Lua that the walker does not understand -------------------------------------------------------------------------- */

#if LUA_VERSION_NUM < 505 /* of which there may be an archive only */

static int lie; /* lines that this host's lua_getinfo is off by */

/* In front of the one in Lua's library, as in a program whose Lua was changed. */
LUA_API int lua_getinfo(lua_State *L, const char *what, lua_Debug *ar) {
  static int (*real)(lua_State *, const char *, lua_Debug *);
  if (real == NULL) *(void **)&real = dlsym(RTLD_NEXT, "lua_getinfo");
  int result = real(L, what, ar);
  if (strchr(what, 'l') != NULL && ar->currentline > 0) ar->currentline += lie;
  return result;
}

static void the_walk_disagrees_with_lua(void) {
  static const char why[] = "the walk and lua_getinfo disagree about a frame";
  char note[256];
  lua_State *L = host_open();
  snprintf(note, sizeof note, "%s; `luapulse layout` makes a layout for this build of Lua", why);
  lie = 1;
  check_fallback(L, note);
  check_refusals(L, why);
  lie = 0; /* and it was nothing else */
  host_start_by(L, HOST_BY_WALK);
  luapulse_profile_free(host_stop(L));
  lie = 1; /* every start looks again, also for a VM whose layout is known */
  check_fallback(L, why);
  lua_close(L);
}

#endif

static const host_test_t tests[] = {
    {"under_a_seccomp_filter", under_a_seccomp_filter},
#if LUA_VERSION_NUM < 505
    {"the_walk_disagrees_with_lua", the_walk_disagrees_with_lua},
#endif
};

HOST_MAIN(tests)
