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
#include "cli/attach_options.h"
#include "cli/cli.h"
#include "cli/launch.h"
#include "cli/output.h"
#include "cli/record_status.h"

typedef enum { ENGINE_AUTO, ENGINE_BPF, ENGINE_PTRACE } engine_choice_t;

typedef struct {
  attach_pids_t pids;
  output_t output;
  unsigned hz;
  double seconds; /* 0: until it is ended */
  bool follow, quiet;
  engine_choice_t engine;
  const char *layout_file;
  char **program;   /* NULL: processes that run already */
  char command[64]; /* for messages: "record -p 12" */
  record_status_t status;
} record_t;

static const char help[] =
    "Usage: luapulse record -p PID[,PID...] [OPTIONS]\n"
    "       luapulse record [OPTIONS] -- PROGRAM [ARGUMENTS]\n\n"
    "Profiles running processes from outside, until the time is over, Ctrl-C, or their end. They need no\n"
    "preparation, and nothing in them is changed.\n\n"
    "Options:\n"
    "  -p, --pid PID[,PID...]  the processes\n"
    "  -F, --rate HZ           samples per second of CPU time (default 99)\n"
    "  -d, --duration SEC      for so long (default: until Ctrl-C)\n"
    "  -o, --output FILE       where to write; may be given several times. The format is told by the name\n"
    "                          (.pb.gz .html .folded .speedscope.json .callgrind .txt). In it, %p is the\n"
    "                          process, %t when it began. Default: luapulse.%p.pb.gz and luapulse.%p.html\n"
    "  -f, --format FORMAT     write every FILE in this format\n"
    "  -s, --follow            children of the processes, too\n"
    "      --engine ENGINE     auto (default), bpf (in the kernel) or ptrace (stops threads for a moment)\n"
    "  -L, --layout FILE       layout data for a Lua that is not known (see luapulse layout)\n"
    "  -q, --quiet             say nothing but errors\n"
    "  -h, --help              this\n\n"
    "The first Ctrl-C ends the recording and writes the profile, the second ends luapulse at once.\n\n"
    "Exit status: 0 when all processes were recorded and all files written, 1 otherwise, 2: wrong usage;\n"
    "126, 127: PROGRAM could not be run. The status of PROGRAM is told.\n\n"
    "Examples:\n"
    "  sudo luapulse record -p 1234 -d 30\n"
    "  sudo luapulse record -s -p $(pidof -s nginx) -d 30 -o nginx.html\n"
    "  luapulse record -o app.pb.gz -- lua5.4 app.lua && luapulse report app.pb.gz\n";

/* -- options -------------------------------------------------------------------------------------------------- */

static bool read_seconds(const char *text, double *seconds) {
  char *end;
  *seconds = strtod(text, &end);
  return text[0] >= '0' && text[0] <= '9' && *end == '\0' && *seconds > 0 && *seconds < 1e9;
}

static bool read_option(record_t *r, int option, char **argv, int *status) {
  unsigned word;
  failure_t failure;
  *status = STATUS_OK;
  switch (option) {
    case 'p':
      if (attach_parse_pids(optarg, &r->pids)) return true;
      *status = cli_usage("record", "--pid takes the numbers of processes, 12 or 12,34, %d at most, not '%s'",
                          ATTACH_MAX_PIDS, optarg);
      return false;
    case 'F':
      if (cli_parse_number(optarg, 1, 10000, &r->hz)) return true;
      *status = cli_usage("record", "--rate takes a number from 1 to 10000, not '%s'", optarg);
      return false;
    case 'd':
      if (read_seconds(optarg, &r->seconds)) return true;
      *status = cli_usage("record", "--duration takes a number of seconds, not '%s'", optarg);
      return false;
    case 'o':
      if (output_add(&r->output, optarg, &failure)) return true;
      *status = cli_usage("record", "%s", failure.text);
      return false;
    case 'f':
      r->output.format = format_by_name(optarg);
      if (r->output.format != NULL) return true;
      *status = cli_usage("record", "there is no format '%s'", optarg);
      return false;
    case 'E':
      if (cli_parse_word(optarg, "auto\0bpf\0ptrace\0", &word)) {
        r->engine = (engine_choice_t)word;
        return true;
      }
      *status = cli_usage("record", "--engine takes auto, bpf or ptrace, not '%s'", optarg);
      return false;
    case 's':
      r->follow = true;
      return true;
    case 'L':
      r->layout_file = optarg;
      return true;
    case 'q':
      r->quiet = true;
      return true;
    case 'h':
      fputs(help, stdout);
      *status = fflush(stdout) == 0 ? STATUS_OK : STATUS_FAILED;
      return false;
    default:
      *status = cli_bad_option("record", argv, option);
      return false;
  }
}

