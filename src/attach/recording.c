/* SPDX-License-Identifier: MIT */
/* Making the profile; see recording.h. It is as the agent makes one of the cpu: the same types, frames that stand for no function, and
 * labels. */
#include "attach/recording.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "attach/clock.h"
#include "attach/symbols.h"
#include "profile/mem.h"

enum {
  MOST_BYTES = 32 << 20,  /* of the profile */
  THREADS = 1024,         /* whose names are kept */
  TAKEN = 64,             /* samples that wait … */
  TAKEN_FRAMES = 1 << 15, /* … with their frames */
  LUAS = 128,
  LABELS = 7
};

/* Threads have names, which are labels. */
typedef struct {
  uint64_t space;
  pid_t tid;
  uint32_t name, process; /* strings */
  pid_t inner;            /* its process, in its own PID namespace */
} thread_name_t;

typedef struct {
  engine_sample_t sample;
  target_t *target;
  const runtimes_t *runtimes;
} taken_t;

struct recording {
  taken_t *taken;
  walk_frame_t *taken_frames;
  size_t taken_count, taken_frame_count;
  profile_t *profile;
  symbols_t *symbols;
  uint32_t outside, unreadable, overflow; /* stacks */
  uint32_t truncated;                     /* frame */
  uint32_t key_pid, key_tid, key_thread, key_comm, key_nspid, key_vmstate, key_trace;
  thread_name_t *threads;
  char luas[LUAS]; /* "Lua 5.4.4, LuaJIT 2.1" */
  int64_t began;   /* when the first target was found: CLOCK_MONOTONIC, ns; 0: none was yet */
  uint32_t hz;
  recorder_counts_t counts;
};

/* -- beginning and end -------------------------------------------------------------------------------------------------- */

static uint32_t pseudo_frame(profile_t *p, const char *text) {
  uint32_t name = profile_cstring(p, text);
  return profile_frame(p, profile_function(p, (profile_function_t){name, name, 0, 0}), 0);
}

static void begin_samples(recording_t *r) {
  static const int64_t nothing[PROFILE_MAX_TYPES];
  profile_t *p = r->profile;
  r->outside = profile_stack(p, 0, pseudo_frame(p, "[outside Lua]"));
  r->unreadable = profile_stack(p, 0, pseudo_frame(p, "[unreadable stack]"));
  r->overflow = profile_stack(p, 0, pseudo_frame(p, "[overflow]"));
  profile_add(p, r->overflow, 0, nothing); /* now there is room for it */
}

static void begin_profile(recording_t *r) {
  profile_t *p = r->profile;
  profile_add_type(p, "samples", "count");
  p->default_type = profile_add_type(p, "cpu", "nanoseconds");
  p->period_type = p->types[p->default_type];
  p->period = 1000000000 / (int64_t)r->hz;
  begin_samples(r);
  r->truncated = pseudo_frame(p, "[truncated]");
  r->key_pid = profile_cstring(p, "pid");
  r->key_tid = profile_cstring(p, "tid");
  r->key_thread = profile_cstring(p, "thread");
  r->key_comm = profile_cstring(p, "comm");
  r->key_nspid = profile_cstring(p, "nspid");
  r->key_vmstate = profile_cstring(p, "vmstate");
  r->key_trace = profile_cstring(p, "trace");
}

recording_t *recording_new(uint32_t hz) {
  recording_t *r = mem_alloc(sizeof *r);
  if (r == NULL) return NULL;
  r->hz = hz;
  r->profile = profile_new();
  r->threads = mem_alloc(THREADS * sizeof *r->threads);
  r->taken = mem_alloc(TAKEN * sizeof *r->taken);
  r->taken_frames = mem_alloc(TAKEN_FRAMES * sizeof *r->taken_frames);
  if (r->profile != NULL) {
    begin_profile(r);
    r->symbols = symbols_new(r->profile);
  }
  if (r->symbols != NULL && r->threads != NULL && r->taken != NULL && r->taken_frames != NULL &&
      profile_ok(r->profile))
    return r;
  recording_free(r);
  return NULL;
}

