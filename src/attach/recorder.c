/* SPDX-License-Identifier: MIT */
/* Targets of a recording; see recorder.h. What becomes of their samples: recording.c. */
#include "attach/recorder.h"

#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "attach/children.h"
#include "attach/clock.h"
#include "attach/collector.h"
#include "attach/recording.h"
#include "attach/search.h"
#include "attach/stopped_thread.h"
#include "attach/target_file.h"
#include "profile/mem.h"

enum {
  ATTEMPTS = 9,               /* to find a Lua in a target that does not stay: half a second … */
  FIRST_RETRY_NS = 1000000,   /* … for the distances double … */
  MOST_RETRY_NS = 1000000000, /* … up to a second */
  REFUSALS = 5,               /* another tracer may hold it for a moment */
  LOOKS = 2, /* into targets in one poll: it takes milliseconds, in which the others are not sampled */
  CHILDREN_NS = 10 * 1000000, /* between looks for children */
  SETTLE_NS =
      10 * 1000000, /* … and for threads that come to a stop late, and stand still until they are met */
  VMS_NS =
      1000000000,  /* between two looks which VMs of a target are closed, when there is no room for another */
  VMS_SHARE = 500, /* looking for VMs may cost 1/500 of the time */
  NEW_MAX = 64,    /* processes first met in one poll */
  LINGER_NS =
      200000000, /* after the end of the last target, for a child that it left behind to have its first tick */
  EXEC_NS = 1000000000,    /* between two looks whether a target has called exec that no sample shows … */
  EXEC_EACH_NS = 10000000, /* … and for each of many targets so much more */
  FORKS_NS =
      50000000, /* between looks whether targets have forked, where children are not followed: at first … */
  FORKS_DOUBLINGS = 5 /* … and at last: 1.6 s */
};

typedef struct {
  pid_t pid, inner;
  int pidfd;  /* -1: the kernel has none; then its end is seen by its state */
  bool given; /* by who asked for the recording; else it is a child that is followed */
  bool stays;
  bool found;    /* a Lua was, at some time */
  bool sampled;  /* a Lua was found, and the engine has it */
  bool executed; /* what was found is no more: it has called exec */
  bool said;     /* that there is no Lua */
  bool met;      /* it was tried to look into it … */
  bool looked;   /* … and succeeded once */
  bool lives;    /* a thread of it was held in this poll */
  bool refused;  /* and could not be, the last time */
  pid_t
      forked; /* a child that is not recorded, and was its like at the last look; 0: none, -1: it was said */
  int attempts;
  int64_t due;      /* when to look into it again */
  uint64_t space;   /* as it was looked into */
  int64_t ended;    /* when that was seen of the last one; 0: it lives, or is not */
  int64_t exec_due; /* when to look whether it has another one */
  char name[PROCESS_NAME];
  target_t target;
  runtimes_t *runtimes;  /* NULL: the target is not open */
  collector_t collector; /* where only counts are wanted */
  layout_t layout;       /* that was given; the runtimes lead to it */
  int64_t vms_due;       /* when closed VMs may be looked for again */
} recorded_t;

struct recorder {
  engine_t *engine;
  recorder_options_t options;
  recording_t *recording;
  recorded_t **targets;
  size_t count, room;
  children_t children;
  int64_t forks_due; /* when to look for those that are not followed */
  unsigned forks_looks;
  search_t *search;   /* NULL: not all are wanted */
  pid_t met[NEW_MAX]; /* by samples */
  size_t met_count;
  bool said_full;
  uint64_t found, failed, looked, refused;
  remote_t *remote; /* for looking for VMs; NULL until the first time */
  walk_t *walk;
  int64_t look_due; /* when to look for VMs that no sample shows: of all targets … */
  size_t look_turn; /* … the next */
};

recorder_t *recorder_new(engine_t *engine, const recorder_options_t *options) {
  recorder_t *r = mem_alloc(sizeof *r);
  if (r == NULL) return NULL;
  r->engine = engine;
  r->options = *options;
  r->recording = recording_new(options->hz);
  if (options->all) r->search = search_new();
  if (r->recording != NULL && (r->search != NULL || !options->all)) return r;
  recording_free(r->recording);
  search_free(r->search);
  mem_free(r);
  return NULL;
}

