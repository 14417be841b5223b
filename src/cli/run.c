/* SPDX-License-Identifier: MIT */
/* luapulse run: profiles a program without touching it. The tables live in memory shared with the program,
 * and this process, its parent, writes the profile: it is there however the program ends. */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "agent/options.h"
#include "cli/cli.h"
#include "cli/launch.h"
#include "cli/output.h"
#include "format/format.h"
#include "name/source.h"
#include "profile/live.h"
#include "profile/mem.h"
#include "profile/trace_values.h"

enum { STATUS_NO_PROFILE = 125 };

typedef struct {
  luapulse_profile_options_t options;
  output_t output;
  unsigned asked;          /* LUAPULSE_FEATURE_*, 0: the default */
  const char *heap_detail; /* an option that is for the heap alone, NULL: none was given … */
  const char *cpu_detail;  /* … or for the cpu alone */
  unsigned interval;       /* seconds, 0: one profile at the end */
  const char *lua;         /* version the user names, or NULL */
  int loud;                /* -1 quiet, 0 when a person looks, 1 always */
  char **command;
  char layout[PATH_MAX], filter[4096];
  time_t since; /* when what is written next began: profiles of intervals begin a second apart or more */
} run_t;

static int print_help(void) {
  fputs(
      "Usage: luapulse run [OPTIONS] -- PROGRAM [ARGUMENTS]\n\n"
      "Runs a Lua program and profiles it, without any change to it. The profile is written when it ends,\n"
      "however it ends; its exit status, signals and output are its own.\n\n"
      "Options:\n"
      "  -o, --output FILE    where to write; may be given several times. The format is told by the name\n"
      "                       (.pb.gz .html .folded .speedscope.json .callgrind .txt .trace.json). In it, %p "
      "is the "
      "process,\n"
      "                       %t when it began. Default: luapulse.%p.pb.gz and luapulse.%p.html\n"
      "  -f, --format FORMAT  write every FILE in this format; without -o the only one is luapulse.%p with "
      "its\n"
      "                       extension\n"
      "  -F, --rate HZ        samples per second of CPU time (default 100)\n"
      "      --cpu MODE       sampling (the default without --heap) or tracing: every call is counted and "
      "timed\n"
      "      --heap[=MODE]    where memory goes: sampling (the default) or tracing: every allocation. "
      "Without\n"
      "                       --cpu the heap alone is profiled\n"
      "      --heap-rate BYTES      one sample of the heap in so many bytes (default 524288; 1: every "
      "block)\n"
      "      --gc completed   in use is what the last completed collection left, not what is there at the "
      "end\n"
      "      --trace          the same as --cpu tracing\n"
      "      --trace-events N       keep the newest N calls as a timeline, for -f chrome (default then "
      "200000)\n"
      "      --trace-filter PATTERN … of functions whose name or file fits; may be given several times\n"
      "      --clock CLOCK    cpu (default), wall (waiting counts too) or instructions (no signals, slower)\n"
      "      --engine ENGINE  auto (default), walk (stacks out of memory) or interface (ask Lua: hooks)\n"
      "      --layout FILE    where this build of Lua keeps things, made by luapulse layout\n"
      "      --mean-instr N   instructions clock: one sample in N instructions (default 20000)\n"
      "      --max-rate N     instructions clock: at most N samples a second (default 200, 0: no limit)\n"
      "      --seed N         of the random gaps: with --max-rate 0, the same run gives the same profile\n"
      "      --interval SEC   write a profile of every SEC seconds, while it runs; FILE must have %t in it\n"
      "      --memory MIB     room for the tables (default 32; where every event is seen 256)\n"
      "      --lua VERSION    the Lua that PROGRAM runs, if luapulse cannot tell: 5.1 5.2 5.3 5.4 5.5 jit\n"
      "  -q, --quiet          say nothing but errors\n"
      "  -v, --verbose        say what was written also when no terminal looks on\n"
      "  -h, --help           this\n\n"
      "Exit status: the program's. 125: it was not profiled; 126, 127: it could not be run; 2: wrong "
      "usage.\n\n"
      "Examples:\n"
      "  luapulse run -o app.html -- lua5.4 app.lua 10\n"
      "  luapulse run -F 500 -o app.pb.gz -- luajit app.lua && luapulse report app.pb.gz\n"
      "  luapulse run --heap -o heap.html -o heap.pb.gz -- lua5.4 app.lua && luapulse leaks heap.pb.gz\n"
      "  luapulse run --trace -o app.txt -o app.trace.json -- lua5.4 app.lua\n"
      "  luapulse run --interval 60 -o 'app.%t.pb.gz' -- ./server.lua\n",
      stdout);
  return fflush(stdout) == 0 ? STATUS_OK : STATUS_FAILED;
}