void recording_free(recording_t *r) {
  if (r == NULL) return;
  symbols_free(r->symbols);
  profile_free(r->profile);
  mem_free(r->threads);
  mem_free(r->taken);
  mem_free(r->taken_frames);
  mem_free(r);
}

bool recording_ok(const recording_t *r) {
  return profile_ok(r->profile);
}

void recording_forget(recording_t *r, const target_t *target) {
  symbols_forget_target(r->symbols, target);
}

static void begin_time(recording_t *r) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  r->profile->time_nanos = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
  r->began = clock_now();
}

void recording_describe(recording_t *r, const target_t *target, const runtimes_t *runtimes) {
  if (r->began == 0) begin_time(r);
  profile_t *p = r->profile;
  const process_t *process = &target->process;
  if (p->program == 0)
    p->program = profile_cstring(p, process->command[0] != '\0' ? process->command : process->name);
  for (size_t i = 0; i < runtimes->count; i++) {
    const runtime_t *runtime = &runtimes->runtimes[i];
    const char *name = runtime->ident.text[0] != '\0' ? runtime->ident.text : "Lua";
    size_t used = strlen(r->luas);
    if (runtime->layout == NULL || strstr(r->luas, name) != NULL || used + strlen(name) + 3 > sizeof r->luas)
      continue;
    snprintf(r->luas + used, sizeof r->luas - used, "%s%s", used > 0 ? ", " : "", name);
  }
}

static void comment(profile_t *p, const char *text) {
  profile_add_comment(p, profile_cstring(p, text));
}

/* What is more than the losses tell: reasons of the walk, as the agent's status tells them. */
static void comment_reasons(profile_t *p, const recorder_counts_t *counts) {
  char text[512];
  size_t used = (size_t)snprintf(text, sizeof text, "unattributed:");
  for (int reason = WALK_OK + 1; reason < WALK_REASONS; reason++)
    if (counts->reasons[reason] > 0)
      used += (size_t)snprintf(text + used, sizeof text - used, " %s %" PRIu64 ",",
                               walk_reason_name((walk_reason_t)reason), counts->reasons[reason]);
  if (counts->unknown > 0)
    used += (size_t)snprintf(text + used, sizeof text - used, " not looked into yet %" PRIu64 ",",
                             counts->unknown);
  if (counts->unattributed == 0) return;
  text[used - 1] = '\0';
  comment(p, text);
}

profile_t *recording_finish(recording_t *r, const char *engine, const recorder_counts_t *counts) {
  profile_t *p = r->profile;
  char text[512];
  p->frozen = false; /* for these few */
  snprintf(text, sizeof text, "luapulse %s, %s, cpu clock at %u Hz, engine %s, from outside",
           LUAPULSE_VERSION, r->luas, r->hz, engine);
  comment(p, text);
  snprintf(text, sizeof text, "processes: %" PRIu64, counts->found);
  if (counts->found > 1) comment(p, text);
  comment_reasons(p, counts);
  if (counts->engine.stops > 0) {
    snprintf(text, sizeof text, "threads were stopped %" PRIu64 " times, for %.0f us on the average",
             counts->engine.stops, (double)counts->engine.stopped_ns / 1e3 / (double)counts->engine.stops);
    comment(p, text);
  }
  p->losses[LOSS_OVERFLOW] = counts->overflow;
  p->losses[LOSS_TRUNCATED] = counts->truncated;
  p->losses[LOSS_UNATTRIBUTED] = counts->unattributed;
  p->losses[LOSS_DROPPED] = counts->lost;
  p->losses[LOSS_GONE] = counts->gone;
  p->duration_nanos = r->began != 0 ? clock_now() - r->began : 0;
  if (!profile_ok(p)) return NULL;
  symbols_free(r->symbols);
  r->symbols = NULL;
  r->profile = NULL;
  return p;
}