static void say(recorder_t *r, const recorded_t *t, const char *text) {
  char line[600];
  char inner[48] = "";
  if (t->inner != t->pid) snprintf(inner, sizeof inner, ", %d in its container", (int)t->inner);
  snprintf(line, sizeof line, "process %d (%s%s) %s", (int)t->pid, t->name, inner, text);
  r->options.say(r->options.context, false, line);
}

static recorded_t *find(const recorder_t *r, pid_t pid) {
  for (size_t i = 0; i < r->count; i++)
    if (r->targets[i]->pid == pid) return r->targets[i];
  return NULL;
}

/* -- looking into a target -------------------------------------------------------------------------------------------- */

static void close_target(recorder_t *r, recorded_t *t) {
  if (t->runtimes == NULL) return;
  recording_forget(r->recording, &t->target);
  runtimes_free(t->runtimes);
  target_close(&t->target);
  mem_free(t->runtimes);
  t->runtimes = NULL;
}

typedef enum { FOUND, NONE, REFUSED /* it may not be read, or cannot */ } decision_t;

/* The target is held, and stays so only if it was started for the recording: getting ready may take the engine tenths of a second. */
static bool tell_engine(recorder_t *r, recorded_t *t, failure_t *failure) {
  engine_t *engine = r->engine;
  if (engine->prepare != NULL) {
    if (!r->options.started) target_release(&t->target);
    if (!engine->prepare(engine, t->runtimes, failure)) return false;
    if (!r->options.started && !target_hold(&t->target, failure)) return false;
  }
  return engine->add(engine, &t->target, t->runtimes, failure);
}

/* Decides which Lua it is, and tells the engine. Otherwise nothing is open, and the failure says why. */
static decision_t decide(recorder_t *r, recorded_t *t, failure_t *failure) {
  runtime_options_t options = {.from_debug = r->options.from_debug};
  decision_t decision = REFUSED;
  t->runtimes = mem_alloc(sizeof *t->runtimes);
  if (t->runtimes == NULL || !target_open(&t->target, t->pid, failure)) {
    if (t->runtimes == NULL) failure_set(failure, "out of memory");
    mem_free(t->runtimes);
    t->runtimes = NULL;
    return REFUSED;
  }
  if (r->options.layout != NULL) {
    if (!r->options.layout(r->options.context, &t->target.idents, &t->layout, failure)) goto end;
    options.given = &t->layout;
    options.given_name = "given by --layout";
  }
  if (!runtimes_decide(t->runtimes, &t->target, &options, failure)) goto end;
  decision = runtimes_any(t->runtimes) ? FOUND : NONE;
  if (decision == NONE) runtimes_say_none(t->runtimes, &t->target, failure);
  if (decision == FOUND && !tell_engine(r, t, failure)) decision = REFUSED;
end:
  target_release(&t->target);
  if (decision != FOUND) {
    close_target(r, t);
    return decision;
  }
  recording_describe(r->recording, &t->target, t->runtimes);
  if (r->options.counts_only) collector_find(&t->collector, &t->target, t->runtimes);
  runtimes_trim(t->runtimes);
  target_rest(&t->target);
  return FOUND;
}

static bool has_ended(const recorded_t *t) {
  process_stat_t stat;
  if (t->pidfd >= 0) {
    struct pollfd p = {t->pidfd, POLLIN, 0};
    return poll(&p, 1, 0) > 0;
  }
  return !process_stat(&stat, t->pid) || stat.state == 'Z' || stat.state == 'X';
}

static uint64_t space_of(pid_t pid) {
  process_stat_t stat;
  return process_stat(&stat, pid) ? stat.space : 0;
}

static void retry_later(recorded_t *t) {
  int64_t pause = t->attempts < 10 ? (int64_t)FIRST_RETRY_NS << t->attempts : MOST_RETRY_NS;
  t->attempts++;
  t->due = clock_now() + (pause < MOST_RETRY_NS ? pause : MOST_RETRY_NS);
}

