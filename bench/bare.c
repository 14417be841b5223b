/* SPDX-License-Identifier: MIT */
/* A Lua module for the benchmark of the profiler's own part of high rates: bare(hz) makes a source of ticks as the profiler has it at rates above the
 * kernel's tick, a perf event, whose handler does nothing; bare(true) lets it tick on this thread, bare(false) stops it. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <lauxlib.h>
#include <linux/perf_event.h>
#include <lua.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static int event = -1;

static void on_tick(int number) {
  (void)number;
}

static int make(lua_Integer hz) {
  struct perf_event_attr attributes = {.size = sizeof attributes,
                                       .type = PERF_TYPE_SOFTWARE,
                                       .config = PERF_COUNT_SW_CPU_CLOCK,
                                       .sample_period = 1000000000u / (unsigned long long)hz,
                                       .disabled = 1,
                                       .exclude_kernel = 1,
                                       .exclude_hv = 1,
                                       .wakeup_events = 1};
  struct f_owner_ex owner = {F_OWNER_TID, (pid_t)syscall(SYS_gettid)};
  struct sigaction action = {.sa_handler = on_tick, .sa_flags = SA_RESTART};
  event = (int)syscall(SYS_perf_event_open, &attributes, 0, -1, -1, PERF_FLAG_FD_CLOEXEC);
  return event >= 0 && sigaction(SIGUSR1, &action, NULL) == 0 && fcntl(event, F_SETOWN_EX, &owner) == 0 &&
         fcntl(event, F_SETSIG, SIGUSR1) == 0 && fcntl(event, F_SETFL, O_ASYNC) == 0;
}

static int bare(lua_State *L) {
  if (lua_isboolean(L, 1))
    ioctl(event, lua_toboolean(L, 1) ? PERF_EVENT_IOC_ENABLE : PERF_EVENT_IOC_DISABLE, 0);
  else if (!make(luaL_checkinteger(L, 1)))
    return luaL_error(L, "no perf event can be had here");
  return 0;
}

int luaopen_bare(lua_State *L) {
  lua_pushcfunction(L, bare);
  return 1;
}