/* Names take up what is kept from one window to the next. When it is half of the bound, all is read anew. */
static bool begin_anew(recording_t *r) {
  profile_t *p = profile_new();
  if (p == NULL) return false;
  p->time_nanos = r->profile->time_nanos;
  text_t program = profile_text(r->profile, r->profile->program);
  p->program = profile_string(p, program.data, program.len);
  profile_free(r->profile);
  r->profile = p;
  memset(r->threads, 0, THREADS * sizeof *r->threads);
  begin_profile(r);
  symbols_change_profile(r->symbols, p);
  return profile_ok(p);
}

profile_t *recording_window(recording_t *r) {
  profile_t *window = profile_new();
  recording_settle(r);
  if (window == NULL) return NULL;
  profile_merge(window, r->profile, 1);
  profile_drop_samples(r->profile);
  bool ok = profile_bytes(r->profile) > MOST_BYTES / 2 ? begin_anew(r) : (begin_samples(r), true);
  if (ok && profile_ok(window)) return window;
  profile_free(window);
  return NULL;
}

void recording_counts(const recording_t *r, recorder_counts_t *counts) {
  *counts = r->counts;
}

/* -- labels ------------------------------------------------------------------------------------------------------------- */

static uint32_t name_of(profile_t *p, pid_t pid, pid_t tid) {
  process_stat_t stat;
  return process_stat_of_thread(&stat, pid, tid) ? profile_cstring(p, stat.name) : 0;
}

static const thread_name_t *thread_of(recording_t *r, const walk_origin_t *origin) {
  uint64_t key = (origin->space ^ (uint64_t)origin->tid) * 0x9e3779b97f4a7c15u;
  thread_name_t *t = &r->threads[(key >> 32) % THREADS];
  if (t->space == origin->space && t->tid == origin->tid) return t;
  uint32_t name = name_of(r->profile, origin->pid, origin->tid);
  pid_t inner = process_inner(origin->pid);
  uint32_t process = origin->pid == origin->tid ? name : name_of(r->profile, origin->pid, origin->pid);
  *t = (thread_name_t){origin->space, origin->tid, name, process, inner};
  return t;
}

static uint32_t labels_of(recording_t *r, const engine_sample_t *sample) {
  static const char *const vmstates[] = {"", "interpreter", "trace", "c", "gc", "compiler", "exit"};
  profile_t *p = r->profile;
  const thread_name_t *thread = thread_of(r, &sample->origin);
  profile_label_t labels[LABELS] = {{.key = r->key_pid, .num = sample->origin.pid},
                                    {.key = r->key_tid, .num = sample->origin.tid}};
  size_t count = 2;
  if (thread->name != 0 && thread->name != PROFILE_NONE)
    labels[count++] = (profile_label_t){.key = r->key_thread, .str = thread->name};
  if (thread->process != 0 && thread->process != PROFILE_NONE)
    labels[count++] = (profile_label_t){.key = r->key_comm, .str = thread->process};
  if (thread->inner != 0 && thread->inner != sample->origin.pid)
    labels[count++] = (profile_label_t){.key = r->key_nspid, .num = thread->inner};
  if (sample->vmstate != WALK_VM_NONE && sample->vmstate <= WALK_VM_EXIT)
    labels[count++] =
        (profile_label_t){.key = r->key_vmstate, .str = profile_cstring(p, vmstates[sample->vmstate])};
  if (sample->vmstate == WALK_VM_TRACE) {
    char digits[12];
    snprintf(digits, sizeof digits, "%u", sample->trace);
    labels[count++] = (profile_label_t){.key = r->key_trace, .str = profile_cstring(p, digits)};
  }
  return profile_label_set(p, labels, count);
}

/* -- samples ------------------------------------------------------------------------------------------------------------ */

/* PROFILE_NONE when there is no room. */
static uint32_t stack_of(recording_t *r, const engine_sample_t *sample, target_t *target,
                         const runtimes_t *runtimes) {
  uint32_t stack = 0;
  bool gone = false;
  symbols_aim(r->symbols, sample->origin.space, target, runtimes);
  if (sample->truncated) stack = profile_stack(r->profile, stack, r->truncated);
  for (uint32_t i = sample->frame_count; i-- > 0 && stack != PROFILE_NONE;) {
    const walk_frame_t *caller = i + 1 < sample->frame_count ? &sample->frames[i + 1] : NULL;
    uint32_t frame = symbols_frame(r->symbols, &sample->frames[i], caller, sample->origin.runtime, &gone);
    stack = frame != PROFILE_NONE ? profile_stack(r->profile, stack, frame) : PROFILE_NONE;
  }
  r->counts.gone += gone;
  return stack;
}