/* The file by its path as the process sees it: another one is there, or none. */
static bool is_replaced(pid_t pid, const char *path, size_t len) {
  char seen[PATH_MAX];
  int made = snprintf(seen, sizeof seen, "%.*s", (int)len, path);
  return made > 0 && (size_t)made < sizeof seen && target_file_is_there(pid, seen);
}

/* What runs is the file as it was when it was mapped, which its path does not lead to any more: who looks there sees another. */
static void say_of_file(recorder_t *r, const recorded_t *t, const char *what, const char *path) {
  static const char mark[] = " (deleted)";
  char text[PATH_MAX + 64];
  size_t len = strlen(path), mark_len = sizeof mark - 1;
  if (len <= mark_len || strcmp(path + len - mark_len, mark) != 0) return;
  len -= mark_len;
  snprintf(text, sizeof text, "runs %s that was %s since: %.*s", what,
           is_replaced(t->pid, path, len) ? "replaced" : "deleted", (int)len, path);
  say(r, t, text);
}

static void say_of_files(recorder_t *r, const recorded_t *t) {
  bool of_program = false;
  for (size_t i = 0; i < t->runtimes->count; i++) {
    const runtime_t *runtime = &t->runtimes->runtimes[i];
    const map_t *map = runtime->layout != NULL ? maps_find(&t->target.maps, runtime->ident.at) : NULL;
    if (map == NULL || map->inode == 0) continue;
    bool is_program = strcmp(map->path, t->target.process.exe) == 0;
    say_of_file(r, t, is_program ? "a program" : "a library", map->path);
    of_program |= is_program;
  }
  if (!of_program) say_of_file(r, t, "a program", t->target.process.exe);
}

/* Looks into it once more. False when there is no hope left: the failure says why. */
static bool attempt(recorder_t *r, recorded_t *t, failure_t *failure) {
  uint64_t space = space_of(t->pid);
  t->met = true;
  if (space != t->space) t->attempts = 0; /* another program */
  t->space = space;
  if (r->options.follow && r->engine->watch != NULL) r->engine->watch(r->engine, t->pid, failure);
  decision_t decision = decide(r, t, failure);
  t->refused = decision == REFUSED;
  r->looked += !t->refused && !t->looked;
  t->looked |= !t->refused;
  if (decision == FOUND && space_of(t->pid) == space) {
    r->found += !t->found; /* not once more after exec */
    t->sampled = t->found = true;
    t->executed = t->said = false;
    t->attempts = 0;
    if (t->given) say_of_files(r, t);
    return true;
  }
  if (decision == FOUND) { /* it has called exec meanwhile */
    r->engine->remove(r->engine, t->pid);
    close_target(r, t);
  }
  retry_later(t);
  return t->attempts < (decision == REFUSED ? REFUSALS : ATTEMPTS);
}

/* -- coming and going --------------------------------------------------------------------------------------------------- */

static void drop(recorder_t *r, size_t i) {
  recorded_t *t = r->targets[i];
  r->engine->remove(r->engine, t->pid);
  close_target(r, t);
  if (t->pidfd >= 0) close(t->pidfd);
  mem_free(t);
  r->targets[i] = r->targets[--r->count];
}

static recorded_t *add(recorder_t *r, pid_t pid, failure_t *failure) {
  process_t process;
  if (r->count == RECORDER_TARGETS) {
    failure_set(failure, "more than %d processes at once", RECORDER_TARGETS);
    return NULL;
  }
  if (!process_look(&process, pid, failure)) return NULL;
  recorded_t *t = mem_alloc(sizeof *t);
  if (t == NULL || !mem_reserve((void **)&r->targets, &r->room, r->count + 1, sizeof(void *))) {
    mem_free(t);
    failure_set(failure, "out of memory");
    return NULL;
  }
  t->pid = pid;
  t->inner = process.inner;
  t->pidfd = pidfd_open(pid, 0);
  snprintf(t->name, sizeof t->name, "%s", process.name);
  r->targets[r->count++] = t;
  return t;
}

