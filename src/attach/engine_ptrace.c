/* SPDX-License-Identifier: MIT */
/* Sampling by stopping threads for a moment; see engine.h.
 *
 * Mental model. The engine sleeps until the next tick; gaps are random, uniform in half to one and a half periods. At a tick each
 * thread that the scheduler calls running is stopped alone, its stack is walked, the sample is handed out, and it is let go. A
 * thread that waits for a processor is called running, too. So that its samples tell what it used and not what it would have liked to
 * use, it is passed over when it has had samples for all the CPU time it got; and where ticks were missed, for the machine is busy or the
 * rate too high, the next sample stands for what was used meanwhile.
 *
 * Nothing is waited for without a bound: what does not stop in time is left to stopped_threads_settle(). */
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "attach/clock.h"
#include "attach/engine.h"
#include "attach/glance.h"
#include "attach/stopped_thread.h"
#include "attach/watched.h"
#include "profile/mem.h"
#include "profile/random.h"

enum {
  PATIENCE_NS = 20 * 1000000, /* for a thread to stop */
  CPU_STEP_NS = 20 * 1000000, /* in which the kernel tells CPU time, and more */
  MOST_PERIODS = 16, /* that a sample stands for: what is due beyond is lost, rather than one stack's */
  THREADS = 64,      /* whose last walk is kept: a walk that knows it reads less */
  QUICK = 128        /* processes that may have a descriptor more */
};

typedef struct {
  pid_t tid;
  uint64_t space;
  uint64_t used;  /* number of the tick */
  int64_t cpu;    /* that it had used by then, ns … */
  int64_t due;    /* … and of it what no sample stands for yet */
  int64_t weight; /* what its next sample stands for */
  bool of_all;    /* `cpu` is that of the process, with threads it had before */
  size_t lua;     /* the one that was found */
  glance_last_t last;
  walk_t walk;
} thread_t;

typedef struct {
  engine_t engine;      /* first */
  int64_t period, next; /* ns; of the next tick */
  uint64_t ticks;
  random_t random;
  watched_t **watched;
  size_t watched_count, watched_room;
  thread_t *threads; /* THREADS of them */
  glance_t *glance;
  sigset_t old_mask;
  engine_counts_t counts;
  engine_take_t *take; /* during a poll */
  void *context;
} ptrace_engine_t;

/* -- one sample -------------------------------------------------------------------------------------------------- */

/* The thread as it was left, or the place of the one that was not seen for longest. */
static thread_t *thread_of(ptrace_engine_t *e, pid_t tid, uint64_t space) {
  thread_t *oldest = &e->threads[0];
  for (size_t i = 0; i < THREADS; i++) {
    thread_t *t = &e->threads[i];
    if (t->tid == tid && t->space == space) return t;
    if (t->used < oldest->used) oldest = t;
  }
  memset(oldest, 0, sizeof *oldest);
  oldest->tid = tid;
  oldest->space = space;
  return oldest;
}

static walk_reason_t find(walk_t *walk, const watched_lua_t *lua) {
  bool luajit = lua->layout.family == LAYOUT_LUAJIT;
  uint64_t last = walk->state_count > 0 ? walk->states[0].global : 0;
  walk->likely_main = 0;
  walk->likely_global = luajit ? last : 0;
  walk_reason_t reason = walk_find(walk);
  for (size_t i = 0; reason == WALK_NO_STATE && i < lua->hint_count; i++) {
    if (lua->hints[i].global == last) continue;
    if (luajit)
      walk->likely_global = lua->hints[i].global;
    else
      walk->likely_main = lua->hints[i].main;
    reason = walk_find(walk);
  }
  return reason;
}

/* The first Lua that runs on the native stack; the one of the last time is asked first. */
static walk_reason_t walk_thread(const watched_t *w, thread_t *t) {
  for (size_t i = 0; i < w->lua_count; i++) {
    size_t which = (t->lua + i) % w->lua_count;
    const watched_lua_t *lua = &w->luas[which];
    walk_t *walk = &t->walk;
    if (walk->layout != &lua->layout) walk->state_count = walk->last_count = 0;
    walk->layout = &lua->layout;
    walk->vm_low = lua->vm_low;
    walk->vm_high = lua->vm_high;
    walk->frame_count = 0;
    if (find(walk, lua) != WALK_OK) continue;
    t->lua = which;
    return walk_frames(walk);
  }
  return WALK_NO_STATE;
}

