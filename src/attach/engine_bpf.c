/* SPDX-License-Identifier: MIT */
/* The engine in the kernel; see engine.h and bpf/sampler.bpf.c.
 *
 * Each thread of a target has a perf event that ticks with its CPU time, and threads it starts inherit it, and with `follow` processes
 * too. Its period is changed by chance now and then, so that no program keeps in step with it for long; a sample weighs what the thread
 * has run since the last. More ticks than are wanted, of which chance makes some samples, would vary every gap; but in a virtual machine a
 * tick may cost as much as a sample. */
#include <bpf/libbpf.h>
#include <errno.h>
#include <linux/perf_event.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "attach/bpf/programs.h"
#include "attach/clock.h"
#include "attach/engine.h"
#include "attach/process.h"
#include "attach/process_stat.h"
#include "profile/mem.h"
#include "profile/random.h"

enum {
  LOOK_MS = 50,
  /* how often periods are changed: a share of a program that kept in step with one is off by so many samples, no more (above 1600 a second,
   * by those of 10 ms) … */
  VARY_TICKS = 16,
  VARY_MOST_MS = 200,
  VARY_LEAST_MS = 10,
  VARIED = 64,      /* … and of how many events at a time: it interrupts their threads for a moment */
  LEAST_PART = 4,   /* of a period */
  MOST_ENDED = 256, /* processes that have ended whose events are kept */
  /* Where samples come faster than they can be told of, a poll would never end, and nobody could end the recording: what is left is for the
   * next, and when the ring is full it is lost, and counted. */
  TAKE_MS = 100,
  ENOUGH = -ECANCELED /* to libbpf, from what it calls */
};

typedef struct {
  int fd;
  int apart; /* keeps it to its thread */
  pid_t tid;
  bool is_first; /* its period is */
} event_t;

typedef struct {
  pid_t pid;
  event_t *events; /* empty: its events are those of a parent */
  size_t count, room;
  uint64_t since; /* in ticks since boot, as /proc has it: children that begin later inherit its events */
  int64_t added;  /* when it became a target, or did again: CLOCK_MONOTONIC, ns */
} ticked_t;

typedef struct {
  engine_t engine; /* first */
  engine_options_t options;
  programs_t *programs;
  struct ring_buffer *ring;
  random_t random;
  int64_t varied;           /* when periods were changed last: CLOCK_MONOTONIC, ns */
  size_t vary_at, vary_one; /* process and event whose turn it is */
  size_t first_count;       /* of events whose first period lasts */
  ticked_t *ticked;         /* processes whose threads have events */
  size_t count, room;
  ticked_t ended[MOST_ENDED]; /* with them the events of the children that they have left would end */
  size_t ended_count;
  int64_t until;       /* of the poll that is under way: when it ends although there are more samples … */
  engine_take_t *take; /* … and who is told of them */
  void *context;
  bool behind;     /* the last poll has left samples … */
  uint64_t unread; /* … and so many were left at the end */
} engine_bpf_t;

/* -- samples -------------------------------------------------------------------------------------------------------- */

static ticked_t *find_ticked(engine_bpf_t *e, pid_t pid) {
  for (size_t i = 0; i < e->count; i++)
    if (e->ticked[i].pid == pid) return &e->ticked[i];
  return NULL;
}

static ticked_t *add_ticked(engine_bpf_t *e, pid_t pid) {
  if (!mem_reserve((void **)&e->ticked, &e->room, e->count + 1, sizeof *e->ticked)) return NULL;
  e->ticked[e->count] = (ticked_t){.pid = pid};
  return &e->ticked[e->count++];
}

static void forget_ticked(engine_bpf_t *e, ticked_t *ticked) {
  *ticked = e->ticked[--e->count];
}

/* As the program in the kernel hands it over. */
typedef struct {
  walk_origin_t origin;
  walk_vmstate_t vmstate;
  uint32_t trace;
  uint32_t frame_count;
  bool truncated;
  bool collector_marked;
  walk_frame_t frames[];
} handed_t;

_Static_assert(offsetof(handed_t, frames) == offsetof(walk_t, frames) - offsetof(walk_t, origin),
               "a sample is the end of walk_t");
_Static_assert(offsetof(handed_t, frame_count) == offsetof(walk_t, frame_count) - offsetof(walk_t, origin),
               "a sample is the end of walk_t");