bool recorder_add(recorder_t *r, pid_t pid, bool stays, failure_t *failure) {
  recorded_t *t = find(r, pid);
  if (t == NULL) t = add(r, pid, failure);
  if (t == NULL) return false;
  t->given = true;
  t->stays = stays || r->options.follow;
  return true;
}

/* A process that nobody named. */
static void take_in(recorder_t *r, pid_t pid, bool stays) {
  failure_t ignored; /* it has ended already, or is none that could be read */
  if (find(r, pid) != NULL) return;
  if (r->count < RECORDER_TARGETS) {
    recorded_t *t = add(r, pid, &ignored);
    if (t != NULL) t->stays = stays;
  } else if (!r->said_full) {
    r->said_full = true;
    r->options.say(r->options.context, true,
                   "there are more processes than can be recorded at once: some are left out");
  }
}

static void follow(recorder_t *r, pid_t pid) {
  take_in(r, pid, true);
}

static void on_lua(void *context, pid_t pid) {
  take_in(context, pid, false); /* one in which no VM is found is told of again */
}

static void on_process(void *context, pid_t child, pid_t parent) {
  if (find(context, parent) != NULL) follow(context, child);
}

/* -- forks that are not followed --------------------------------------------------------------------------------------- */

static bool is_like(pid_t child, pid_t parent) {
  struct stat of_child, of_parent;
  char path[32];
  snprintf(path, sizeof path, "/proc/%d/exe", (int)child);
  if (stat(path, &of_child) != 0) return false;
  snprintf(path, sizeof path, "/proc/%d/exe", (int)parent);
  return stat(path, &of_parent) == 0 && of_child.st_ino == of_parent.st_ino &&
         of_child.st_dev == of_parent.st_dev;
}

static void on_fork(void *context, pid_t child, pid_t parent) {
  recorder_t *r = context;
  recorded_t *t = find(r, parent);
  if (t != NULL && t->given && t->forked == 0 && find(r, child) == NULL && is_like(child, parent))
    t->forked = child;
}

/* That a target has children which run what it runs, and are not recorded, is said once. Most that are seen only once are about to become
 * another program. */
static void look_for_forks(recorder_t *r) {
  int64_t now = clock_now();
  if (now < r->forks_due) return;
  unsigned doublings = r->forks_looks < FORKS_DOUBLINGS ? r->forks_looks : FORKS_DOUBLINGS;
  r->forks_due = now + ((int64_t)FORKS_NS << doublings);
  r->forks_looks++;
  for (size_t i = 0; i < r->count; i++) {
    recorded_t *t = r->targets[i];
    if (t->forked <= 0 || !t->sampled) continue;
    bool lives = is_like(t->forked, t->pid);
    if (lives) say(r, t, "has forked: its children are recorded only with --follow (-s)");
    t->forked = lives ? -1 : 0;
  }
  children_look(&r->children, on_fork, r);
}

/* A given target that ends or is given up without a sample is a failure of the recording, unless its children are what is wanted. */
static void note_failed(recorder_t *r, const recorded_t *t, const char *text) {
  if (!t->given || t->found || r->options.follow) return;
  r->failed++;
  r->options.say(r->options.context, true, text);
}

/* False when the target is no more one. */
static bool look_into(recorder_t *r, recorded_t *t) {
  failure_t failure = {""};
  if (attempt(r, t, &failure)) return true;
  if (has_ended(t)) return true; /* which is seen, and said, at the next look */
  r->refused += t->given && t->refused && !t->said;
  if (!t->stays) {
    if (t->found) r->options.say(r->options.context, true, failure.text);
    note_failed(r, t, failure.text);
    return false;
  }
  /* of a command, and of children that are followed, most are other programs than Lua: that is no news; that one may not be read is */
  if (t->given && !t->said && (t->refused || !r->options.follow))
    r->options.say(r->options.context, true, failure.text);
  t->said = true;
  return true;
}