static void hand_out(const ptrace_engine_t *e, thread_t *t, const watched_t *w, uint64_t space,
                     walk_reason_t reason, bool walked) {
  walk_t *walk = &t->walk;
  engine_sample_t sample = {.origin = {.time = (uint64_t)clock_now(),
                                       .weight = (uint64_t)t->weight,
                                       .space = space,
                                       .pid = w->pid,
                                       .tid = t->tid,
                                       .runtime = walked ? w->luas[t->lua].index : 0,
                                       .reason = reason,
                                       .pc = walked ? walk->registers.pc : 0},
                            .unknown = !walked,
                            .held = walked};
  if (reason == WALK_OK && walked) {
    sample.origin.global = walk->states[0].global;
    if (walk_is_collecting(walk, sample.origin.global)) sample.origin.flags |= WALK_COLLECTING;
    sample.vmstate = walk->vmstate;
    sample.trace = walk->trace;
    sample.truncated = walk->truncated;
    sample.frame_count = walk->frame_count;
    sample.frames = walk->frames;
  }
  e->take(e->context, &sample);
}

/* Whether it has used the processor for another sample, and how much that stands for: a period, and what is due beyond what may be by
 * chance. At first sight that is due, for the kernel counts by steps; what a thread used since the process had another number of them is
 * one period. */
static bool is_due(const ptrace_engine_t *e, thread_t *t, int64_t cpu, bool of_all) {
  const int64_t by_chance = 2 * e->period + CPU_STEP_NS, most = by_chance + MOST_PERIODS * e->period;
  t->due += t->used == 0 ? by_chance : t->of_all == of_all ? cpu - t->cpu : e->period;
  if (t->due > most) t->due = most;
  t->cpu = cpu;
  t->of_all = of_all;
  t->used = e->ticks;
  if (t->due <= 0) return false;
  t->weight = t->due > by_chance + e->period ? t->due - by_chance : e->period;
  return true;
}

/* It has the address space that it had, and no thread but its first. */
static bool is_alone(const watched_t *w) {
  process_stat_t stat;
  return process_stat_at(&stat, w->stat_fd) && stat.space == w->space && stat.threads == 1;
}

/* `alone`: it is to be, which is asked as it comes to stop, for that takes as long. False when it is not, or cannot be traced: then nothing is
 * counted. */
static bool sample_thread(ptrace_engine_t *e, watched_t *w, thread_t *t, bool alone) {
  stopped_thread_t stopped = {.tid = t->tid};
  int error;
  if (!stopped_thread_ask(&stopped, &error)) {
    if (error != ESRCH && !alone) e->counts.missed++;
    return false;
  }
  bool as_thought = !alone || is_alone(w);
  thread_answer_t answer = stopped_thread_await(&stopped, PATIENCE_NS);
  int64_t since =
      clock_now(); /* it may have waited for the processor before, and did not stop until it got it */
  walk_reason_t reason = WALK_NO_STATE;
  if (stopped.stopped && as_thought) {
    glance_begin(e->glance, w->pid, &t->last);
    t->walk.memory = &e->glance->memory;
    t->walk.mark_functions = true;
    watched_aim(w, &t->walk, &stopped.registers);
    reason = walk_thread(w, t);
    t->due -= t->weight;
    hand_out(e, t, w, w->space, reason, true);
  }
  if (answer != THREAD_GONE) stopped_thread_release(&stopped);
  if (stopped.stopped) {
    e->counts.stops++;
    e->counts.stopped_ns += (uint64_t)(clock_now() - since);
  } else if (answer != THREAD_GONE && as_thought) {
    e->counts.missed++;
  }
  return as_thought;
}

/* -- a tick ---------------------------------------------------------------------------------------------------------- */

static void tick_thread(ptrace_engine_t *e, watched_t *w, pid_t tid, uint64_t space, int64_t cpu,
                        bool of_all) {
  thread_t *t = thread_of(e, tid, space);
  if (!is_due(e, t, cpu, of_all)) return;
  if (space != w->space)
    hand_out(e, t, w, space, WALK_NO_STATE, false);
  else
    sample_thread(e, w, t, false);
}

static void tick_threads(ptrace_engine_t *e, watched_t *w, uint64_t space) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/task", (int)w->pid);
  DIR *folder = opendir(path);
  if (folder == NULL) return;
  for (const struct dirent *entry; (entry = readdir(folder)) != NULL;) {
    process_stat_t stat;
    pid_t tid = (pid_t)atoi(entry->d_name);
    if (tid > 0 && process_stat_of_thread(&stat, w->pid, tid) && stat.state == 'R')
      tick_thread(e, w, tid, space, stat.cpu, false);
  }
  closedir(folder);
}

/* A process whose only thread ran at the last tick, and runs. False when it is to be looked at in full. */
static bool tick_alone(ptrace_engine_t *e, watched_t *w) {
  int64_t cpu;
  if (!watched_runs(w) || !watched_cpu(w, &cpu)) return false;
  thread_t *t = thread_of(e, w->pid, w->space);
  return !is_due(e, t, cpu, true) || sample_thread(e, w, t, true);
}

