/* SPDX-License-Identifier: MIT */
/* What a test must know of its own process and Lua does not tell: signals, timers, descriptors, memory,
 * forks, other VMs and threads. A Lua module for tests, built for every Lua version; reads only, except where a name says otherwise.
 */
#include <errno.h>
#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

__attribute__((visibility("default"))) int luaopen_host(lua_State *L);

/* -- signals and timers ---------------------------------------------------------------------------------- */

/* One line for each signal: handler, flags, mask. */
static int host_signals(lua_State *L) {
  luaL_Buffer buffer;
  luaL_buffinit(L, &buffer);
  for (int number = 1; number <= SIGRTMAX; number++) {
    struct sigaction action;
    char line[160];
    memset(&action, 0, sizeof action);
    if (sigaction(number, NULL, &action) != 0) continue; /* the two the C library keeps to itself */
    unsigned long mask[2] = {0,
                             0}; /* 0x04000000: the C library marks what it has set, also back to default */
    memcpy(mask, &action.sa_mask, sizeof mask);
    snprintf(line, sizeof line, "%d: handler %p flags %x mask %lx\n", number, (void *)action.sa_sigaction,
             (unsigned)action.sa_flags & ~0x04000000u, mask[0]);
    luaL_addstring(&buffer, line);
  }
  luaL_pushresult(&buffer);
  return 1;
}

/* The blocked signals of this thread, as text. */
static int host_mask(lua_State *L) {
  sigset_t set;
  char text[128]; /* more than there are signals */
  sigemptyset(&set);
  pthread_sigmask(SIG_BLOCK, NULL, &set);
  for (int number = 1; number <= SIGRTMAX; number++)
    text[number - 1] = sigismember(&set, number) == 1 ? '1' : '0';
  lua_pushlstring(L, text, (size_t)SIGRTMAX);
  return 1;
}

/* "real 0/0 virtual 250000/on …": the interval in microseconds, and whether the timer runs. */
static int host_itimers(lua_State *L) {
  static const struct {
    const char *name;
    int which;
  } timers[] = {{"real", ITIMER_REAL}, {"virtual", ITIMER_VIRTUAL}, {"prof", ITIMER_PROF}};
  char text[200];
  size_t len = 0;
  for (size_t i = 0; i < sizeof timers / sizeof timers[0]; i++) {
    struct itimerval timer;
    if (getitimer((__itimer_which_t)timers[i].which, &timer) != 0) return luaL_error(L, "getitimer failed");
    int on = timer.it_value.tv_sec != 0 || timer.it_value.tv_usec != 0;
    int more = snprintf(text + len, sizeof text - len, "%s %ld/%s ", timers[i].name,
                        timer.it_interval.tv_sec * 1000000 + timer.it_interval.tv_usec, on ? "on" : "off");
    if (more > 0) len += (size_t)more;
  }
  lua_pushlstring(L, text, len);
  return 1;
}

static _Atomic long prof_signals;

static void on_prof(int number) {
  (void)number;
  atomic_fetch_add(&prof_signals, 1);
}

/* Handles SIGPROF and sets the interval timer that sends it: prof_timer(microseconds). 0 ends both. */
static int host_prof_timer(lua_State *L) {
  long micros = (long)luaL_checkinteger(L, 1);
  struct sigaction action;
  struct itimerval timer = {{micros / 1000000, micros % 1000000}, {micros / 1000000, micros % 1000000}};
  memset(&action, 0, sizeof action);
  action.sa_handler = micros > 0 ? on_prof : SIG_IGN;
  action.sa_flags = SA_RESTART;
  sigaction(SIGPROF, &action, NULL);
  if (setitimer(ITIMER_PROF, &timer, NULL) != 0) return luaL_error(L, "setitimer failed");
  return 0;
}

static int host_prof_signals(lua_State *L) {
  lua_pushinteger(L, (lua_Integer)atomic_load(&prof_signals));
  return 1;
}

/* set_itimer("real" | "virtual", seconds): far away, so that it never fires in a test. */
static int host_set_itimer(lua_State *L) {
  int which = strcmp(luaL_checkstring(L, 1), "real") == 0 ? ITIMER_REAL : ITIMER_VIRTUAL;
  long seconds = (long)luaL_checkinteger(L, 2);
  struct itimerval timer = {{seconds, 0}, {seconds, 0}};
  if (setitimer((__itimer_which_t)which, &timer, NULL) != 0) return luaL_error(L, "setitimer failed");
  return 0;
}

/* -- descriptors and memory ------------------------------------------------------------------------------ */

