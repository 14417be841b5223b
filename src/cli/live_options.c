/* SPDX-License-Identifier: MIT */
/* What record, top and stat share; see live_options.h. */
#include "cli/live_options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "attach/clock.h"
#include "cli/cli.h"
#include "cli/layout_apart.h"

static const int64_t ALL_SETTLE_NS = 2000000000;

bool live_option(live_options_t *o, int option, int *status) {
  unsigned word = 0;
  *status = STATUS_OK;
  switch (option) {
    case 'p':
      if (!attach_parse_pids(optarg, &o->pids))
        *status =
            cli_usage(o->name, "--pid takes the numbers of processes, 12 or 12,34, %d at most, not '%s'",
                      ATTACH_MAX_PIDS, optarg);
      return true;
    case 'F':
      if (!cli_parse_number(optarg, 1, 10000, &o->hz))
        *status = cli_usage(o->name, "--rate takes a number from 1 to 10000, not '%s'", optarg);
      return true;
    case 'E':
      if (!cli_parse_word(optarg, "auto\0bpf\0ptrace\0", &word))
        *status = cli_usage(o->name, "--engine takes auto, bpf or ptrace, not '%s'", optarg);
      o->engine = (engine_choice_t)word;
      return true;
    case 'a':
      o->all = true;
      return true;
    case 's':
      o->follow = true;
      return true;
    case 'L':
      o->layout_file = optarg;
      return true;
    default:
      return false;
  }
}

bool live_check(live_options_t *o, int argc, char **argv) {
  if (optind < argc) return cli_usage(o->name, "'%s' is one too many", argv[optind]) == STATUS_OK;
  if (o->all && o->pids.count > 0)
    return cli_usage(o->name, "either some processes (-p) or --all, not both") == STATUS_OK;
  if (!o->all && o->pids.count == 0)
    return cli_usage(o->name, "what to look at is missing: -p PID, or --all") == STATUS_OK;
  return true;
}

bool live_parse_seconds(const char *text, double *seconds) {
  char *end;
  *seconds = strtod(text, &end);
  bool decimal = text[strspn(text, "0123456789.eE+-")] == '\0'; /* strtod() takes 0x10, too */
  return decimal && text[0] >= '0' && text[0] <= '9' && *end == '\0' && *seconds > 0 && *seconds < 1e9;
}

static whose_t whose_are(const live_options_t *o) {
  whose_t whose = o->all ? WHOSE_OTHERS : o->pids.count > 0 ? WHOSE_OWN : WHOSE_CHILDREN;
  process_t process;
  failure_t ignored; /* it is said when it is to be sampled */
  for (size_t i = 0; i < o->pids.count; i++)
    if (process_look(&process, o->pids.pids[i], &ignored) && process.uid != geteuid()) whose = WHOSE_OTHERS;
  return whose;
}

engine_t *live_open_engine(const live_options_t *o, failure_t *why_not_bpf, failure_t *failure) {
  engine_options_t options = {.hz = o->hz, .follow = o->follow, .whose = whose_are(o)};
  if (o->engine == ENGINE_BPF) return engine_bpf_open(&options, failure);
  if (o->engine == ENGINE_PTRACE) return engine_ptrace_open(&options, failure);
  engine_t *engine = engine_bpf_open(&options, why_not_bpf);
  return engine != NULL ? engine : engine_ptrace_open(&options, failure);
}

static bool choose_layout(void *context, const idents_t *idents, layout_t *layout, failure_t *failure) {
  const live_options_t *o = context;
  return attach_read_layout(o->layout_file, idents, layout, failure);
}

recorder_options_t live_recorder_options(const live_options_t *o,
                                         void (*say)(void *context, bool failed, const char *text),
                                         void *context) {
  return (recorder_options_t){.hz = o->hz,
                              .follow = o->follow,
                              .all = o->all,
                              .layout = o->layout_file != NULL ? choose_layout : NULL,
                              .from_debug = layout_apart_read,
                              .say = say,
                              .context = context};
}

size_t live_add_processes(const live_options_t *o, recorder_t *recorder,
                          void (*say)(void *context, bool failed, const char *text), void *context) {
  size_t added = 0;
  for (size_t i = 0; i < o->pids.count; i++) {
    failure_t failure = {""};
    if (recorder_add(recorder, o->pids.pids[i], false, &failure))
      added++;
    else
      say(context, true, failure.text);
  }
  return added;
}

bool live_look_into(const live_options_t *o, recorder_t *recorder, failure_t *failure) {
  recorder_counts_t counts = {.targets = 1, .waiting = 1};
  bool later = o->follow || o->all;
  int64_t end = o->all ? clock_now() + ALL_SETTLE_NS : INT64_MAX; /* new ones begin all the time */
  while (live_ended_by == 0 && clock_now() < end &&
         (counts.waiting > 0 || (!later && counts.found == 0 && counts.targets > 0))) {
    if (!recorder_poll(recorder, 10, failure)) return false;
    recorder_counts(recorder, &counts);
  }
  return true;
}

bool live_goes_on(const live_options_t *o, const recorder_counts_t *counts) {
  return counts->targets > 0 || o->all;
}

/* -- signals ---------------------------------------------------------------------------------------------------- */

volatile sig_atomic_t live_ended_by;

static bool is_hasty;

static void on_end(int number) {
  if (live_ended_by != 0 && is_hasty) _exit(128 + number);
  live_ended_by = number;
}

void live_catch_signals(bool hasty) {
  is_hasty = hasty;
  struct sigaction action = {.sa_handler = on_end}; /* system calls are not restarted: a poll ends */
  sigaction(SIGINT, &action, NULL);
  sigaction(SIGTERM, &action, NULL);
  struct sigaction hangup;
  if (sigaction(SIGHUP, NULL, &hangup) != 0 || hangup.sa_handler != SIG_IGN) /* as nohup leaves it */
    sigaction(SIGHUP, &action, NULL);
  signal(SIGCHLD, SIG_DFL); /* ignored, it would not tell of stops */
}