/* -- options --------------------------------------------------------------------------------------------- */

/* The program may change its folder before it reads the file. */
static const char *absolute(const char *file, char path[PATH_MAX]) {
  return access(file, R_OK) == 0 ? realpath(file, path) : NULL;
}

static bool refuse(int *status, int value) {
  *status = value;
  return false;
}

static bool add_filter(run_t *run, const char *pattern) {
  size_t used = strlen(run->filter), len = strlen(pattern);
  if (used + len + 2 > sizeof run->filter) return false;
  memcpy(run->filter + used, pattern, len);
  memcpy(run->filter + used + len, "\n", 2);
  run->options.trace_filter = run->filter;
  return true;
}

static bool check_features(run_t *run, bool memory_given, int *status) {
  enum { TRACED_MIB = 256 }; /* each block in use has a place in the tables, each path taken once, too */
  luapulse_profile_options_t *o = &run->options;
  if (run->asked != 0) o->features = run->asked;
  bool heap = (o->features & LUAPULSE_FEATURE_HEAP) != 0;
  if (!(o->features & LUAPULSE_FEATURE_CPU) && run->cpu_detail != NULL)
    return refuse(status, cli_usage("run", "%s is for the cpu: add --cpu sampling", run->cpu_detail));
  if (!heap && run->heap_detail != NULL)
    return refuse(status, cli_usage("run", "%s is for the heap: add --heap", run->heap_detail));
  bool traced = (heap && o->heap_mode == LUAPULSE_COLLECTION_TRACING) ||
                ((o->features & LUAPULSE_FEATURE_CPU) && o->cpu_mode == LUAPULSE_COLLECTION_TRACING);
  if (traced && !memory_given) o->max_memory_bytes = (size_t)TRACED_MIB << 20;
  return true;
}

/* A timeline is kept when it will be written, and is there only when every call is seen. */
static bool check_tracing(run_t *run, int *status) {
  enum { DEFAULT_EVENTS = 200000, EVENT_BYTES = 24 };
  luapulse_profile_options_t *o = &run->options;
  bool wanted = run->output.format != NULL && run->output.format->write == chrome_write;
  for (size_t i = 0; i < run->output.count && run->output.format == NULL; i++) {
    const format_t *format = format_for_path(run->output.names[i]);
    wanted = wanted || (format != NULL && format->write == chrome_write);
  }
  bool tracing = (o->features & LUAPULSE_FEATURE_CPU) && o->cpu_mode == LUAPULSE_COLLECTION_TRACING;
  if (!tracing && (wanted || o->trace_events > 0 || o->trace_filter != NULL))
    return refuse(status, cli_usage("run", "a timeline is made of every call: add --trace"));
  if (tracing && o->cpu_clock != LUAPULSE_CLOCK_CPU)
    return refuse(status, cli_usage("run", "--clock is for sampling; --trace has a clock of its own"));
  if (wanted && o->trace_events == 0) o->trace_events = DEFAULT_EVENTS;
  o->max_memory_bytes += (size_t)o->trace_events * EVENT_BYTES; /* beside the tables, not at their cost */
  return true;
}

