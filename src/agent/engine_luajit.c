/* SPDX-License-Identifier: MIT */
/* cpu clock on LuaJIT: its own profiler interface, so that compiled code is seen, driven by our ticker.
 *
 * luaJIT_profile_start takes SIGPROF and ITIMER_PROF for the whole process. Both are given back at once: all
 * we need is the handler it installs, which we call from our own signal handler. It marks the VM, and the
 * next bytecode, or the next check in a trace, calls our callback with the running coroutine. LuaJIT can
 * profile one VM of a process at a time. */
#include <signal.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#include "agent/engine.h"
#include "agent/luajit.h"
#include "agent/sampler.h"
#include "agent/time.h"

static _Atomic(vm_t *) owner; /* the VM whose profiler is on */
static pid_t owner_pid;
static void (*mark_vm)(int); /* LuaJIT's signal handler; its argument is not used */

enum { STALLED = 4 /* ticks, and their multiples */ };
static atomic_uint unanswered; /* ticks since LuaJIT last called back */

/* -- the host's SIGPROF and ITIMER_PROF, kept while LuaJIT changes them ---------------------------------- */

typedef struct {
  sigset_t mask;
  struct sigaction action;
  struct itimerval timer;
} prof_state_t;

/* What SIGPROF's action is while LuaJIT's profiler starts, so that its end puts this one back: a closing VM ends it before any
 * finalizer runs, and the program may (jit.profile). Its handler must not be called from then on, there is no VM for it. */
static void when_ended(int number) {
  (void)number;
}

static struct sigaction host_action; /* SIGPROF's, at start */

static bool is(const struct sigaction *action, void (*handler)(int)) {
  return !(action->sa_flags & SA_SIGINFO) && action->sa_handler == handler;
}

static void hold(prof_state_t *state) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGPROF);
  pthread_sigmask(SIG_BLOCK, &set, &state->mask); /* none may arrive while the handler is the wrong one */
  sigaction(SIGPROF, NULL, &state->action);
  if (is(&state->action, when_ended)) state->action = host_action;
  getitimer(ITIMER_PROF, &state->timer);
}

static void give_back(const prof_state_t *state) {
  sigaction(SIGPROF, &state->action, NULL);
  setitimer(ITIMER_PROF, &state->timer, NULL);
  pthread_sigmask(SIG_SETMASK, &state->mask, NULL);
}

/* -- ticks and samples ----------------------------------------------------------------------------------- */

/* In LuaJIT 2.1.0-beta3 the end of a finalizer puts back a mark that was answered within it, and a VM that is marked is not marked again:
 * nothing calls back any more, until LuaJIT looks at its marks for another reason. Setting no hook where there is none is such a one; if all
 * is well, and a C function or a compiled loop takes its time, it changes nothing. A hook that the host is about to set shows in one of
 * the three, whichever it stores first. */
static void look_again(vm_t *vm) {
  lua_State *L = vm->base;
  if (lua_gethook(L) == NULL && lua_gethookmask(L) == 0 && lua_gethookcount(L) == 0)
    lua_sethook(L, NULL, 0, 0);
}

static void on_tick(tick_listener_t *listener, const void *context) {
  (void)context;
  vm_t *vm = (vm_t *)listener; /* its first member */
  struct sigaction now;
  if (!vm->active || vm->paused || vm->busy) return;
  if (sigaction(SIGPROF, NULL, &now) != 0 || is(&now, when_ended)) return;
  if (is(&now, mark_vm)) return; /* the program has started a profiler of its own, which ended ours */
  mark_vm(SIGPROF);
  if (atomic_fetch_add(&unanswered, 1) % STALLED == STALLED - 1) look_again(vm);
}

