/* SPDX-License-Identifier: MIT */
/* luapulse record: profiles running processes from outside. Nothing in them is changed. */
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "attach/clock.h"
#include "attach/recorder.h"
#include "cli/cli.h"
#include "cli/launch.h"
#include "cli/live_options.h"
#include "cli/output.h"
#include "cli/record_status.h"

/* Where processes come and go there may always be one that was not looked into yet: it is not waited for longer. */
static const int64_t ALL_SETTLE_NS = 3000000000;

typedef struct {
  live_options_t live; /* first */
  output_t output;
  double seconds; /* 0: until it is ended */
  bool quiet;
  char **program; /* NULL: processes that run already */
  record_status_t status;
  void (*old_pipe)(int); /* what SIGPIPE did before */
} record_t;

static const char help[] =
    "Usage: luapulse record -p PID[,PID...] | --all [OPTIONS]\n"
    "       luapulse record [OPTIONS] -- PROGRAM [ARGUMENTS]\n\n"
    "Profiles running processes from outside, until the time is over, Ctrl-C, or their end. They need no\n"
    "preparation, and nothing in them is changed.\n\n"
    "Options:\n" LIVE_HELP
    "  -d, --duration SEC      for so long; there is no default: without it until Ctrl-C\n"
    "  -o, --output FILE       where to write; may be given several times. The format is told by the name\n"
    "                          (.pb.gz .html .folded .speedscope.json .callgrind .txt). In it, %p is the\n"
    "                          process, with --all the word all, %t when it began.\n"
    "                          Default: luapulse.%p.pb.gz and luapulse.%p.html\n"
    "  -f, --format FORMAT     write every FILE in this format; without -o the only one is luapulse.%p with\n"
    "                          its extension\n" LIVE_HELP_MORE
    "  -q, --quiet             say nothing but errors\n"
    "  -h, --help              this\n\n"
    "The first Ctrl-C ends the recording and writes the profile, the second ends luapulse at once.\n\n"
    "Exit status: 0 when all processes were recorded and all files written, 1 otherwise, 2: wrong usage;\n"
    "126, 127: PROGRAM could not be run. The status of PROGRAM is told.\n\n"
    "Examples:\n"
    "  sudo luapulse record -p 1234 -d 30\n"
    "  sudo luapulse record -s -p $(pidof -s nginx) -d 30 -o nginx.html\n"
    "  sudo luapulse record --all -d 30\n"
    "  luapulse record -o app.pb.gz -- lua5.4 app.lua && luapulse report app.pb.gz\n";

/* -- options -------------------------------------------------------------------------------------------------- */

static bool refuse(int *status, int value) {
  *status = value;
  return false;
}

static bool read_option(record_t *r, int option, char **argv, int *status) {
  failure_t failure;
  if (live_option(&r->live, option, status)) return *status == STATUS_OK;
  switch (option) {
    case 'd':
      if (live_parse_seconds(optarg, &r->seconds)) return true;
      return refuse(status, cli_usage("record", "--duration takes a number of seconds, not '%s'", optarg));
    case 'o':
      if (output_add(&r->output, optarg, &failure)) return true;
      return refuse(status, cli_usage("record", "%s", failure.text));
    case 'f':
      r->output.format = format_by_name(optarg);
      if (r->output.format != NULL) return true;
      return refuse(status, cli_usage("record", "there is no format '%s'", optarg));
    case 'q':
      r->quiet = true;
      return true;
    case 'h':
      fputs(help, stdout);
      return refuse(status, fflush(stdout) == 0 ? STATUS_OK : STATUS_FAILED);
    default:
      return refuse(status, cli_bad_option("record", argv, option));
  }
}

/* What %p stands for, as far as it is known before a program is started. */
static pid_t told_process(const record_t *r) {
  if (r->live.all) return OUTPUT_ALL;
  return r->live.pids.count > 0 ? r->live.pids.pids[0] : OUTPUT_UNKNOWN;
}