/* True to go on; otherwise *status is what to exit with. */
static bool read_options(record_t *r, int argc, char **argv, int *status) {
  static const struct option longs[] = {
      {"pid", required_argument, NULL, 'p'},
      {"rate", required_argument, NULL, 'F'},
      {"duration", required_argument, NULL, 'd'},
      {"output", required_argument, NULL, 'o'},
      {"format", required_argument, NULL, 'f'},
      {"follow", no_argument, NULL, 's'},
      {"engine", required_argument, NULL, 'E'},
      {"layout", required_argument, NULL, 'L'},
      {"quiet", no_argument, NULL, 'q'},
      {"help", no_argument, NULL, 'h'},
      {NULL, 0, NULL, 0},
  };
  failure_t failure;
  opterr = 0;
  for (int option; (option = getopt_long(argc, argv, "+:p:F:d:o:f:sL:qh", longs, NULL)) != -1;)
    if (!read_option(r, option, argv, status)) return false;
  r->program = optind < argc ? argv + optind : NULL;
  *status = STATUS_USAGE;
  if (r->program != NULL && r->pids.count > 0)
    return cli_usage("record", "either processes (-p) or a program to run, not both: '%s' is one too many",
                     r->program[0]) == STATUS_OK;
  if (r->program == NULL && r->pids.count == 0)
    return cli_usage("record", "what to record is missing: -p PID, or -- PROGRAM") == STATUS_OK;
  if (!output_check(&r->output, false, &failure)) return cli_usage("record", "%s", failure.text) == STATUS_OK;
  if (r->program != NULL)
    snprintf(r->command, sizeof r->command, "record -- %s", r->program[0]);
  else
    snprintf(r->command, sizeof r->command, "record -p %d%s", (int)r->pids.pids[0],
             r->pids.count > 1 ? ",..." : "");
  return true;
}

/* -- signals ---------------------------------------------------------------------------------------------------- */

static volatile sig_atomic_t ended_by;

static void on_end(int number) {
  if (ended_by != 0) _exit(128 + number);
  ended_by = number;
}

