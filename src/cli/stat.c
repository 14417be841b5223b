/* SPDX-License-Identifier: MIT */
/* luapulse stat: once a second, what running processes do. Shares are of samples; the rest the kernel and the VMs' memory tell. */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "attach/clock.h"
#include "cli/cli.h"
#include "cli/live_options.h"
#include "cli/stat_line.h"

enum {
  HEAD_EVERY = 20,       /* lines */
  COUNT_EVERY = 5,       /* seconds: coroutines are counted, for which a process is held … */
  COUNT_NS = 3 * 1000000 /* … for so long at most, and stopping it takes */
};

typedef struct {
  pid_t pid;
  bool seen; /* in this look */
  usage_t usage;
} process_usage_t;

typedef struct {
  live_options_t live; /* first */
  double seconds;      /* 0: until it is ended */
  double interval;
  stat_told_t told;
  counters_t counters;
  process_usage_t processes[RECORDER_TARGETS];
  size_t count;
  int64_t count_due; /* when coroutines are counted again: CLOCK_MONOTONIC, ns */
  bool counts;       /* in this look */
  double last_counters[COUNTERS];
  recorder_counts_t last;
  stat_interval_t now, all;
  stat_course_t course;
} stat_t;

static const char help[] =
    "Usage: luapulse stat -p PID[,PID...] | --all [OPTIONS]\n\n"
    "Prints a line each second: how running processes spend the time (interpreter, compiled code, "
    "collector,\n"
    "C functions, kernel, idle), heaps and collectors of their Luas, coroutines, context switches, page "
    "faults,\n"
    "CPU; at the end a summary. Nothing in the processes is changed.\n\n"
    "Options:\n" LIVE_HELP
    "  -d, --duration SEC      for so long (default: until Ctrl-C, or the processes' end)\n"
    "  -i, --interval SEC      between lines (default 1)\n" LIVE_HELP_MORE
    "  -h, --help              this\n\n"
    "What cannot be told is '-': see luapulse-stat(1), or docs/stat.md, for what each column is made of.\n\n"
    "Exit status: 0, or 1 when a process could not be sampled or nothing be printed, 2: wrong usage.\n\n"
    "Examples:\n"
    "  sudo luapulse stat -p 1234 -d 10\n"
    "  sudo luapulse stat -p $(pidof -s nginx) -s -i 5\n";

/* -- options -------------------------------------------------------------------------------------------------- */

static bool read_option(stat_t *s, int option, char **argv, int *status) {
  if (live_option(&s->live, option, status)) return *status == STATUS_OK;
  switch (option) {
    case 'd':
      if (live_parse_seconds(optarg, &s->seconds)) return true;
      *status = cli_usage("stat", "--duration takes a number of seconds, not '%s'", optarg);
      return false;
    case 'i':
      if (live_parse_seconds(optarg, &s->interval) && s->interval >= 0.1) return true;
      *status = cli_usage("stat", "--interval takes a number of seconds from 0.1 on, not '%s'", optarg);
      return false;
    case 'h':
      fputs(help, stdout);
      *status = fflush(stdout) == 0 ? STATUS_OK : STATUS_FAILED;
      return false;
    default:
      *status = cli_bad_option("stat", argv, option);
      return false;
  }
}

static bool read_options(stat_t *s, int argc, char **argv, int *status) {
  static const struct option longs[] = {
      LIVE_LONG_OPTIONS,
      {"duration", required_argument, NULL, 'd'},
      {"interval", required_argument, NULL, 'i'},
      {"help", no_argument, NULL, 'h'},
      {NULL, 0, NULL, 0},
  };
  opterr = 0;
  for (int option; (option = getopt_long(argc, argv, ":" LIVE_SHORT_OPTIONS "d:i:h", longs, NULL)) != -1;)
    if (!read_option(s, option, argv, status)) return false;
  *status = STATUS_USAGE;
  return live_check(&s->live, argc, argv);
}

static void on_say(void *context, bool failed, const char *text) {
  (void)context;
  if (failed)
    cli_failed("stat", "%s", text);
  else
    cli_say("%s", text);
}

/* -- one look ---------------------------------------------------------------------------------------------------------- */