/* True to go on; otherwise *status is what to exit with. */
static bool read_options(record_t *r, int argc, char **argv, int *status) {
  static const struct option longs[] = {
      LIVE_LONG_OPTIONS,
      {"duration", required_argument, NULL, 'd'},
      {"output", required_argument, NULL, 'o'},
      {"format", required_argument, NULL, 'f'},
      {"quiet", no_argument, NULL, 'q'},
      {"help", no_argument, NULL, 'h'},
      {NULL, 0, NULL, 0},
  };
  failure_t failure;
  opterr = 0;
  for (int option; (option = getopt_long(argc, argv, "+:" LIVE_SHORT_OPTIONS "d:o:f:qh", longs, NULL)) != -1;)
    if (!read_option(r, option, argv, status)) return false;
  r->program = optind < argc ? argv + optind : NULL;
  if (r->program != NULL && (r->live.pids.count > 0 || r->live.all))
    return refuse(
        status, cli_usage("record",
                          "either processes (-p, --all) or a program to run, not both: '%s' is one too many",
                          r->program[0]));
  if (r->live.all && r->live.pids.count > 0)
    return refuse(status, cli_usage("record", "either some processes (-p) or --all, not both"));
  if (r->program == NULL && r->live.pids.count == 0 && !r->live.all)
    return refuse(status, cli_usage("record", "what to record is missing: -p PID, --all, or -- PROGRAM"));
  if (!output_check(&r->output, false, &failure))
    return refuse(status, cli_usage("record", "%s", failure.text));
  if (output_has_format(&r->output, "chrome"))
    return refuse(status, cli_usage("record", "a timeline is made of every call, by luapulse run --trace"));
  if (!output_reachable(&r->output, told_process(r), &failure))
    return refuse(status, cli_failed("record", "%s", failure.text));
  return true;
}

/* -- recording ---------------------------------------------------------------------------------------------------- */

static void on_say(void *context, bool failed, const char *text) {
  record_t *r = context;
  record_status_clear(&r->status);
  if (failed)
    cli_failed("record", "%s", text);
  else if (!r->quiet)
    cli_say("%s", text);
}

static void say_begin(const record_t *r, const engine_t *engine, const failure_t *why_not_bpf) {
  char what[64], end[64];
  if (r->quiet) return;
  if (r->program != NULL)
    snprintf(what, sizeof what, "%s", r->program[0]);
  else if (r->live.all)
    snprintf(what, sizeof what, "every process with a Lua");
  else
    snprintf(what, sizeof what, "%zu process%s", r->live.pids.count, r->live.pids.count == 1 ? "" : "es");
  snprintf(end, sizeof end, "%s", r->program != NULL ? "until it ends, or Ctrl-C" : "until Ctrl-C");
  if (r->seconds > 0) snprintf(end, sizeof end, "for %g s", r->seconds);
  cli_say("recording %s at %u Hz with engine %s, %s", what, r->live.hz, engine->name, end);
  if (why_not_bpf->text[0] != '\0') cli_say("not with engine bpf: %s", why_not_bpf->text);
}

/* Until the time is over, a signal, or no target is left and none can come. */
static bool watch(record_t *r, recorder_t *recorder, failure_t *failure) {
  int64_t end = INT64_MAX, settled = r->live.all ? clock_now() + ALL_SETTLE_NS : INT64_MAX;
  recorder_counts_t counts = {.targets = 1, .waiting = 1};
  while (live_ended_by == 0 && (counts.targets > 0 || r->live.all) && clock_now() < end) {
    if ((counts.waiting == 0 || clock_now() > settled) && end == INT64_MAX && r->seconds > 0)
      end = clock_now() + (int64_t)(r->seconds * 1e9); /* now all that are sampled are */
    int64_t left = end - clock_now();
    if (!recorder_poll(recorder, left < 100000000 ? (int)(left / 1000000) + 1 : 100, failure)) return false;
    recorder_counts(recorder, &counts);
    record_status_update(&r->status, &counts);
  }
  return true;
}

static bool write_one(const record_t *r, size_t i, const profile_t *profile, pid_t pid, time_t when) {
  char path[PATH_MAX];
  failure_t failure = {""};
  if (!output_write(&r->output, i, profile, pid, when, path, &failure))
    return cli_failed("record", "%s", failure.text) == STATUS_OK;
  if (!r->quiet) cli_say("written to %s", path);
  return true;
}

/* Standard output comes last: who reads it may end us, as it ends other commands. */
static bool write_all(const record_t *r, const profile_t *profile, pid_t pid, time_t when) {
  bool all = true;
  for (size_t i = 0; i < r->output.count; i++)
    if (strcmp(r->output.names[i], "-") != 0) all = write_one(r, i, profile, pid, when) && all;
  for (size_t i = 0; i < r->output.count; i++) {
    if (strcmp(r->output.names[i], "-") != 0) continue;
    signal(SIGPIPE, r->old_pipe);
    all = write_one(r, i, profile, pid, when) && all;
    signal(SIGPIPE, SIG_IGN);
  }
  if (all && !r->quiet) output_suggest(&r->output, pid, when);
  return all;
}