static void on_mark(void *data, lua_State *L, int samples, int vmstate) {
  vm_t *vm = data;
  uint64_t weight;
  (void)samples;
  (void)vmstate;
  atomic_store(&unanswered, 0);
  if (!vm_profiled(vm) || vm->paused) return;
  vm_keep_out(vm);
  switch (ticker_take(vm->listener.ticker, vm->not_before, &weight)) {
    case TICK_TAKEN: {
      uint64_t start = time_thread_cpu();
      sampler_take(vm, L, 0, weight);
      ticker_cost(vm->listener.ticker, time_thread_cpu() - start);
      break;
    }
    case TICK_OTHER_THREAD:
      live_lose(&vm->live, LOSS_DROPPED, 1);
      break;
    case TICK_NONE:
      break;
  }
  vm_let_in(vm);
}

/* -- the engine ------------------------------------------------------------------------------------------ */

/* Starting over a profiler at work would break it. A handler of the host's own, linked into one program with
 * LuaJIT, looks the same only if it is a plain one and the interval timer runs. */
static bool profiler_at_work(const prof_state_t *host) {
  bool timer_runs = host->timer.it_interval.tv_sec != 0 || host->timer.it_interval.tv_usec != 0;
  return timer_runs && !(host->action.sa_flags & SA_SIGINFO) &&
         luajit_is_profiler_handler(host->action.sa_handler);
}

static bool begin(vm_t *vm, lua_State *L, failure_t *failure) {
  prof_state_t host;
  struct sigaction taken, mark = {.sa_handler = when_ended, .sa_flags = SA_RESTART};
  hold(&host);
  if (profiler_at_work(&host)) {
    give_back(&host);
    return failure_set(failure, "LuaJIT's own profiler (jit.p, jit.profile) is running; stop it first");
  }
  /* f: compiled code checks where it enters another function (l, at each line, made numeric code 22 % slower); i: an
   * interval that never ends, the ticks are ours */
  sigaction(SIGPROF, &mark, NULL);
  luajit_profile_begin(L, "fi1000000000", on_mark, vm);
  sigaction(SIGPROF, NULL, &taken);
  give_back(&host);
  host_action = host.action;
  if (is(&taken, when_ended))
    return failure_set(failure,
                       "this LuaJIT's profiler does not work by signals; use cpu_clock = \"instructions\"");
  mark_vm = taken.sa_handler;
  return true;
}

static void end(lua_State *L) {
  prof_state_t host;
  hold(&host);
  if (!profiler_at_work(&host)) luajit_profile_end(L); /* else it is the program's own, started since */
  give_back(&host);
}

static bool start(vm_t *vm, lua_State *L, failure_t *failure) {
  if (!luajit_has_profiler())
    return failure_set(failure,
                       "this LuaJIT was built without its profiler; use cpu_clock = \"instructions\"");
  vm_t *nobody = NULL;
  if (owner_pid != getpid()) atomic_store(&owner, NULL); /* a forked child: the owner is the parent's */
  if (!atomic_compare_exchange_strong(&owner, &nobody, vm))
    return failure_set(
        failure,
        "another VM of this process is being profiled, and LuaJIT's profiler serves one at a time; "
        "stop that one first, or use cpu_clock = \"instructions\"");
  owner_pid = getpid();
  vm->not_before = time_thread_cpu();
  vm->listener.on_tick = on_tick;
  if (begin(vm, L, failure)) {
    if (ticker_join(&vm->listener, vm->options.cpu_hz, random_next(&vm->random), failure)) return true;
    end(L);
  }
  atomic_store(&owner, NULL);
  return false;
}

static void stop(vm_t *vm, lua_State *L) {
  ticker_leave(&vm->listener);
  vm_keep_out(vm);
  end(L);
  vm_let_in(vm);
  atomic_store(&owner, NULL);
}

static void pause_changed(vm_t *vm, lua_State *L) {
  (void)L;
  vm->not_before = time_thread_cpu();
}

const engine_t engine_luajit = {
    .name = "luajit",
    .asks_lua = true,
    .start = start,
    .stop = stop,
    .pause_changed = pause_changed,
};