static process_usage_t *process_of(stat_t *s, pid_t pid) {
  for (size_t i = 0; i < s->count; i++)
    if (s->processes[i].pid == pid) return &s->processes[i];
  return NULL;
}

static void note_luajit(stat_t *s, const runtimes_t *runtimes) {
  for (size_t i = 0; i < runtimes->count; i++)
    if (runtimes->runtimes[i].layout != NULL && runtimes->runtimes[i].layout->family == LAYOUT_LUAJIT)
      s->told.compiled = s->told.gc = true;
}

static void read_usage(stat_t *s, pid_t pid) {
  usage_t usage;
  process_usage_t *process = process_of(s, pid);
  if (!usage_read(&usage, pid)) return;
  if (process != NULL) {
    usage_t more = usage_since(&usage, &process->usage);
    usage_add(&s->now.usage, &more);
    s->now.process_seconds += s->now.seconds;
  } else if (s->count < RECORDER_TARGETS) {
    process = &s->processes[s->count++];
    process->pid = pid;
    if (counters_open(&s->counters, pid)) s->told.counters = true;
  } else {
    return;
  }
  process->usage = usage;
  process->seen = true;
}

static void read_vitals(stat_t *s, target_t *target, const runtimes_t *runtimes) {
  vitals_t vitals, *sum = &s->now.vitals;
  vitals_read(&vitals, target, runtimes);
  if (vitals.heap >= sum->heap || sum->vms == 0) sum->gc = vitals.gc; /* of the largest, nearly */
  sum->vms += vitals.vms;
  sum->heap += vitals.heap;
  if (!s->counts) return;
  vitals_count(&vitals, target, runtimes, COUNT_NS);
  sum->coroutines_known = sum->coroutines_known && vitals.coroutines_known;
  sum->coroutines += vitals.coroutines;
  if (vitals.held_ns > s->course.held_most) s->course.held_most = vitals.held_ns;
}

static void visit(void *context, target_t *target, const runtimes_t *runtimes) {
  stat_t *s = context;
  note_luajit(s, runtimes);
  read_usage(s, target->process.pid);
  read_vitals(s, target, runtimes);
}

static void forget_ended(stat_t *s) {
  for (size_t i = 0; i < s->count;)
    if (s->processes[i].seen)
      s->processes[i++].seen = false;
    else
      s->processes[i] = s->processes[--s->count];
}

static void add_samples(stat_t *s, const recorder_counts_t *counts) {
  s->now.samples = counts->samples - s->last.samples;
  for (int i = 0; i < DOING_KINDS; i++) s->now.doing[i] = counts->doing[i] - s->last.doing[i];
  s->last = *counts;
}

static void add_counters(stat_t *s) {
  double values[COUNTERS];
  counters_read(&s->counters, values);
  for (int i = 0; i < COUNTERS; i++) s->now.counters[i] = values[i] - s->last_counters[i];
  memcpy(s->last_counters, values, sizeof values);
}

/* Everything since the last look. False when no process is left. */
static bool look(stat_t *s, recorder_t *recorder, double seconds, bool last) {
  recorder_counts_t counts;
  vitals_t before = s->now.vitals;
  s->counts = last || clock_now() >= s->count_due;
  s->now = (stat_interval_t){.seconds = seconds, .vitals = {.coroutines_known = s->counts}};
  if (!recorder_visit(recorder, visit, s)) return false;
  if (s->counts) s->count_due = clock_now() + (int64_t)COUNT_EVERY * 1000000000;
  if (!s->counts) {
    s->now.vitals.coroutines_known = before.coroutines_known;
    s->now.vitals.coroutines = before.coroutines;
  }
  forget_ended(s);
  recorder_counts(recorder, &counts);
  if (counts.collectors > 0) s->told.gc = s->told.gc_at_least = true;
  add_samples(s, &counts);
  add_counters(s);
  return s->count > 0;
}

/* -- the course of it ----------------------------------------------------------------------------------------------------- */

static void add_course(stat_t *s) {
  const vitals_t *v = &s->now.vitals;
  stat_course_t *c = &s->course;
  if (v->heap > c->heap_most) c->heap_most = v->heap;
  if (!s->counts || !v->coroutines_known) return; /* a count that was broken off says nothing */
  if (c->counts++ == 0) c->coroutines_first = v->coroutines;
  c->coroutines_last = v->coroutines;
}