/* What runs after exec is sampled, and tells by that; what sleeps from then on does not. */
static bool has_another_space(const recorder_t *r, recorded_t *t) {
  int64_t now = clock_now();
  if (now < t->exec_due) return false;
  t->exec_due = now + EXEC_NS + (int64_t)r->count * EXEC_EACH_NS;
  uint64_t space = space_of(t->pid);
  return space != 0 && space != t->space;
}

/* Who has no other target left may have children that nobody has seen yet. */
static bool lingers(const recorder_t *r, recorded_t *t) {
  if (!r->options.follow || r->engine->watch == NULL || r->count > 1) return false;
  int64_t now = clock_now();
  if (t->ended == 0) t->ended = now;
  t->due = t->ended + LINGER_NS; /* until then it is not to be looked into, which nobody need hurry for */
  return now - t->ended < LINGER_NS;
}

/* False when the target is no more one. */
static bool look_after(recorder_t *r, recorded_t *t, unsigned *looks) {
  bool lives = t->lives;
  t->lives = false;
  if (!lives && has_ended(t)) {
    if (lingers(r, t)) return true;
    char text[128];
    snprintf(text, sizeof text, "process %d (%s) ended before a Lua was found in it", (int)t->pid, t->name);
    if (t->found && t->given) say(r, t, "has ended"); /* children come and go */
    note_failed(r, t, text);
    return false;
  }
  if (t->sampled && (t->executed || has_another_space(r, t))) {
    say(r, t, "has called exec: it is looked into anew");
    t->sampled = false;
    close_target(r, t);
    t->due = 0;
  }
  if (t->sampled || clock_now() < t->due || *looks == 0) return true;
  --*looks;
  return look_into(r, t);
}

/* -- VMs ----------------------------------------------------------------------------------------------------------------- */

/* Makes the target ready to be read, until target_rest(). */
static bool lend(recorder_t *r, recorded_t *t) {
  if (r->remote == NULL) r->remote = mem_alloc(sizeof *r->remote);
  if (r->walk == NULL) r->walk = mem_alloc(sizeof *r->walk);
  if (r->remote == NULL || r->walk == NULL) return false;
  target_lend(&t->target, r->remote, r->walk);
  return true;
}

/* A sample may be of a VM that was made after the target was looked into. */
static void meet_vm(recorder_t *r, recorded_t *t, const walk_origin_t *origin) {
  if (origin->global == 0 || origin->runtime >= t->runtimes->count) return;
  runtime_t *runtime = &t->runtimes->runtimes[origin->runtime];
  if (runtime->layout == NULL || runtime->vms == NULL || vms_has(runtime->vms, origin->global)) return;
  bool full = runtime->vms->count == VMS_MAX;
  if ((full && clock_now() < t->vms_due) || !lend(r, t)) return;
  target_aim(&t->target, runtime->layout, NULL);
  if (full) {
    vms_drop_closed(&t->target, runtime->vms);
    t->vms_due = clock_now() + VMS_NS;
  }
  vms_meet(&t->target, runtime->vms, origin->global);
  target_rest(&t->target);
}

/* -- samples -------------------------------------------------------------------------------------------------------------- */

static void on_sample(void *context, const engine_sample_t *sample) {
  recorder_t *r = context;
  recorded_t *t = find(r, sample->origin.pid);
  if (t == NULL) {
    if (r->met_count < NEW_MAX) r->met[r->met_count++] = sample->origin.pid;
    return;
  }
  t->lives |= sample->held;
  if (sample->unknown) t->executed = true;
  bool readable = t->runtimes != NULL && !t->executed;
  if (readable) meet_vm(r, t, &sample->origin);
  if (r->options.counts_only) {
    bool collecting = (sample->origin.flags & WALK_COLLECTING) != 0;
    recording_count(r->recording, sample, collecting || collector_has(&t->collector, sample->origin.pc));
    return;
  }
  recording_take(r->recording, sample, readable ? &t->target : NULL, readable ? t->runtimes : NULL);
}