static doing_t doing_of(const engine_sample_t *sample, bool collecting) {
  if ((sample->origin.flags & WALK_IN_KERNEL) != 0) return DOING_KERNEL;
  if (sample->unknown || sample->origin.reason != WALK_OK) return DOING_OUTSIDE;
  switch (sample->vmstate) {
    case WALK_VM_INTERPRETER:
      return DOING_INTERPRETER;
    case WALK_VM_TRACE:
    case WALK_VM_EXIT:
      return DOING_COMPILED;
    case WALK_VM_C:
      return DOING_C;
    case WALK_VM_GC:
      return DOING_GC;
    case WALK_VM_COMPILER:
      return DOING_COMPILER;
    default:
      if (collecting) return DOING_GC;
      return sample->frame_count > 0 && sample->frames[0].kind == WALK_LUA ? DOING_INTERPRETER : DOING_C;
  }
}

static int64_t weight_of(const recording_t *r, const engine_sample_t *sample) {
  return sample->origin.weight != 0 ? (int64_t)sample->origin.weight : r->profile->period;
}

void recording_count(recording_t *r, const engine_sample_t *sample, bool collecting) {
  uint32_t reason = sample->origin.reason < WALK_REASONS ? sample->origin.reason : WALK_ENDLESS;
  r->counts.samples++;
  r->counts.doing[doing_of(sample, collecting)] += (uint64_t)weight_of(r, sample);
  r->counts.truncated += sample->truncated;
  if (reason == WALK_OK && !sample->unknown) return;
  r->counts.unattributed++;
  if (sample->unknown)
    r->counts.unknown++;
  else
    r->counts.reasons[reason]++;
}

static void add(recording_t *r, const engine_sample_t *sample, target_t *target, const runtimes_t *runtimes) {
  profile_t *p = r->profile;
  int64_t values[PROFILE_MAX_TYPES] = {1, weight_of(r, sample)};
  uint32_t stack;
  recording_count(r, sample, false);
  p->frozen = p->frozen || profile_bytes(p) > MOST_BYTES;
  if (sample->origin.reason == WALK_OK && !sample->unknown)
    stack = stack_of(r, sample, target, runtimes);
  else
    stack = sample->origin.reason == WALK_NO_STATE || sample->unknown ? r->outside : r->unreadable;
  uint32_t labels = labels_of(r, sample);
  if (stack != PROFILE_NONE && labels != PROFILE_NONE && profile_add(p, stack, labels, values)) return;
  r->counts.overflow++;
  profile_add(p, r->overflow, 0, values);
}

void recording_settle(recording_t *r) {
  for (size_t i = 0; i < r->taken_count; i++)
    add(r, &r->taken[i].sample, r->taken[i].target, r->taken[i].runtimes);
  r->taken_count = r->taken_frame_count = 0;
  symbols_met(r->symbols);
}

void recording_take(recording_t *r, const engine_sample_t *sample, target_t *target,
                    const runtimes_t *runtimes) {
  if (sample->frame_count > WALK_MAX_FRAMES) return; /* no walk makes so many */
  if (r->taken_count == TAKEN || TAKEN_FRAMES - r->taken_frame_count < sample->frame_count)
    recording_settle(r);
  symbols_aim(r->symbols, sample->origin.space, target, runtimes);
  symbols_meet(r->symbols, sample->frames, sample->frame_count, sample->origin.runtime);
  taken_t *taken = &r->taken[r->taken_count++];
  *taken = (taken_t){*sample, target, runtimes};
  taken->sample.frames = r->taken_frames + r->taken_frame_count;
  if (sample->frame_count > 0)
    memcpy(r->taken_frames + r->taken_frame_count, sample->frames,
           sample->frame_count * sizeof *sample->frames);
  r->taken_frame_count += sample->frame_count;
}