static void sum_up(stat_t *s) {
  stat_interval_t *all = &s->all, *now = &s->now;
  all->seconds += now->seconds;
  all->process_seconds += now->process_seconds;
  all->samples += now->samples;
  for (int i = 0; i < DOING_KINDS; i++) all->doing[i] += now->doing[i];
  usage_add(&all->usage, &now->usage);
  for (int i = 0; i < COUNTERS; i++) all->counters[i] += now->counters[i];
  all->vitals = now->vitals;
  s->course.lines++;
  s->course.gc[now->vitals.gc]++;
}

static bool is_lost(failure_t *failure) {
  return failure_set(failure, "standard output: cannot be written: %s", strerror(errno));
}

static bool look_on(stat_t *s, recorder_t *recorder, failure_t *failure) {
  int64_t length = (int64_t)(s->interval * 1e9), began = clock_now(), last = began, next = began + length;
  int64_t end = s->seconds > 0 ? began + (int64_t)(s->seconds * 1e9) : INT64_MAX;
  recorder_counts_t counts = {.targets = 1};
  look(s, recorder, 0, false);
  add_course(s);
  s->course.heap_first = s->now.vitals.heap;
  for (uint64_t lines = 0; live_ended_by == 0 && live_goes_on(&s->live, &counts) && last < end;) {
    int64_t until = next < end ? next : end, left = until - clock_now();
    int wait = left <= 0 ? 0 : left < 100000000 ? (int)(left / 1000000) + 1 : 100;
    if (!recorder_poll(recorder, wait, failure)) return false;
    recorder_counts(recorder, &counts);
    int64_t now = clock_now();
    if (now < until) continue;
    if (look(s, recorder, (double)(now - last) / 1e9, now >= end)) {
      add_course(s);
      sum_up(s);
      if (lines++ % HEAD_EVERY == 0 && !stat_print_head(&s->told)) return is_lost(failure);
      if (!stat_print_line(&s->told, &s->now)) return is_lost(failure);
    }
    for (last = now; next <= now;) next += length;
  }
  return stat_print_summary(&s->told, &s->all, &s->course, &counts) || is_lost(failure);
}

static int stat_with(stat_t *s, engine_t *engine) {
  recorder_options_t options = live_recorder_options(&s->live, on_say, s);
  failure_t failure = {""};
  recorder_counts_t counts = {.samples = 0};
  options.counts_only = true;
  recorder_t *recorder = recorder_new(engine, &options);
  if (recorder == NULL) return cli_failed("stat", "out of memory");
  bool all = live_add_processes(&s->live, recorder, on_say, s) == s->live.pids.count;
  bool ok = live_look_into(&s->live, recorder, &failure);
  recorder_counts(recorder, &counts);
  if (ok && live_goes_on(&s->live, &counts)) {
    cli_say("%zu process%s, engine %s, %u Hz", counts.sampled, counts.sampled == 1 ? "" : "es", engine->name,
            s->live.hz);
    s->last = counts;
    ok = look_on(s, recorder, &failure);
    recorder_counts(recorder, &counts);
  }
  if (failure.text[0] != '\0') cli_failed("stat", "%s", failure.text);
  counters_close(&s->counters);
  recorder_free(recorder);
  return ok && all && counts.found > 0 && counts.failed == 0 ? STATUS_OK : STATUS_FAILED;
}

int stat_run(int argc, char **argv) {
  static stat_t s; /* large */
  failure_t failure = {""}, why_not_bpf = {""};
  int status;
  s = (stat_t){.live = {.name = "stat", .hz = LIVE_HZ}, .interval = 1};
  if (!read_options(&s, argc, argv, &status)) return status;
  engine_t *engine = live_open_engine(&s.live, &why_not_bpf, &failure);
  if (engine == NULL) return cli_failed("stat", "%s", failure.text);
  if (why_not_bpf.text[0] != '\0') cli_say("not with engine bpf: %s", why_not_bpf.text);
  s.told.kernel = strcmp(engine->name, "bpf") == 0;
  live_catch_signals(true);
  status = stat_with(&s, engine);
  engine->close(engine);
  return status;
}