bool recorder_poll(recorder_t *r, int milliseconds, failure_t *failure) {
  int64_t now = clock_now(), soon = INT64_MAX;
  unsigned looks = LOOKS;
  if (stopped_threads_settle()) soon = now + SETTLE_NS;
  for (size_t i = 0; i < r->count; i++)
    if (!r->targets[i]->sampled && r->targets[i]->due < soon) soon = r->targets[i]->due;
  if ((r->options.follow || r->options.all) && soon > now + CHILDREN_NS) soon = now + CHILDREN_NS;
  int most = soon <= now ? 0 : soon - now < (int64_t)INT_MAX ? (int)((soon - now) / 1000000) + 1 : INT_MAX;
  if (milliseconds > most) milliseconds = most;
  bool polled = r->engine->poll(r->engine, milliseconds, on_sample, r, failure);
  recording_settle(r->recording);
  if (!polled) return false;
  for (size_t i = 0; i < r->met_count && r->options.follow; i++) follow(r, r->met[i]);
  r->met_count = 0;
  if (r->search != NULL) search_look(r->search, on_lua, r);
  if (r->options.follow)
    children_look(&r->children, on_process, r);
  else if (!r->options.all)
    look_for_forks(r);
  for (size_t i = 0; i < r->count;)
    if (look_after(r, r->targets[i], &looks))
      i++;
    else
      drop(r, i);
  return recording_ok(r->recording) || failure_set(failure, "out of memory");
}

void recorder_end(recorder_t *r) {
  if (r->engine->end != NULL) r->engine->end(r->engine);
}

void recorder_counts(recorder_t *r, recorder_counts_t *counts) {
  recording_counts(r->recording, counts);
  r->engine->counts(r->engine, &counts->engine);
  counts->lost = counts->engine.lost + counts->engine.missed; /* after late ticks the next make up for them */
  counts->targets = r->count;
  counts->found = r->found;
  counts->failed = r->failed;
  counts->looked = r->looked;
  counts->refused = r->refused;
  for (size_t i = 0; i < r->count; i++) {
    counts->sampled += r->targets[i]->sampled;
    counts->collectors += r->targets[i]->collector.count > 0 || r->targets[i]->collector.by_state;
    counts->waiting += !r->targets[i]->met || (!r->targets[i]->found && !r->targets[i]->stays);
  }
}

/* A VM that does not run is shown by no sample: memory is looked through now and then, of one target after the other. */
static void look_for_vms(recorder_t *r, recorded_t *t) {
  int64_t start = clock_now();
  if (start < r->look_due) return;
  if (r->look_due != 0) runtimes_look_again(t->runtimes, &t->target); /* at first all were just looked into */
  int64_t end = clock_now(), pause = (end - start) * VMS_SHARE;
  r->look_due = end + (pause > VMS_NS ? pause : VMS_NS);
  r->look_turn++;
}

bool recorder_visit(recorder_t *r, recorder_each_t *each, void *context) {
  for (size_t i = 0; i < r->count; i++) {
    recorded_t *t = r->targets[i];
    bool has_turn = i == r->look_turn % r->count;
    if (!t->sampled || t->executed || t->runtimes == NULL) {
      r->look_turn += has_turn;
      continue;
    }
    if (!lend(r, t)) return false;
    if (has_turn) look_for_vms(r, t);
    each(context, &t->target, t->runtimes);
    target_rest(&t->target);
  }
  return true;
}

profile_t *recorder_window(recorder_t *r) {
  return recording_window(r->recording);
}

profile_t *recorder_finish(recorder_t *r) {
  recorder_counts_t counts;
  recorder_counts(r, &counts);
  while (r->count > 0) drop(r, r->count - 1); /* what they are named with goes with the profile */
  return recording_finish(r->recording, r->engine->name, &counts);
}

void recorder_free(recorder_t *r) {
  if (r == NULL) return;
  while (r->count > 0) drop(r, r->count - 1);
  recording_free(r->recording);
  search_free(r->search);
  children_free(&r->children);
  mem_free(r->targets);
  mem_free(r->remote);
  mem_free(r->walk);
  mem_free(r);
}