/* What became of the program that was started. */
static void say_end(const record_t *r, child_t *child) {
  pid_t got = waitpid(child->pid, &child->wait_status, WNOHANG);
  if (r->quiet) return;
  if (got != child->pid)
    cli_say("%s runs on, as process %d", r->program[0], (int)child->pid);
  else if (WIFSIGNALED(child->wait_status))
    cli_say("%s was ended by signal %d (%s)", r->program[0], WTERMSIG(child->wait_status),
            strsignal(WTERMSIG(child->wait_status)));
  else
    cli_say("%s ended with status %d", r->program[0], WEXITSTATUS(child->wait_status));
}

/* No Lua was found. Where nothing could be looked into nobody knows whether there is one. */
static const char *why_nothing(const record_t *r, const recorder_counts_t *counts, bool added) {
  if (live_ended_by != 0 && counts->waiting > 0) return "ended before a Lua was found: nothing is written";
  if (counts->looked == 0 && (counts->refused > 0 || !added))
    return "nothing was recorded: nothing is written";
  return r->program != NULL && !r->live.follow
             ? "no Lua was found: nothing is written; if the program starts others, add --follow (-s)"
             : "no Lua was found: nothing is written";
}

/* The processes are told, or the program is running: from here to the files. */
static int record_with(record_t *r, engine_t *engine, child_t *child) {
  recorder_options_t options = live_recorder_options(&r->live, on_say, r);
  failure_t failure = {""};
  time_t when = time(NULL);
  options.started = r->program != NULL;
  size_t added = 0;
  recorder_counts_t counts = {.samples = 0};
  recorder_t *recorder = recorder_new(engine, &options);
  if (recorder == NULL) return cli_failed("record", "out of memory");
  for (size_t i = 0; i < r->live.pids.count; i++)
    if (recorder_add(recorder, r->live.pids.pids[i], r->program != NULL, &failure))
      added++;
    else if (r->program == NULL) /* a program may have ended by now */
      cli_failed("record", "%s", failure.text);
  bool ok = added == r->live.pids.count;
  if ((added > 0 || r->live.all) && !watch(r, recorder, &failure))
    ok = cli_failed("record", "%s", failure.text) == STATUS_OK;
  recorder_end(recorder);
  recorder_counts(recorder, &counts);
  profile_t *profile = counts.found > 0 ? recorder_finish(recorder) : NULL;
  if (added > 0 || r->live.all) record_status_end(&r->status, &counts);
  if (r->program != NULL) say_end(r, child);
  if (counts.found == 0)
    ok = cli_failed("record", "%s",
                    why_nothing(r, &counts, added == r->live.pids.count || r->program != NULL)) == STATUS_OK;
  else if (profile == NULL)
    ok = cli_failed("record", "out of memory") == STATUS_OK;
  else
    ok = write_all(r, profile, told_process(r), when) && ok && counts.failed == 0;
  profile_free(profile);
  recorder_free(recorder);
  return ok ? STATUS_OK : STATUS_FAILED;
}

/* Children are met by ticks that they inherit: whoever the program leaves behind at once, too. */
static void watch_from_the_start(void *context, pid_t child) {
  engine_t *engine = context;
  failure_t ignored; /* then they are found as those of other processes are */
  engine->watch(engine, child, &ignored);
}

int record_run(int argc, char **argv) {
  record_t r = {.live = {.name = "record", .hz = LIVE_HZ}};
  failure_t failure = {""}, why_not_bpf = {""};
  child_t child;
  int status, exec_error;
  if (!read_options(&r, argc, argv, &status)) return status;
  sigprocmask(SIG_BLOCK, NULL, &child.old_mask);
  child.old_pipe = r.old_pipe = signal(SIGPIPE, SIG_IGN); /* what nobody reads ends no recording */
  engine_t *engine = live_open_engine(&r.live, &why_not_bpf, &failure);
  if (engine == NULL) return cli_failed("record", "%s", failure.text);
  record_status_begin(&r.status, r.live.hz, r.quiet);
  say_begin(&r, engine, &why_not_bpf);
  if (r.program != NULL) {
    bool watches = r.live.follow && engine->watch != NULL;
    launch_steps_t steps = {NULL, watches ? watch_from_the_start : NULL, engine};
    if (!launch_program(&child, r.program, &steps, &exec_error, &failure)) {
      engine->close(engine);
      return cli_failed("record", "%s", failure.text), launch_status(exec_error, STATUS_FAILED);
    }
    r.live.pids = (attach_pids_t){.pids = {child.pid}, .count = 1};
  }
  live_catch_signals(true);
  status = record_with(&r, engine, &child);
  engine->close(engine);
  return status;
}