/* "0:/dev/null 1:pipe:[…] …" */
static int host_fds(lua_State *L) {
  luaL_Buffer buffer;
  luaL_buffinit(L, &buffer);
  for (int fd = 0; fd < 1024; fd++) {
    char link[64], target[256], line[340];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t len = readlink(link, target, sizeof target - 1);
    if (len < 0) continue;
    target[len] = '\0';
    snprintf(line, sizeof line, "%d:%s ", fd, target);
    luaL_addstring(&buffer, line);
  }
  luaL_pushresult(&buffer);
  return 1;
}

/* Resident memory in KiB, number of mappings. */
static int host_memory(lua_State *L) {
  long pages = 0, mappings = 0;
  FILE *file = fopen("/proc/self/statm", "r");
  if (file == NULL || fscanf(file, "%*d %ld", &pages) != 1) return luaL_error(L, "no /proc/self/statm");
  fclose(file);
  file = fopen("/proc/self/maps", "r");
  if (file == NULL) return luaL_error(L, "no /proc/self/maps");
  for (int c; (c = fgetc(file)) != EOF;) mappings += c == '\n';
  fclose(file);
  lua_pushinteger(L, (lua_Integer)(pages * (sysconf(_SC_PAGESIZE) / 1024)));
  lua_pushinteger(L, (lua_Integer)mappings);
  return 2;
}