/* True to go on; otherwise *status is what to exit with. */
static bool read_options(run_t *run, int argc, char **argv, int *status) {
  enum {
    CLOCK = 256,
    CPU,
    HEAP,
    HEAP_RATE,
    GC,
    ENGINE,
    TRACE,
    TRACE_EVENTS,
    TRACE_FILTER,
    LAYOUT,
    MEAN_INSTR,
    MAX_RATE,
    SEED,
    INTERVAL,
    MEMORY,
    LUA
  };
  static const struct option longs[] = {
      {"output", required_argument, NULL, 'o'},
      {"format", required_argument, NULL, 'f'},
      {"rate", required_argument, NULL, 'F'},
      {"clock", required_argument, NULL, CLOCK},
      {"cpu", required_argument, NULL, CPU},
      {"heap", optional_argument, NULL, HEAP},
      {"heap-rate", required_argument, NULL, HEAP_RATE},
      {"gc", required_argument, NULL, GC},
      {"engine", required_argument, NULL, ENGINE},
      {"trace", no_argument, NULL, TRACE},
      {"trace-events", required_argument, NULL, TRACE_EVENTS},
      {"trace-filter", required_argument, NULL, TRACE_FILTER},
      {"layout", required_argument, NULL, LAYOUT},
      {"mean-instr", required_argument, NULL, MEAN_INSTR},
      {"max-rate", required_argument, NULL, MAX_RATE},
      {"seed", required_argument, NULL, SEED},
      {"interval", required_argument, NULL, INTERVAL},
      {"memory", required_argument, NULL, MEMORY},
      {"lua", required_argument, NULL, LUA},
      {"quiet", no_argument, NULL, 'q'},
      {"verbose", no_argument, NULL, 'v'},
      {"help", no_argument, NULL, 'h'},
      {NULL, 0, NULL, 0},
  };
  luapulse_profile_options_t *o = &run->options;
  unsigned mib = 0, seed, word, bytes;
  failure_t failure;
  opterr = 0;
  for (int option; (option = getopt_long(argc, argv, "+:o:f:F:qvh", longs, NULL)) != -1;) {
    switch (option) {
      case 'o':
        if (!output_add(&run->output, optarg, &failure))
          return refuse(status, cli_usage("run", "%s", failure.text));
        break;
      case 'f':
        run->output.format = format_by_name(optarg);
        if (run->output.format == NULL)
          return refuse(status, cli_usage("run", "there is no format '%s'", optarg));
        break;
      case 'F':
        run->cpu_detail = "--rate";
        if (!cli_parse_number(optarg, 1, 10000, &o->cpu_hz))
          return refuse(status, cli_usage("run", "--rate takes a number from 1 to 10000, not '%s'", optarg));
        break;
      case CLOCK:
        run->cpu_detail = "--clock";
        if (!cli_parse_word(optarg, "cpu\0instructions\0wall\0", &word))
          return refuse(status,
                        cli_usage("run", "--clock takes cpu, wall or instructions, not '%s'", optarg));
        o->cpu_clock = (luapulse_clock_t)word;
        break;
      case ENGINE:
        if (!cli_parse_word(optarg, "auto\0walk\0interface\0", &word))
          return refuse(status, cli_usage("run", "--engine takes auto, walk or interface, not '%s'", optarg));
        o->cpu_engine = (luapulse_engine_t)word;
        break;
      case TRACE:
        run->asked |= LUAPULSE_FEATURE_CPU;
        o->cpu_mode = LUAPULSE_COLLECTION_TRACING;
        break;
      case CPU:
        if (!cli_parse_word(optarg, "sampling\0tracing\0", &word))
          return refuse(status, cli_usage("run", "--cpu takes sampling or tracing, not '%s'", optarg));
        run->asked |= LUAPULSE_FEATURE_CPU;
        o->cpu_mode = (luapulse_collection_mode_t)word;
        break;
      case HEAP:
        word = LUAPULSE_COLLECTION_SAMPLING;
        if (!cli_parse_optional_word(optarg, "sampling\0tracing\0", &word))
          return refuse(status, cli_usage("run", "--heap takes =sampling or =tracing, not '%s'", optarg));
        run->asked |= LUAPULSE_FEATURE_HEAP;
        o->heap_mode = (luapulse_collection_mode_t)word;
        break;
      case HEAP_RATE:
        if (!cli_parse_number(optarg, 1, 4294967295u, &bytes))
          return refuse(
              status, cli_usage("run", "--heap-rate takes a number of bytes, at least 1, not '%s'", optarg));
        o->heap_sample_mean_bytes = bytes;
        run->heap_detail = "--heap-rate";
        break;
      case GC:
        if (!cli_parse_word(optarg, "now\0completed\0", &word))
          return refuse(status, cli_usage("run", "--gc takes now or completed, not '%s'", optarg));
        o->heap_gc = (luapulse_gc_t)word;
        run->heap_detail = "--gc";
        break;
      case TRACE_EVENTS:
        if (!cli_parse_number(optarg, 1, 100000000, &o->trace_events))
          return refuse(
              status,
              cli_usage("run", "--trace-events takes a number from 1 to 100000000, not '%s'", optarg));
        break;
      case TRACE_FILTER:
        if (!add_filter(run, optarg))
          return refuse(status, cli_usage("run", "--trace-filter: too many patterns"));
        break;
      case LAYOUT:
        o->layout_file = absolute(optarg, run->layout);
        if (o->layout_file == NULL) {
          cli_failed("run", "cannot read the layout file %s: %s", optarg, strerror(errno));
          return refuse(status, STATUS_NO_PROFILE);
        }
        break;
      case MEAN_INSTR:
        run->cpu_detail = "--mean-instr";
        if (!cli_parse_number(optarg, 1, 1000000000, &o->cpu_sample_mean_instr))
          return refuse(
              status, cli_usage("run", "--mean-instr takes a number from 1 to 1000000000, not '%s'", optarg));
        break;
      case MAX_RATE:
        run->cpu_detail = "--max-rate";
        if (!cli_parse_number(optarg, 0, 1000000000, &o->cpu_max_samples_per_sec))
          return refuse(status,
                        cli_usage("run", "--max-rate takes a number from 0 to 1000000000, not '%s'", optarg));
        break;
      case SEED:
        if (!cli_parse_number(optarg, 1, 4294967295u, &seed))
          return refuse(status,
                        cli_usage("run", "--seed takes a number from 1 to 4294967295, not '%s'", optarg));
        o->seed = seed;
        break;
      case INTERVAL:
        if (!cli_parse_number(optarg, 1, 1000000000, &run->interval))
          return refuse(
              status, cli_usage("run", "--interval takes a number of seconds, at least 1, not '%s'", optarg));
        break;
      case MEMORY:
        if (!cli_parse_number(optarg, 1, 4096, &mib))
          return refuse(status,
                        cli_usage("run", "--memory takes a number of MiB from 1 to 4096, not '%s'", optarg));
        o->max_memory_bytes = (size_t)mib << 20;
        break;
      case LUA:
        run->lua = optarg;
        break;
      case 'q':
        run->loud = -1;
        break;
      case 'v':
        run->loud = 1;
        break;
      case 'h':
        return refuse(status, print_help());
      default:
        return refuse(status, cli_bad_option("run", argv, option));
    }
  }
  run->command = argv + optind;
  if (optind == argc) return refuse(status, cli_usage("run", "the program to run is missing"));
  if (!check_features(run, mib != 0, status) || !check_tracing(run, status)) return false;
  if (!output_check(&run->output, run->interval > 0, &failure))
    return refuse(status, cli_usage("run", "%s", failure.text));
  if (!output_reachable(&run->output, OUTPUT_UNKNOWN, &failure)) {
    cli_failed("run", "%s", failure.text);
    return refuse(status, STATUS_NO_PROFILE);
  }
  return true;
}