static int on_sample(void *context, void *data, size_t size) {
  engine_bpf_t *e = context;
  const handed_t *handed = data;
  if (size < offsetof(handed_t, frames)) return 0;
  size_t room = (size - offsetof(handed_t, frames)) / sizeof handed->frames[0];
  engine_sample_t sample = {.origin = handed->origin,
                            .vmstate = handed->vmstate,
                            .trace = handed->trace,
                            .truncated = handed->truncated,
                            .unknown = handed->origin.reason == BPF_UNKNOWN,
                            .frame_count = handed->frame_count < room ? handed->frame_count : (uint32_t)room,
                            .frames = handed->frames};
  if (sample.unknown) {
    const ticked_t *ticked = find_ticked(e, sample.origin.pid);
    if (ticked != NULL && (int64_t)sample.origin.time < ticked->added) return 0;   /* it is known by now */
    if (ticked == NULL && sample.origin.pid > 0) add_ticked(e, sample.origin.pid); /* a child */
    sample.origin.reason = WALK_NO_STATE;
  }
  if (sample.origin.reason != WALK_OK) sample.frame_count = 0; /* of a walk that failed there may be some */
  e->take(e->context, &sample);
  return clock_now() < e->until ? 0 : ENOUGH;
}

/* -- ticks ------------------------------------------------------------------------------------------------------------ */

/* The rate is what varies evenly, from half to one and a half times what was asked for: each lasts for the same time, and their mean counts. */
static uint64_t vary(engine_bpf_t *e) {
  return (uint64_t)1000000000 * 1000 / random_jitter(&e->random, (uint64_t)e->options.hz * 1000);
}

/* A first period is cut short, and lasts until its first tick was seen. */
static uint64_t part_of(engine_bpf_t *e, uint64_t period) {
  uint64_t part = (uint64_t)(random_unit(&e->random) * (double)period);
  return part > period / LEAST_PART ? part : period / LEAST_PART;
}

static bool change(engine_bpf_t *e, event_t *event) {
  uint64_t period = vary(e);
  if (!programs_next_period(e->programs, (uint32_t)event->tid, period)) return false;
  ioctl(event->fd, PERF_EVENT_IOC_PERIOD, &period); /* it may have ended */
  if (event->is_first) e->first_count--;
  event->is_first = false;
  return true;
}

/* A child that was met by its ticks, and ended before anybody could look into it. */
static bool was_brief(const ticked_t *ticked) {
  return ticked->count == 0 && ticked->added == 0 && kill(ticked->pid, 0) != 0 && errno == ESRCH;
}

static void change_first(engine_bpf_t *e) {
  for (size_t i = 0; i < e->count && e->first_count > 0; i++)
    for (size_t k = 0; k < e->ticked[i].count; k++)
      if (e->ticked[i].events[k].is_first) change(e, &e->ticked[i].events[k]);
}

static int vary_ms(const engine_bpf_t *e) {
  int ms = VARY_TICKS * 1000 / (int)e->options.hz;
  return ms < VARY_LEAST_MS ? VARY_LEAST_MS : ms > VARY_MOST_MS ? VARY_MOST_MS : ms;
}

static void change_some(engine_bpf_t *e) {
  int64_t now = clock_now();
  change_first(e);
  if (now - e->varied < (int64_t)vary_ms(e) * 1000000) return;
  e->varied = now;
  for (size_t i = 0, events = 0; i < e->count; i++, e->vary_at++, e->vary_one = 0) {
    if (e->vary_at >= e->count) e->vary_at = 0;
    if (was_brief(&e->ticked[e->vary_at])) {
      forget_ticked(e, &e->ticked[e->vary_at]);
      return; /* they have changed places */
    }
    const ticked_t *ticked = &e->ticked[e->vary_at];
    for (; e->vary_one < ticked->count; e->vary_one++) {
      if (events++ == VARIED) return;
      change(e, &ticked->events[e->vary_one]);
    }
  }
}

