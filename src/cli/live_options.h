/* SPDX-License-Identifier: MIT */
/* What the commands that sample running processes share: which ones, how often, with which engine; signals that end them. */
#ifndef LUAPULSE_CLI_LIVE_OPTIONS_H
#define LUAPULSE_CLI_LIVE_OPTIONS_H

#include <getopt.h>
#include <signal.h>

#include "attach/recorder.h"
#include "cli/attach_options.h"

typedef enum { ENGINE_AUTO, ENGINE_BPF, ENGINE_PTRACE } engine_choice_t;

typedef struct {
  const char *name; /* of the command: "record" */
  attach_pids_t pids;
  unsigned hz;
  bool follow;
  bool all; /* every process with a Lua in it */
  engine_choice_t engine;
  const char *layout_file;
} live_options_t;

enum { LIVE_HZ = 99 };

/* For getopt_long(). */
#define LIVE_SHORT_OPTIONS "p:aF:sL:"
#define LIVE_LONG_OPTIONS                                                         \
  {"pid", required_argument, NULL, 'p'}, {"all", no_argument, NULL, 'a'},         \
      {"rate", required_argument, NULL, 'F'}, {"follow", no_argument, NULL, 's'}, \
      {"engine", required_argument, NULL, 'E'}, {                                 \
    "layout", required_argument, NULL, 'L'                                        \
  }
#define LIVE_HELP                                                                               \
  "  -p, --pid PID[,PID...]  the processes\n"                                                   \
  "  -a, --all               every process with a Lua in it, also those that begin meanwhile\n" \
  "  -F, --rate HZ           samples per second of CPU time (default 99)\n"
#define LIVE_HELP_MORE                                                                                     \
  "  -s, --follow            children of the processes, too\n"                                             \
  "      --engine ENGINE     auto (default), bpf (in the kernel) or ptrace (stops threads for a moment)\n" \
  "  -L, --layout FILE       layout data for a Lua that is not known (see luapulse layout)\n"

/* Takes the option that getopt_long() returned if it is one of these: *status is STATUS_OK then, or what to exit with. False when it is
 * another. */
bool live_option(live_options_t *options, int option, int *status);
/* After the last: that there is something to look at, and nothing beside options. False after it said what is wrong. */
bool live_check(live_options_t *options, int argc, char **argv);
/* A number of seconds, not 0. */
bool live_parse_seconds(const char *text, double *seconds);

/* NULL with the reason. `why_not_bpf` is set where another engine had to be taken. */
engine_t *live_open_engine(const live_options_t *options, failure_t *why_not_bpf, failure_t *failure);
/* All but what is special to a command. `context` is what `say` gets; the options must be its first member. */
recorder_options_t live_recorder_options(const live_options_t *options,
                                         void (*say)(void *context, bool failed, const char *text),
                                         void *context);
/* Adds the processes that were told; those that cannot be targets are handed to `say`. Returns how many could. */
size_t live_add_processes(const live_options_t *options, recorder_t *recorder,
                          void (*say)(void *context, bool failed, const char *text), void *context);

/* Polls until all targets were looked into, and there is Lua in one of them, or in none of them. Who follows children, or wants every process,
 * waits for it later: it may be in those to come. */
bool live_look_into(const live_options_t *options, recorder_t *recorder, failure_t *failure);

/* Whether there is something to be seen yet: targets, or processes that may become some. */
bool live_goes_on(const live_options_t *options, const recorder_counts_t *counts);

/* Interrupts, and what else asks for an end, set live_ended_by to their number; a hangup that is ignored stays so. `hasty`: the second ends
 * the program at once. */
extern volatile sig_atomic_t live_ended_by;
void live_catch_signals(bool hasty);

#endif