/* -- running --------------------------------------------------------------------------------------------- */

static void *make_tables(size_t size, int *fd, failure_t *failure) {
  *fd = memfd_create("luapulse", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  void *memory = MAP_FAILED;
  if (*fd >= 0 && ftruncate(*fd, (off_t)size) == 0)
    memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0);
  if (memory == MAP_FAILED) {
    failure_set(failure, "no memory for tables of %zu bytes: %s", size, strerror(errno));
    if (*fd >= 0) close(*fd);
    return NULL;
  }
  fcntl(*fd, F_ADD_SEALS,
        F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL); /* the program cannot pull it from under us */
  live_prepare(memory, size);
  return memory;
}

/* What was run, as the profile's program: the command line, cut. */
static void name_program(profile_t *profile, char **command) {
  char text[256];
  size_t used = 0;
  for (; *command != NULL && used + 1 < sizeof text; command++)
    used += (size_t)snprintf(text + used, sizeof text - used, "%s%s", used > 0 ? " " : "", *command);
  profile->program = profile_string(profile, text, used < sizeof text ? used : sizeof text - 1);
}

static bool talks(const run_t *run) {
  return run->loud > 0 || (run->loud == 0 && isatty(STDERR_FILENO));
}

static void tell(const run_t *run, const profile_t *profile, const char *path) {
  int64_t samples = 0;
  uint64_t lost = 0;
  for (size_t i = 0; i < profile->sample_count; i++) samples += profile->samples[i].values[0];
  for (int reason = 0; reason < LOSS_COUNT; reason++)
    if (reason != LOSS_RATE_LIMITED) lost += profile->losses[reason];
  if (!talks(run)) return;
  const char *what = trace_is(profile)                                 ? "calls"
                     : !(run->options.features & LUAPULSE_FEATURE_CPU) ? "allocated objects"
                                                                       : "samples";
  fprintf(stderr, "luapulse: %lld %s", (long long)samples, what);
  if (lost > 0) fprintf(stderr, " (%llu lost or incomplete)", (unsigned long long)lost);
  fprintf(stderr, ", written to %s\n", path);
}