static void tick_process(ptrace_engine_t *e, watched_t *w) {
  process_stat_t stat;
  if (w->runs_alone && tick_alone(e, w)) return;
  w->runs_alone = false;
  if (!process_stat_at(&stat, w->stat_fd) || stat.space == 0)
    return; /* ended: to be removed by who added it */
  if (stat.threads > 1) {
    tick_threads(e, w, stat.space);
  } else if (stat.state == 'R') {
    w->runs_alone = true;
    watched_cpu(w, &stat.cpu);
    tick_thread(e, w, w->pid, stat.space, stat.cpu, true);
  }
}

static void tick(ptrace_engine_t *e) {
  e->ticks++;
  stopped_threads_settle();
  for (size_t i = 0; i < e->watched_count; i++) tick_process(e, e->watched[i]);
}

static void set_next(ptrace_engine_t *e) {
  int64_t now = clock_now();
  e->next += (int64_t)random_jitter(&e->random, (uint64_t)e->period);
  while (e->next <= now) {
    e->counts.late++;
    e->next += (int64_t)random_jitter(&e->random, (uint64_t)e->period);
  }
}

static bool poll_ticks(engine_t *engine, int milliseconds, engine_take_t *take, void *context,
                       failure_t *failure) {
  ptrace_engine_t *e = (ptrace_engine_t *)engine; /* its first member */
  int64_t end = clock_now() + (int64_t)milliseconds * 1000000;
  (void)failure; /* what cannot be sampled is counted */
  e->take = take;
  e->context = context;
  struct timespec wake = clock_timespec(e->next < end ? e->next : end);
  if (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &wake, NULL) != 0)
    return true; /* a signal: who polls decides */
  if (clock_now() >= e->next) {
    tick(e);
    set_next(e);
  }
  return true;
}

/* -- the contract ------------------------------------------------------------------------------------------------------ */

static size_t place_of(const ptrace_engine_t *e, pid_t pid) {
  size_t i = 0;
  while (i < e->watched_count && e->watched[i]->pid != pid) i++;
  return i;
}

static void remove_process(engine_t *engine, pid_t pid) {
  ptrace_engine_t *e = (ptrace_engine_t *)engine;
  size_t i = place_of(e, pid);
  if (i == e->watched_count) return;
  for (size_t k = 0; k < THREADS; k++)
    if (e->threads[k].space == e->watched[i]->space) memset(&e->threads[k], 0, sizeof e->threads[k]);
  watched_close(e->watched[i]);
  e->watched[i] = e->watched[--e->watched_count];
}

static bool add_process(engine_t *engine, const target_t *held, const runtimes_t *runtimes,
                        failure_t *failure) {
  pid_t pid = held->process.pid;
  ptrace_engine_t *e = (ptrace_engine_t *)engine;
  remove_process(engine, pid); /* with another address space, or another process of the same number */
  if (!mem_reserve((void **)&e->watched, &e->watched_room, e->watched_count + 1, sizeof *e->watched))
    return failure_set(failure, "out of memory");
  watched_t *w = watched_open(pid, e->watched_count < QUICK, failure);
  if (w == NULL) return false;
  if (!watched_set(w, runtimes, failure)) {
    watched_close(w);
    return false;
  }
  if (e->watched_count == 0) e->next = clock_now(); /* ticks of nothing are not missed */
  e->watched[e->watched_count++] = w;
  return true;
}

static void get_counts(engine_t *engine, engine_counts_t *counts) {
  *counts = ((ptrace_engine_t *)engine)->counts;
}

static void close_engine(engine_t *engine) {
  ptrace_engine_t *e = (ptrace_engine_t *)engine;
  for (size_t i = 0; i < e->watched_count; i++) watched_close(e->watched[i]);
  sigprocmask(SIG_SETMASK, &e->old_mask, NULL);
  mem_free(e->watched);
  mem_free(e->threads);
  mem_free(e->glance);
  mem_free(e);
}

engine_t *engine_ptrace_open(const engine_options_t *options, failure_t *failure) {
  ptrace_engine_t *e = mem_alloc(sizeof *e);
  sigset_t child;
  if (e != NULL) {
    e->threads = mem_alloc(THREADS * sizeof *e->threads);
    e->glance = mem_alloc(sizeof *e->glance);
    sigemptyset(&child); /* the end of a stop is waited for by it */
    sigaddset(&child, SIGCHLD);
    sigprocmask(SIG_BLOCK, &child, &e->old_mask);
  }
  if (e == NULL || e->threads == NULL || e->glance == NULL) {
    failure_set(failure, "out of memory");
    if (e != NULL) close_engine(&e->engine);
    return NULL;
  }
  e->engine = (engine_t){.name = "ptrace",
                         .add = add_process,
                         .remove = remove_process,
                         .poll = poll_ticks,
                         .counts = get_counts,
                         .close = close_engine};
  e->period = 1000000000 / (int64_t)options->hz;
  if (getrandom(&e->random.state, sizeof e->random.state, GRND_NONBLOCK) < 0)
    e->random.state = (uint64_t)clock_now();
  e->next = clock_now();
  set_next(e);
  return &e->engine;
}