/* CPU time of the process in seconds, user and system. */
static int host_cpu(lua_State *L) {
  struct rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  lua_pushnumber(L, (lua_Number)((double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
                                 (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6));
  return 1;
}

/* -- processes ------------------------------------------------------------------------------------------- */

/* Nanoseconds of the clock that tracing's is to agree with. */
static int host_clock(lua_State *L) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  lua_pushnumber(L, (lua_Number)now.tv_sec * 1e9 + (lua_Number)now.tv_nsec);
  return 1;
}

static int host_fork(lua_State *L) {
  fflush(NULL);
  pid_t pid = fork();
  if (pid < 0) return luaL_error(L, "fork failed");
  lua_pushinteger(L, (lua_Integer)pid);
  return 1;
}

/* wait(pid): the exit status, or nil and the signal it died of. */
static int host_wait(lua_State *L) {
  int status;
  pid_t pid = (pid_t)luaL_checkinteger(L, 1), got;
  do got = waitpid(pid, &status, 0);
  while (got < 0 && errno == EINTR);
  if (got < 0) return luaL_error(L, "waitpid failed");
  if (WIFEXITED(status)) {
    lua_pushinteger(L, WEXITSTATUS(status));
    return 1;
  }
  lua_pushnil(L);
  lua_pushinteger(L, WTERMSIG(status));
  return 2;
}

/* Ends the process without atexit handlers. */
static int host_exit_now(lua_State *L) {
  _exit((int)luaL_checkinteger(L, 1));
  return 0;
}

static int host_pid(lua_State *L) {
  lua_pushinteger(L, (lua_Integer)getpid());
  return 1;
}

/* alarm(seconds): the process ends by a signal if it is still there then; 0 takes it back. For tests that may hang. */
static int host_alarm(lua_State *L) {
  alarm((unsigned)luaL_checkinteger(L, 1));
  return 0;
}

/* True when debug hooks of the coroutine are ours or anybody's: hooked(co). Sees C hooks, as debug.gethook
 * does not name them. */
static int host_hooked(lua_State *L) {
  lua_State *co = lua_tothread(L, 1);
  lua_pushboolean(L, lua_gethook(co != NULL ? co : L) != NULL);
  return 1;
}

/* call(f, …): calls f from C, with nothing between. */
static int host_call(lua_State *L) {
  luaL_checktype(L, 1, LUA_TFUNCTION);
  lua_call(L, lua_gettop(L) - 1, LUA_MULTRET);
  return lua_gettop(L);
}

/* raise(message): an error of C's. */
static int host_raise(lua_State *L) {
  return luaL_error(L, "%s", luaL_checkstring(L, 1));
}

/* yield(…): suspends the coroutine, as functions of the host's own do. */
static int host_yield(lua_State *L) {
  return lua_yield(L, lua_gettop(L));
}

/* pcall(f): whether f ran through; its error is caught by C. */
static int host_pcall(lua_State *L) {
  lua_settop(L, 1);
  lua_pushboolean(L, lua_pcall(L, 0, 0, 0) == 0);
  return 1;
}

/* put_hook_aside(f): calls f without any debug hook, and puts back the one that was there. */
static int host_put_hook_aside(lua_State *L) {
  lua_Hook hook = lua_gethook(L);
  int mask = lua_gethookmask(L), count = lua_gethookcount(L);
  lua_sethook(L, NULL, 0, 0);
  lua_settop(L, 1);
  lua_call(L, 0, 0);
  lua_sethook(L, hook, mask, count);
  return 0;
}

/* state_bytes(n): of the lua_State and what follows it. LuaJIT has all of a VM's state behind its main thread. */
static int host_state_bytes(lua_State *L) {
  lua_pushlstring(L, (const char *)L, (size_t)luaL_checkinteger(L, 1));
  return 1;
}

/* userdata(size): one of so many bytes, in one block. */
static int host_userdata(lua_State *L) {
  lua_newuserdata(L, (size_t)luaL_checkinteger(L, 1));
  return 1;
}

/* -- other VMs and threads ------------------------------------------------------------------------------- */

static lua_State *open_vm(void) {
  lua_State *vm = luaL_newstate();
  if (vm != NULL) luaL_openlibs(vm);
  return vm;
}

/* Runs the code in the VM. The text of its result, or of its error with *ok 0; valid until the next run. */
static const char *run_in_vm(lua_State *vm, const char *code, int *ok) {
  lua_settop(vm, 0);
  *ok = luaL_loadstring(vm, code) == 0 && lua_pcall(vm, 0, 1, 0) == 0;
  const char *text = lua_tostring(vm, -1);
  return text != NULL ? text : "";
}

static int give_result(lua_State *L, const char *text, int ok) {
  if (!ok) return luaL_error(L, "another VM: %s", text);
  lua_pushstring(L, text);
  return 1;
}

/* vm_open(): another VM of this process, with the standard libraries. */
static int host_vm_open(lua_State *L) {
  lua_State *vm = open_vm();
  if (vm == NULL) return luaL_error(L, "no memory for a VM");
  lua_pushlightuserdata(L, vm);
  return 1;
}

/* vm_run(vm, code): runs it there, on this thread, and gives the text it returns. */
static int host_vm_run(lua_State *L) {
  int ok;
  const char *text = run_in_vm(lua_touserdata(L, 1), luaL_checkstring(L, 2), &ok);
  return give_result(L, text, ok);
}

static int host_vm_close(lua_State *L) {
  lua_close(lua_touserdata(L, 1));
  return 0;
}

typedef struct {
  pthread_t thread;
  lua_State *vm;
  const char *code, *text;
  int ok;
} runner_t;

static void *run_in_thread(void *argument) {
  runner_t *runner = argument;
  runner->text = run_in_vm(runner->vm, runner->code, &runner->ok);
  return NULL;
}

/* threads(code, …): runs each text in a VM of its own, made here, on a thread of its own, all at a time; gives what they
 * return. */
static int host_threads(lua_State *L) {
  enum { MAX_THREADS = 16 };
  runner_t runners[MAX_THREADS];
  int count = lua_gettop(L), all = 1;
  if (count > MAX_THREADS) return luaL_error(L, "too many threads");
  for (int i = 0; i < count; i++) {
    runners[i] = (runner_t){.vm = open_vm(), .code = luaL_checkstring(L, i + 1)};
    if (runners[i].vm == NULL || pthread_create(&runners[i].thread, NULL, run_in_thread, &runners[i]) != 0)
      return luaL_error(L, "no memory for a VM and a thread");
  }
  for (int i = 0; i < count; i++) pthread_join(runners[i].thread, NULL);
  luaL_checkstack(L, count, "results");
  for (int i = 0; i < count; i++) {
    lua_pushstring(L, runners[i].text);
    all = all && runners[i].ok;
    lua_close(runners[i].vm);
  }
  if (all) return count;
  lua_concat(L, count);
  return luaL_error(L, "another thread: %s", lua_tostring(L, -1));
}

static const luaL_Reg functions[] = {
    {"signals", host_signals},
    {"mask", host_mask},
    {"itimers", host_itimers},
    {"prof_timer", host_prof_timer},
    {"prof_signals", host_prof_signals},
    {"set_itimer", host_set_itimer},
    {"fds", host_fds},
    {"memory", host_memory},
    {"cpu", host_cpu},
    {"clock", host_clock},
    {"fork", host_fork},
    {"wait", host_wait},
    {"exit_now", host_exit_now},
    {"pid", host_pid},
    {"alarm", host_alarm},
    {"hooked", host_hooked},
    {"call", host_call},
    {"raise", host_raise},
    {"yield", host_yield},
    {"pcall", host_pcall},
    {"put_hook_aside", host_put_hook_aside},
    {"state_bytes", host_state_bytes},
    {"userdata", host_userdata},
    {"vm_open", host_vm_open},
    {"vm_run", host_vm_run},
    {"vm_close", host_vm_close},
    {"threads", host_threads},
    {NULL, NULL},
};

int luaopen_host(lua_State *L) {
  lua_newtable(L);
  for (const luaL_Reg *f = functions; f->name != NULL; f++) {
    lua_pushcfunction(L, f->func);
    lua_setfield(L, -2, f->name);
  }
  return 1;
}