/* What there is to be done about it. */
static void tell_of_overflow(const run_t *run, const profile_t *profile) {
  uint64_t overflow = profile->losses[LOSS_OVERFLOW];
  if (overflow == 0 || !talks(run)) return;
  fprintf(stderr, "luapulse: %llu found no room for their stack: more than --memory %zu would have it\n",
          (unsigned long long)overflow, run->options.max_memory_bytes >> 20);
}

/* Writes what has come since `before`, or all of it. */
static bool write_profile(const run_t *run, const live_t *live, const live_t *before, pid_t pid) {
  failure_t failure = {""};
  profile_t *profile = live_snapshot_since(live, before, &failure);
  if (profile == NULL) {
    cli_failed("run", "no profile: %s", failure.text);
    return false;
  }
  name_program(profile, run->command);
  source_name_functions(profile);
  trace_finish(profile);
  bool all = true;
  for (size_t i = 0; i < run->output.count; i++) {
    char path[PATH_MAX];
    if (output_write(&run->output, i, profile, pid, run->since, path, &failure))
      tell(run, profile, path);
    else
      all = cli_failed("run", "%s", failure.text) == STATUS_OK;
  }
  tell_of_overflow(run, profile);
  profile_free(profile);
  return all;
}

/* True when the program's Lua did take part; otherwise says why not. */
static bool took_part(const run_t *run, const live_t *live, const interpreter_t *interpreter) {
  switch (live_state(live)) {
    case LIVE_WAITING:
      cli_failed("run", "%s was not profiled: it started no Lua %s that reads %s (lua -E does not)",
                 run->command[0], interpreter->version, interpreter->init);
      return false;
    case LIVE_REFUSED:
      cli_failed("run", "%s was not profiled: %s", run->command[0], live_refusal(live));
      return false;
    case LIVE_RUNNING:
    case LIVE_ENDED:
      break;
  }
  return true;
}

/* Profiles of each interval while the program runs. `before` ends as what the last of them covered. */
static void watch(run_t *run, child_t *child, const live_t *live, live_t *before) {
  while (!launch_wait(child, run->interval)) {
    time_t now_seconds = time(NULL);
    live_state_t state = live_state(live);
    if (state != LIVE_RUNNING && state != LIVE_ENDED) continue;
    live_t now = {0};
    bool saved = live_save(live, &now);
    write_profile(run, saved ? &now : live, before->header != NULL ? before : NULL, child->pid);
    if (!saved) continue;
    mem_free(before->header);
    *before = now;
    run->since = now_seconds > run->since ? now_seconds : run->since + 1;
  }
}

int run_run(int argc, char **argv) {
  run_t run = {.options = options_default()};
  int status;
  if (!read_options(&run, argc, argv, &status)) return status;

  interpreter_t interpreter = {0};
  failure_t failure = {""};
  bool known = run.lua != NULL ? interpreter_named(&interpreter, run.lua, &failure)
                               : interpreter_find(&interpreter, run.command[0], &failure);
  if (!known)
    return cli_failed("run", "%s", failure.text), launch_status(interpreter.not_found, STATUS_NO_PROFILE);

  int fd, exec_error;
  size_t size = run.options.max_memory_bytes;
  void *memory = make_tables(size, &fd, &failure);
  if (memory == NULL) return cli_failed("run", "%s", failure.text), STATUS_NO_PROFILE;
  child_t child;
  if (!launch(&child, run.command, &interpreter, fd, size, &run.options, &exec_error, &failure))
    return cli_failed("run", "%s", failure.text), launch_status(exec_error, STATUS_NO_PROFILE);
  close(fd);

  run.since = time(NULL);
  live_t live, before = {0};
  live_open(&live, memory, size, NULL);
  watch(&run, &child, &live, &before);
  bool done = took_part(&run, &live, &interpreter) &&
              write_profile(&run, &live, before.header != NULL ? &before : NULL, child.pid);
  if (done && talks(&run) && run.interval == 0) output_suggest(&run.output, child.pid, run.since);
  mem_free(before.header);
  if (!done && child.wait_status == 0) return STATUS_NO_PROFILE;
  launch_end_alike(&child);
}
