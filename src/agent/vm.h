/* SPDX-License-Identifier: MIT */
/* One profiled VM: the profiler's state for it, found from any of its coroutines through the registry.
 *
 * Mental model. A vm_t is a userdata anchored in the registry: it lives as long as the VM. Profiling it is a
 * session: an engine (how samples are triggered) writes into live tables (vm->live). All of it is touched
 * only by the thread that runs the VM, by the signal handler on that thread and by the profiler's own thread,
 * one at a time: `busy` is the lock. */
#ifndef LUAPULSE_AGENT_VM_H
#define LUAPULSE_AGENT_VM_H

#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "agent/discover.h"
#include "agent/function.h"
#include "agent/host_hook.h"
#include "agent/lua_version.h"
#include "agent/rate_limit.h"
#include "agent/ticker.h"
#include "agent/walked.h"
#include "luapulse.h"
#include "profile/live.h"
#include "profile/random.h"

struct engine;
struct walker;
struct trace;
struct heap;

enum { CAPTURE_MAX_FRAMES = 1024 };

typedef struct {
  live_ref_t function;
  int32_t line;
} captured_frame_t;

/* The labels of a coroutine, for signal handlers. */
typedef struct {
  uint64_t state; /* lua_State; 0: free */
  uint64_t body;  /* its first function: the address of a dead coroutine may be another's by now */
  live_ref_t labels;
} raw_label_t;

enum { RAW_LABELS = 4096, LABEL_SETS = 64 };

/* A coroutine's labels with what the profiler adds to them. */
typedef struct {
  live_ref_t own, whole; /* whole 0: free */
  uint32_t vmstate, trace, state, type;
} label_set_t;

/* A step of a path: what a frame was, and where that has led. */
typedef struct {
  uint64_t key, pc; /* of a walked one */
  captured_frame_t frame;
  live_ref_t node;
} path_step_t;

/* The path of a sample, root first: the next one usually shares most of it. */
typedef struct {
  size_t depth;
  path_step_t steps[CAPTURE_MAX_FRAMES + 1];
} path_t;

/* Working memory of a session, allocated at start so that hooks and handlers need none; touched as it is used. */
typedef struct {
  /* engines that ask Lua */
  captured_frame_t frames[CAPTURE_MAX_FRAMES]; /* leaf first */
  function_cache_t functions;
  discover_scratch_t discover;
  /* walks: of the ticks, and of the heap */
  walked_cache_t walked;
  raw_label_t raw_labels[RAW_LABELS];
  label_set_t label_sets[LABEL_SETS];
  path_t path; /* the last sample's */
} scratch_t;

/* A coroutine.resume in progress; lives on the C stack of the resuming function. */
typedef struct resume_link {
  lua_State *from; /* the resumer */
  struct resume_link *outer;
} resume_link_t;