/* Of a thread, 0 is one's own: a descriptor, or -1 with errno. It does not tick yet. */
static int new_event(const engine_bpf_t *e, pid_t tid, uint64_t period) {
  struct perf_event_attr attr = {
      .type = PERF_TYPE_SOFTWARE,
      .size = sizeof attr,
      .config = PERF_COUNT_SW_CPU_CLOCK,
      .sample_period = period,
      .inherit = 1,
      .inherit_thread = !e->options.follow,
      .disabled = 1,
  };
  return (int)syscall(SYS_perf_event_open, &attr, tid, -1, -1, PERF_FLAG_FD_CLOEXEC);
}

/* Where all events of a thread are inherited the kernel takes those of its children for the same: it spares itself the change and leaves one
 * thread's to the other when it switches between them. What ticks a thread would have another's period then. One that is not inherited, and does
 * nothing, prevents that. */
static int new_obstacle(pid_t tid) {
  struct perf_event_attr attr = {
      .type = PERF_TYPE_SOFTWARE, .size = sizeof attr, .config = PERF_COUNT_SW_DUMMY, .disabled = 1};
  return (int)syscall(SYS_perf_event_open, &attr, tid, -1, -1, PERF_FLAG_FD_CLOEXEC);
}

/* There are kernels that load programs for whom they deny events. */
static bool may_tick(const engine_bpf_t *e, failure_t *failure) {
  enum { PERIOD = 1000000000 };
  int fd = new_event(e, 0, PERIOD);
  if (fd < 0 && (errno == EACCES || errno == EPERM)) return process_perf_refused(failure);
  if (fd >= 0) close(fd);
  return true;
}

static bool open_event(engine_bpf_t *e, ticked_t *ticked, pid_t tid, int *error) {
  uint64_t period = vary(e), part = part_of(e, period);
  int apart = new_obstacle(tid), fd = apart >= 0 ? new_event(e, tid, part) : -1;
  if (fd >= 0 && ioctl(fd, PERF_EVENT_IOC_SET_BPF, programs_tick_fd(e->programs)) == 0 &&
      ioctl(fd, PERF_EVENT_IOC_ENABLE, 0) == 0 &&
      mem_reserve((void **)&ticked->events, &ticked->room, ticked->count + 1, sizeof *ticked->events)) {
    ticked->events[ticked->count++] = (event_t){fd, apart, tid, true};
    e->first_count++;
    programs_first_period(e->programs, (uint32_t)tid, part, period);
    return true;
  }
  *error = errno;
  if (fd >= 0) close(fd);
  if (apart >= 0) close(apart);
  return *error == ESRCH; /* it has ended: there is nothing to sample */
}

static bool open_refused(pid_t pid, int error, failure_t *failure) {
  if (error == EMFILE)
    return failure_set(failure, "process %d has more threads than files may be open here (ulimit -n)",
                       (int)pid);
  if (error == EACCES || error == EPERM) return process_perf_refused(failure);
  return failure_set(failure, "perf events of process %d cannot be opened: %s", (int)pid, strerror(error));
}

static void close_events(engine_bpf_t *e, ticked_t *ticked) {
  for (size_t i = 0; i < ticked->count; i++) {
    programs_drop_period(e->programs, (uint32_t)ticked->events[i].tid);
    if (ticked->events[i].is_first) e->first_count--;
    close(ticked->events[i].fd);
    close(ticked->events[i].apart);
  }
  mem_free(ticked->events);
}

/* Seconds since boot in the unit of /proc/PID/stat. */
static uint64_t ticks_since_boot(void) {
  struct timespec t;
  clock_gettime(CLOCK_BOOTTIME, &t);
  uint64_t hz = (uint64_t)sysconf(_SC_CLK_TCK);
  return (uint64_t)t.tv_sec * hz + (uint64_t)t.tv_nsec * hz / 1000000000;
}

/* What was started by a process with events has them, too, and what that has started. */
static bool inherits(engine_bpf_t *e, pid_t pid) {
  enum { GENERATIONS = 64 }; /* of a line that changes while it is read, no end may be seen */
  process_stat_t stat;
  for (int i = 0; e->options.follow && i < GENERATIONS && pid > 1 && process_stat(&stat, pid); i++) {
    const ticked_t *parent = find_ticked(e, stat.parent);
    if (parent != NULL) return stat.started >= parent->since;
    pid = stat.parent;
  }
  return false;
}