static void catch_signals(void) {
  struct sigaction action = {.sa_handler = on_end}; /* system calls are not restarted: a poll ends */
  sigaction(SIGINT, &action, NULL);
  sigaction(SIGTERM, &action, NULL);
  sigaction(SIGHUP, &action, NULL);
  signal(SIGCHLD, SIG_DFL); /* ignored, it would not tell of stops */
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

static bool choose_layout(void *context, const idents_t *idents, layout_t *layout, failure_t *failure) {
  const record_t *r = context;
  return attach_read_layout(r->layout_file, idents, layout, failure);
}

static engine_t *open_engine(const record_t *r, failure_t *why_not_bpf, failure_t *failure) {
  engine_options_t options = {.hz = r->hz, .follow = r->follow, .command = r->command};
  if (r->engine == ENGINE_BPF) return engine_bpf_open(&options, failure);
  if (r->engine == ENGINE_PTRACE) return engine_ptrace_open(&options, failure);
  engine_t *engine = engine_bpf_open(&options, why_not_bpf);
  return engine != NULL ? engine : engine_ptrace_open(&options, failure);
}

static void say_begin(const record_t *r, const engine_t *engine, const failure_t *why_not_bpf) {
  char what[64], end[64] = "until Ctrl-C";
  if (r->quiet) return;
  if (r->program != NULL)
    snprintf(what, sizeof what, "%s", r->program[0]);
  else
    snprintf(what, sizeof what, "%zu process%s", r->pids.count, r->pids.count == 1 ? "" : "es");
  if (r->seconds > 0) snprintf(end, sizeof end, "for %g s", r->seconds);
  cli_say("recording %s at %u Hz with engine %s, %s", what, r->hz, engine->name, end);
  if (why_not_bpf->text[0] != '\0') cli_say("not with engine bpf: %s", why_not_bpf->text);
}

/* Until the time is over, a signal, or no target is left. */
static bool watch(record_t *r, recorder_t *recorder, failure_t *failure) {
  int64_t end = INT64_MAX;
  recorder_counts_t counts = {.targets = 1, .waiting = 1};
  while (ended_by == 0 && counts.targets > 0 && clock_now() < end) {
    if (counts.waiting == 0 && end == INT64_MAX && r->seconds > 0)
      end = clock_now() + (int64_t)(r->seconds * 1e9); /* now all that are sampled are */
    int64_t left = end - clock_now();
    if (!recorder_poll(recorder, left < 100000000 ? (int)(left / 1000000) + 1 : 100, failure)) return false;
    record_status_update(&r->status, recorder);
    recorder_counts(recorder, &counts);
  }
  return true;
}

static bool write_all(const record_t *r, const profile_t *profile, pid_t pid, time_t when) {
  failure_t failure = {""};
  bool all = true;
  for (size_t i = 0; i < r->output.count; i++) {
    char path[PATH_MAX];
    if (!output_write(&r->output, i, profile, pid, when, path, &failure))
      all = cli_failed("record", "%s", failure.text) == STATUS_OK;
    else if (!r->quiet)
      cli_say("written to %s", path);
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

/* The processes are told, or the program is running: from here to the files. */
static int record_with(record_t *r, engine_t *engine, child_t *child) {
  recorder_options_t options = {.hz = r->hz,
                                .follow = r->follow,
                                .started = r->program != NULL,
                                .command = r->command,
                                .layout = r->layout_file != NULL ? choose_layout : NULL,
                                .from_debug = attach_layout_from_debug,
                                .say = on_say,
                                .context = r};
  failure_t failure = {""};
  time_t when = time(NULL);
  size_t added = 0;
  recorder_counts_t counts = {.samples = 0};
  recorder_t *recorder = recorder_new(engine, &options);
  if (recorder == NULL) return cli_failed("record", "out of memory");
  for (size_t i = 0; i < r->pids.count; i++)
    if (recorder_add(recorder, r->pids.pids[i], r->program != NULL, &failure))
      added++;
    else if (r->program == NULL) /* a program may have ended by now */
      cli_failed("record", "%s", failure.text);
  bool ok = added == r->pids.count;
  if (added > 0 && !watch(r, recorder, &failure)) ok = cli_failed("record", "%s", failure.text) == STATUS_OK;
  recorder_counts(recorder, &counts);
  profile_t *profile = counts.found > 0 ? recorder_finish(recorder) : NULL;
  if (added > 0) record_status_end(&r->status, &counts);
  if (child != NULL) say_end(r, child);
  if (counts.found == 0)
    ok = (added > 0 || r->program != NULL) &&
         cli_failed("record", "no Lua was found: nothing is written") == STATUS_OK;
  else if (profile == NULL)
    ok = cli_failed("record", "out of memory") == STATUS_OK;
  else
    ok = write_all(r, profile, r->pids.pids[0], when) && ok && counts.failed == 0;
  profile_free(profile);
  recorder_free(recorder);
  return ok ? STATUS_OK : STATUS_FAILED;
}

int record_run(int argc, char **argv) {
  record_t r = {.hz = 99};
  failure_t failure = {""}, why_not_bpf = {""};
  child_t child;
  int status, exec_error;
  if (!read_options(&r, argc, argv, &status)) return status;
  sigprocmask(SIG_BLOCK, NULL, &child.old_mask);
  engine_t *engine = open_engine(&r, &why_not_bpf, &failure);
  if (engine == NULL) return cli_failed("record", "%s", failure.text);
  record_status_begin(&r.status, r.quiet);
  say_begin(&r, engine, &why_not_bpf);
  if (r.program != NULL) {
    if (!launch_program(&child, r.program, NULL, NULL, &exec_error, &failure)) {
      engine->close(engine);
      return cli_failed("record", "%s", failure.text),
             exec_error == EACCES ? STATUS_NOT_RUNNABLE : STATUS_NOT_FOUND;
    }
    r.pids = (attach_pids_t){.pids = {child.pid}, .count = 1};
  }
  catch_signals();
  status = record_with(&r, engine, r.program != NULL ? &child : NULL);
  engine->close(engine);
  return status;
}