typedef struct vm {
  tick_listener_t listener; /* first: the handler gets this */
  const struct engine *engine;
  _Atomic int active; /* a session is on */
  _Atomic int paused;
  _Atomic int busy; /* a lock: the profiler is at work in this VM; a handler that finds it taken gives up */
  _Atomic bool inside; /* … and it is the thread that runs the VM: what is allocated now is the profiler's */
  /* start, stop or snapshot is under way: finalizers that run meanwhile may call none of them … */
  bool in_transition;
  bool ending;                       /* … nor anything else, once the session is coming to its end */
  volatile sig_atomic_t left_thread; /* the VM was seen on another thread than its ticker's: no more arming */
  pid_t pid;                         /* process of the session: a forked child is not profiled */

  /* the running coroutine: found when asked for, or, where that does not work, followed (coroutine.h) */
  discover_t discover;
  bool following;              /* `running` and `links` are kept */
  lua_State *volatile running; /* as far as coroutine.resume and wrap tell */
  resume_link_t *links;        /* innermost first */
  lua_State *base;             /* the coroutine that called start; anchored */
  lua_State *main;             /* NULL when unknown (5.1) */
  armed_hook_t armed[2];
  host_hook_t last_host_hook; /* what coroutines made while armed should have inherited */
  int hook_count_offset;      /* of the instruction counter inside lua_State, 0 when not found */

  /* registry references */
  int anchor_ref; /* base */
  int loaded_ref; /* package.loaded */
  int labels_ref; /* coroutine -> label set, weak */
  bool has_labels;

  bool luajit;
  bool jit_was_on;       /* the instructions clock turned it off */
  bool wall;             /* the clock is the wall's */
  bool region_is_shared; /* handed in by `luapulse run`: read by the parent, not unmapped */
  bool names_wanted;     /* a function without a good name was seen since the last search */

  luapulse_profile_options_t options;
  random_t random;
  live_t live;
  void *region;
  size_t region_size;
  size_t charged; /* bytes taken from the process budget */
  scratch_t *scratch;
  live_ref_t truncated_function;
  live_ref_t outside_node;       /* the stack of samples taken while no Lua function ran */
  live_ref_t unreadable_node;    /* the stack of samples whose stack could not be read */
  live_ref_t collector_function; /* [gc] */
  uint64_t started;              /* monotonic, ns */
  _Atomic uint64_t not_before;   /* thread CPU time from which samples count: start or the last resume … */
  _Atomic pid_t
      not_before_thread; /* … on this thread: clocks of threads have nothing to do with each other */
  _Atomic uint64_t samples;
  uint64_t now; /* monotonic time of the sample being taken, ns */

  /* the walker */
  uint64_t global;       /* global_State; 0 when another engine serves */
  uint64_t main_state;   /* its main thread */
  struct walker *walker; /* of the thread that called start */
  _Atomic pid_t home;    /* thread it was last seen on */
  pid_t wait_thread;     /* the last wait counted: while nothing has moved, it goes on */
  _Atomic uint64_t rejects[WALK_REASONS];
  uint64_t wall_last;                      /* monotonic time up to which waiting was counted; the watcher's */
  _Atomic uint64_t wall_due;               /* ns the thread was seen running, for its next tick to take */
  live_ref_t sampled_node, sampled_labels; /* of the last walked sample */
  uint64_t wait_sp, wait_cpu_time;         /* of wait_thread then */
  uint64_t watched_samples, watched_activity; /* when the watcher last looked */
  size_t raw_label_count, raw_labels_set;
  char note[160]; /* why the walker does not serve; "" when it does or was not asked for */

  struct trace *trace; /* tracing: NULL while there is none */
  struct heap *heap;   /* the allocator's wrapper, NULL while there is none; outlives sessions, see heap.h */

  /* the instructions clock */
  rate_limit_t rate_limit;
  host_hook_t host;  /* the host's hook, called from ours */
  int64_t host_left; /* instructions until its count event */

  uint64_t names_due; /* monotonic time before which package.loaded is not searched again */
} vm_t;

/* The VM's state, or NULL when it has none (was never profiled, or is closing). No allocation. */
vm_t *vm_find(lua_State *L);
/* The same, made when needed, NULL only while the VM closes; may raise a Lua memory error. */
vm_t *vm_get(lua_State *L);
/* Pushes the userdata of vm_get(), or false. */
void vm_push(lua_State *L);

/* Between the two, ticks and other threads of the profiler keep out of the VM's state. Sections do not nest. Ordinary
 * context: waits while the thread that samples waiting VMs is at work, which is short. */
void vm_keep_out(vm_t *vm);
static inline void vm_let_in(vm_t *vm) {
  atomic_store_explicit(&vm->inside, false, memory_order_relaxed);
  atomic_store_explicit(&vm->busy, 0, memory_order_release);
}
/* The same for handlers: false when somebody is at work. */
static inline bool vm_try_keep_out(vm_t *vm) {
  return atomic_exchange_explicit(&vm->busy, 1, memory_order_acquire) == 0;
}

/* Takes bytes of the process's budget for the session of a vm_t; false when there are none. Its end gives them back. */
bool vm_charge(void *vm, size_t bytes);

/* True when the session of this VM is on and belongs to this process. */
bool vm_profiled(const vm_t *vm);

#endif
