/* SPDX-License-Identifier: MIT */
/* Threads whose ticks are walked; see walker.h. The handler runs at any instruction of the host: no malloc, no locks, no
 * stdio; the ticker keeps errno. */
#include "agent/walker.h"
#include "agent/registers_context.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "agent/c_nature.h"
#include "agent/mapping.h"
#include "agent/sampler.h"
#include "agent/thread_state.h"
#include "agent/time.h"
#include "agent/vm_index.h"
#include "agent/walk_setup.h"
#include "agent/watcher.h"
#include "walk/memory_own.h"

enum {
  UNKNOWN_STACK = 8 << 20, /* how far up a stack may go whose end is not known */
  ADOPTED_FOR = 1000000000 /* ns a thread is watched for a VM that may have come to it */
};

typedef struct walker walker_t;

struct walker {
  tick_listener_t listener; /* first: the handler gets this */
  struct walker *next;
  pid_t tid;      /* 0: retired, its thread has ended */
  unsigned users; /* VMs that were started here and are still profiled */
  bool adopted;   /* by the watcher, to see whether a VM has come here */
  uint64_t adopted_at;
  _Atomic bool seen; /* a profiled VM has run here */
  _Atomic uint64_t last_sp;
  uint64_t stack_low, stack_high; /* of the thread */
  uint64_t last_global;           /* the VM last seen here */
  walk_t walk;
  memory_own_t memory;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* the list; never taken in the handler */
static walker_t *walkers;

/* -- the handler ------------------------------------------------------------------------------------------------ */

static bool accepts(void *context, uint64_t global) {
  (void)context;
  return vm_index_find(&walked_vms, global) != NULL;
}

static walk_nature_t nature_of_code(void *context, uint64_t code) {
  (void)context;
  return c_nature_of(code);
}

/* A VM found in the index stays alive until the handler ends: who removes it waits for handlers at work. */
static vm_t *aim(walker_t *w, const void *context) {
  walk_t *walk = &w->walk;
  vm_t *likely = w->last_global != 0 ? vm_index_find(&walked_vms, w->last_global) : NULL;
  walk_setup_apply(walk); /* a VM started since may have added to it */
  registers_of_context(context, &walk->registers);
  uint64_t sp = walk->registers.sp;
  bool own_stack =
      sp >= w->stack_low && sp < w->stack_high; /* else one of the host's making: read with care */
  walk->stack_known = own_stack;
  walk->stack_high = own_stack ? w->stack_high : sp + UNKNOWN_STACK;
  memory_own_begin(&w->memory, false, own_stack ? sp : 0, own_stack ? w->stack_high : 0);
  walk->likely_main = likely != NULL ? likely->main_state : 0;
  walk->likely_global = likely != NULL ? likely->global : 0;
  walk->alone = vm_index_count(&walked_vms) == 1;
  return likely;
}

static void on_tick(tick_listener_t *listener, const void *context) {
  walker_t *w = (walker_t *)listener;
  uint64_t weight;
  vm_t *vm = aim(
      w, context); /* who gets the time when no Lua runs: the VM that ran here last, if it is still here */
  if (vm != NULL && atomic_load(&vm->home) != w->tid) vm = NULL;
  walk_reason_t reason = walk_find(&w->walk);
  if (reason == WALK_OK) {
    vm = vm_index_find(&walked_vms, w->walk.states[0].global);
    w->last_global = w->walk.states[0].global;
    if (vm != NULL) atomic_store_explicit(&vm->home, w->tid, memory_order_relaxed);
    atomic_store_explicit(&w->seen, true, memory_order_relaxed);
    atomic_store_explicit(&w->last_sp, w->walk.registers.sp, memory_order_relaxed);
  }
  uint64_t not_before =
      vm != NULL && atomic_load(&vm->not_before_thread) == w->tid ? atomic_load(&vm->not_before) : 0;
  bool counts = vm != NULL && vm->active && !vm->paused;
  if (counts && !vm_try_keep_out(vm)) { /* not taken: the time is the next sample's */
    live_lose(&vm->live, LOSS_DROPPED, 1);
    return;
  }
  bool taken = ticker_take_here(listener->ticker, not_before, &weight);
  if (taken && counts && vm->wall) weight = atomic_exchange(&vm->wall_due, 0);
  if (taken && counts && !(vm->wall && weight == 0)) { /* 0: the watcher saw none of this running */
    if (reason == WALK_OK) reason = walk_frames(&w->walk);
    sampler_take_walk(vm, &w->walk, reason, weight, vm->wall ? LABEL_RUNNING : LABEL_NO_STATE);
  }
  if (counts) vm_let_in(vm);
}

/* -- walkers ------------------------------------------------------------------------------------------------------ */

static pid_t this_thread(void) {
  return (pid_t)syscall(SYS_gettid);
}

static walker_t *make_walker(pid_t tid, failure_t *failure) {
  walker_t *w = mapping_new(sizeof *w);
  if (w == NULL) {
    failure_set(failure, "no memory to walk stacks with: %s", strerror(errno));
    return NULL;
  }
  w->tid = tid;
  w->listener.on_tick = on_tick;
  memory_own_init(&w->memory, getpid());
  walk_setup_apply(&w->walk);
  w->walk.memory = &w->memory.memory;
  w->walk.accepts = accepts;
  w->walk.nature = nature_of_code;
  w->walk.remembers_barren = true;
  if (tid == this_thread()) thread_own_stack(&w->stack_low, &w->stack_high);
  return w;
}

static void end_walker(walker_t *w) {
  ticker_leave(&w->listener);
  mapping_end(w, sizeof *w);
}

/* Its thread is gone, but VMs that were started there are still profiled and know it: it is of no thread and ticks no more. */
static void retire(walker_t *w) {
  ticker_leave(&w->listener);
  w->tid = 0;
  w->stack_low = w->stack_high = 0;
}

/* Ends those whose thread is gone, as soon as no VM knows them, and those nobody needs: this thread's own, or all. A thread's
 * own walker is best ended by the thread itself, which can take a pending signal out of its queue. */
static void sweep(bool all) {
  pid_t tid = this_thread();
  for (walker_t **link = &walkers; *link != NULL;) {
    walker_t *w = *link;
    bool alive = ticker_is_alive(&w->listener);
    if (!alive && w->users > 0) retire(w);
    if (w->users > 0 || (alive && w->tid != tid && !all)) {
      link = &w->next;
      continue;
    }
    *link = w->next;
    end_walker(w);
  }
}

static void before_fork(void) {
  vm_index_lock(&walked_vms); /* the order of locks: index, walkers, ticker */
  pthread_mutex_lock(&lock);
}

static void after_fork_parent(void) {
  pthread_mutex_unlock(&lock);
  vm_index_unlock(&walked_vms);
}

/* The child's other threads and all timers are gone; its sessions are its parent's. */
static void after_fork_child(void) {
  vm_index_forget_all(&walked_vms);
  while (walkers != NULL) {
    walker_t *w = walkers;
    walkers = w->next;
    mapping_end(w, sizeof *w);
  }
  pthread_mutex_unlock(&lock);
  vm_index_unlock(&walked_vms);
}

int walker_guard_forks(void) {
  return pthread_atfork(before_fork, after_fork_parent, after_fork_child);
}

static bool ensure_walker(vm_t *vm, unsigned hz, failure_t *failure) {
  walker_t *w = walkers;
  while (w != NULL && w->tid != this_thread()) w = w->next;
  if (w != NULL) {
    if (!ticker_hasten(&w->listener, hz, failure)) return false;
    ticker_hold(&w->listener, false); /* a VM that is paused may have stopped it */
    if (w->stack_high == 0) thread_own_stack(&w->stack_low, &w->stack_high); /* it was adopted */
    w->adopted = false;
    w->last_global = vm->global;
    w->users++;
    vm->walker = w;
    return true;
  }
  w = make_walker(this_thread(), failure);
  if (w == NULL) return false;
  w->last_global = vm->global;
  if (!ticker_join(&w->listener, hz, random_next(&vm->random), failure)) {
    mapping_end(w, sizeof *w);
    return false;
  }
  w->next = walkers;
  w->users = 1;
  vm->walker = walkers = w;
  return true;
}

void walker_count_from_now(vm_t *vm) {
  atomic_store(&vm->not_before, time_thread_cpu());
  atomic_store(&vm->not_before_thread, this_thread());
}

void walker_pause(vm_t *vm, bool pause) {
  pthread_mutex_lock(&lock); /* another thread may be about to retire it */
  if (vm->walker != NULL && (!pause || vm_index_count(&walked_vms) == 1))
    ticker_hold(&vm->walker->listener, pause);
  pthread_mutex_unlock(&lock);
  if (!pause) walker_count_from_now(vm);
}

bool walker_join(vm_t *vm, unsigned hz, failure_t *failure) {
  atomic_store(&vm->home, this_thread());
  if (!vm_index_add(&walked_vms, vm->global, vm))
    return failure_set(failure, "%d VMs are being profiled already, which is the limit", VM_INDEX_MAX);
  pthread_mutex_lock(&lock);
  sweep(false);
  bool ok = ensure_walker(vm, hz, failure);
  pthread_mutex_unlock(&lock);
  if (ok && watcher_adjust(vm->wall, failure)) return true;
  walker_leave(vm);
  return false;
}

void walker_leave(vm_t *vm) {
  if (vm->pid !=
      getpid()) { /* a forked child's copy of its parent's: its walker went with the parent's threads */
    vm->walker = NULL;
    return;
  }
  vm_index_remove(&walked_vms, vm->global);
  ticker_wait_for_handlers(); /* one may have found the VM just before */
  pthread_mutex_lock(&lock);
  for (walker_t *w = walkers; w != NULL; w = w->next)
    if (w == vm->walker && w->users > 0) w->users--;
  vm->walker = NULL;
  sweep(vm_index_count(&walked_vms) == 0);
  pthread_mutex_unlock(&lock);
  watcher_adjust(false, NULL);
}

/* -- threads a VM may have moved to; the watcher's ------------------------------------------------------------- */

bool walker_adopt(pid_t tid, unsigned hz) {
  failure_t ignored;
  bool ok = false;
  pthread_mutex_lock(&lock);
  walker_t *w = walkers;
  while (w != NULL && w->tid != tid) w = w->next;
  if (w == NULL && vm_index_count(&walked_vms) > 0 && (w = make_walker(tid, &ignored)) != NULL) {
    random_t random = {time_monotonic() ^ (uint64_t)tid};
    w->adopted = true;
    w->adopted_at = time_monotonic();
    ok = ticker_join_thread(&w->listener, tid, hz, random_next(&random), &ignored);
    if (ok) {
      w->next = walkers;
      walkers = w;
    } else {
      mapping_end(w, sizeof *w);
    }
  }
  pthread_mutex_unlock(&lock);
  return ok;
}

/* Adopted threads that ended, or on which no VM has shown itself, are given up. */
void walker_give_up(void (*given_up)(pid_t tid)) {
  uint64_t now = time_monotonic();
  pthread_mutex_lock(&lock);
  for (walker_t **link = &walkers; *link != NULL;) {
    walker_t *w = *link;
    bool ended = w->adopted && time_read(time_thread_clock(w->tid)) == 0;
    if (ended) ticker_mark_gone(&w->listener);
    if (!ended && !(w->adopted && !atomic_load(&w->seen) && now - w->adopted_at > ADOPTED_FOR)) {
      link = &w->next;
      continue;
    }
    *link = w->next;
    given_up(w->tid);
    end_walker(w);
  }
  pthread_mutex_unlock(&lock);
}

bool walker_has_thread(pid_t tid) {
  pthread_mutex_lock(&lock);
  walker_t *w = walkers;
  while (w != NULL && w->tid != tid) w = w->next;
  pthread_mutex_unlock(&lock);
  return w != NULL;
}

bool walker_has_stack(uint64_t address, pid_t *tid, uint64_t *high) {
  bool found = false;
  pthread_mutex_lock(&lock);
  for (walker_t *w = walkers; w != NULL && !found; w = w->next) {
    uint64_t low = w->stack_low, end = w->stack_high;
    if (w->tid == 0) continue;
    if (end == 0) { /* adopted: somewhere around where it was last seen */
      low = atomic_load(&w->last_sp) - UNKNOWN_STACK;
      end = low + 2 * (uint64_t)UNKNOWN_STACK;
    }
    if (address < low || address >= end) continue;
    found = true;
    *tid = w->tid;
    *high = w->stack_high;
  }
  pthread_mutex_unlock(&lock);
  return found;
}

ticker_facts_t walker_facts(const vm_t *vm) {
  ticker_facts_t facts = {.source = ""};
  pthread_mutex_lock(&lock);
  if (vm->walker != NULL) facts = ticker_facts(&vm->walker->listener);
  pthread_mutex_unlock(&lock);
  return facts;
}

/* -- what the layout tells in ordinary context ---------------------------------------------------------------------- */

static uint64_t word_at(uint64_t address) {
  uint64_t word;
  memcpy(&word, (const void *)(uintptr_t)address, sizeof word);
  return word;
}

uint64_t walker_body_of(const lua_State *L) {
  const layout_t *l = walk_setup_layout();
  uint64_t state = (uint64_t)(uintptr_t)L;
  bool narrow = l->family == LAYOUT_LUAJIT && l->luajit.pointer == 4;
  uint64_t stack = word_at(state + (l->family == LAYOUT_PUC ? l->puc.state_stack : l->luajit.state_stack));
  if (narrow) stack = (uint32_t)stack;
  return word_at(stack + walk_body_offset(l));
}

uint64_t walker_key_of(lua_State *L) {
  const layout_t *l = walk_setup_layout();
  if (!lua_isfunction(L, -1)) return 0;
  walk_frame_t frame = {.kind = WALK_C, .code = (uint64_t)(uintptr_t)lua_tocfunction(L, -1)};
  uint64_t object = (uint64_t)(uintptr_t)lua_topointer(L, -1);
  if (l->family == LAYOUT_LUAJIT) {
    uint64_t pc = word_at(object + l->luajit.function_pc);
    frame.proto = (l->luajit.pointer == 4 ? (uint32_t)pc : pc) - l->luajit.proto_size;
    frame.ffid = (uint8_t)word_at(object + l->luajit.function_ffid);
    frame.kind = frame.ffid == 0 ? WALK_LUA : frame.ffid == 1 ? WALK_C : WALK_BUILTIN;
  } else if (frame.code ==
             0) { /* no address is more than a pointer to it: light C functions have no object */
    frame.kind = WALK_LUA;
    frame.proto = word_at(object + l->puc.closure_proto);
  }
  return walked_key(&frame);
}