/* All threads at once, while none can start another: that would be ticked twice, or not at all. */
static bool tick(engine_bpf_t *e, const stopped_t *held, failure_t *failure) {
  int error = 0;
  bool ok = true, has_events = inherits(e, held->pid);
  ticked_t *ticked = add_ticked(e, held->pid);
  if (ticked == NULL) return failure_set(failure, "out of memory");
  ticked->since = has_events ? 0 : ticks_since_boot();
  for (size_t i = 0; ok && !has_events && i < held->count; i++)
    ok = open_event(e, ticked, held->threads[i].tid, &error);
  if (ok) return true;
  close_events(e, ticked);
  forget_ticked(e, ticked);
  return open_refused(held->pid, error, failure);
}

static bool watch(engine_t *engine, pid_t pid, failure_t *failure) {
  engine_bpf_t *e = (engine_bpf_t *)engine;
  stopped_t held;
  int error;
  if (find_ticked(e, pid) != NULL) return true;
  if (!stopped_begin(&held, pid, &error))
    return failure_set(failure, "process %d cannot be stopped: %s", (int)pid, strerror(error));
  bool ok = tick(e, &held, failure);
  stopped_free(&held);
  return ok;
}

/* -- targets ------------------------------------------------------------------------------------------------------------ */

/* The largest programs and libraries: most words of a stack that are no lua_States lead there. */
static void find_images(const maps_t *maps, walk_range_t near[WALK_NEAR_IMAGES]) {
  uint32_t count = 0;
  walk_range_t *images = maps_images(maps, &count);
  for (uint32_t i = 0; i < count; i++) {
    uint32_t least = 0;
    for (uint32_t k = 1; k < WALK_NEAR_IMAGES; k++)
      if (near[k].end - near[k].start < near[least].end - near[least].start) least = k;
    if (images[i].end - images[i].start > near[least].end - near[least].start) near[least] = images[i];
  }
  mem_free(images);
}

static bool describe(engine_bpf_t *e, const runtimes_t *runtimes, bpf_target_t *target, failure_t *failure) {
  size_t vms = 0;
  *target = (bpf_target_t){.space = 0};
  for (size_t i = 0; i < runtimes->count && target->runtime_count < BPF_RUNTIMES; i++) {
    const runtime_t *runtime = &runtimes->runtimes[i];
    if (runtime->layout == NULL) continue;
    walker_kind_t kind = {*runtime->layout, target->runtime_count, (uint32_t)i};
    if (!programs_walker(e->programs, &kind, &target->walkers[kind.turn], failure)) return false;
    target->runtime_count++;
    if (runtime->vms != NULL) vms += runtime->vms->count;
    if (runtime->layout->family != LAYOUT_LUAJIT) continue;
    target->vm_low = runtime->vm_low;
    target->vm_high = runtime->vm_high;
    if (runtime->vms != NULL && runtime->vms->count > 0) target->global = runtime->vms->vms[0].global;
  }
  target->others = vms != 1;
  return true;
}

/* Loads what is not loaded yet. */
static bool prepare(engine_t *engine, const runtimes_t *runtimes, failure_t *failure) {
  engine_bpf_t *e = (engine_bpf_t *)engine;
  bpf_target_t ignored;
  return describe(e, runtimes, &ignored, failure);
}

static bool add_target(engine_t *engine, const target_t *held, const runtimes_t *runtimes,
                       failure_t *failure) {
  engine_bpf_t *e = (engine_bpf_t *)engine;
  pid_t pid = held->process.pid;
  bpf_target_t target;
  if (!describe(e, runtimes, &target, failure)) return false;
  find_images(&held->maps, target.images);
  if (!programs_set_target(e->programs, (uint32_t)pid, &target))
    return failure_set(failure, "there is no room for process %d: %s", (int)pid, strerror(errno));
  /* after exec, and in children, ticks go on */
  if (find_ticked(e, pid) == NULL && !tick(e, &held->stopped, failure)) {
    programs_drop_target(e->programs, (uint32_t)pid);
    return false;
  }
  find_ticked(e, pid)->added = clock_now();
  return true;
}

/* The oldest give way: of a service whose processes come and go for weeks, one does not run out of descriptors. */
static void keep_ended(engine_bpf_t *e, ticked_t *ticked) {
  if (e->ended_count == MOST_ENDED) {
    close_events(e, &e->ended[0]);
    memmove(e->ended, e->ended + 1, --e->ended_count * sizeof *e->ended);
  }
  e->ended[e->ended_count++] = *ticked;
}

static void remove_target(engine_t *engine, pid_t pid) {
  engine_bpf_t *e = (engine_bpf_t *)engine;
  ticked_t *ticked = find_ticked(e, pid);
  programs_drop_target(e->programs, (uint32_t)pid);
  if (ticked == NULL) return;
  if (e->options.follow && ticked->count > 0)
    keep_ended(e, ticked);
  else
    close_events(e, ticked);
  forget_ticked(e, ticked);
}

/* -- taking ------------------------------------------------------------------------------------------------------------ */

static int on_unread(void *context, void *data, size_t size) {
  engine_bpf_t *e = context;
  (void)data;
  (void)size;
  e->unread++;
  return 0;
}

/* A second reader of the ring begins where the first has left off. */
static void end(engine_t *engine) {
  engine_bpf_t *e = (engine_bpf_t *)engine;
  struct ring_buffer *ring =
      e->behind ? ring_buffer__new(programs_samples_fd(e->programs), on_unread, e, NULL) : NULL;
  if (ring != NULL) ring_buffer__consume(ring);
  ring_buffer__free(ring);
  e->behind = false;
}

static bool poll_samples(engine_t *engine, int milliseconds, engine_take_t *take, void *context,
                         failure_t *failure) {
  engine_bpf_t *e = (engine_bpf_t *)engine;
  change_some(e);
  e->until = clock_now() + (int64_t)(milliseconds + TAKE_MS) * 1000000;
  e->take = take;
  e->context = context;
  int look = vary_ms(e) < LOOK_MS ? vary_ms(e) : LOOK_MS;
  /* one is woken early only when there is much */
  int result = ring_buffer__poll(e->ring, milliseconds < look ? milliseconds : look);
  if (result >= 0 || result == -EINTR) result = ring_buffer__consume(e->ring);
  e->behind = result == ENOUGH;
  return result >= 0 || e->behind ||
         failure_set(failure, "the kernel's samples cannot be read: %s", strerror(-result));
}

/* -- the engine ---------------------------------------------------------------------------------------------------------- */

static void count(engine_t *engine, engine_counts_t *counts) {
  engine_bpf_t *e = (engine_bpf_t *)engine;
  *counts = (engine_counts_t){.lost = programs_lost(e->programs) + e->unread};
  programs_costs(e->programs, &counts->bpf_ns, &counts->bpf_runs, &counts->verified);
}

static void close_engine(engine_t *engine) {
  engine_bpf_t *e = (engine_bpf_t *)engine;
  for (size_t i = 0; i < e->count; i++) close_events(e, &e->ticked[i]);
  for (size_t i = 0; i < e->ended_count; i++) close_events(e, &e->ended[i]);
  mem_free(e->ticked);
  ring_buffer__free(e->ring);
  programs_close(e->programs);
  mem_free(e);
}

/* Two descriptors for each thread; and BPF memory counts as locked on kernels before 5.11, where this is needed. Neither is fatal. */
static void raise_limits(void) {
  struct rlimit files, memory = {RLIM_INFINITY, RLIM_INFINITY};
  if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
  }
  setrlimit(RLIMIT_MEMLOCK, &memory);
}

engine_t *engine_bpf_open(const engine_options_t *options, failure_t *failure) {
  engine_bpf_t *e = mem_alloc(sizeof *e);
  if (e == NULL) {
    failure_set(failure, "out of memory");
    return NULL;
  }
  *e = (engine_bpf_t){
      .engine = {"bpf", watch, prepare, add_target, remove_target, poll_samples, end, count, close_engine},
      .options = *options};
  if (getrandom(&e->random.state, sizeof e->random.state, GRND_NONBLOCK) < 0)
    e->random.state = (uint64_t)clock_now();
  raise_limits();
  e->programs = programs_open(options->hz, options->whose, failure);
  if (e->programs != NULL && may_tick(e, failure)) {
    e->ring = ring_buffer__new(programs_samples_fd(e->programs), on_sample, e, NULL);
    if (e->ring != NULL) return &e->engine;
    failure_set(failure, "the kernel's samples cannot be read: %s", strerror(errno));
  }
  programs_close(e->programs);
  mem_free(e);
  return NULL;
}
