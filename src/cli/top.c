/* SPDX-License-Identifier: MIT */
/* luapulse top: a live view of where running processes spend their time. On a terminal it is one that keys change; otherwise a table for
 * each round. */
#include "cli/top.h"

#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "attach/clock.h"
#include "cli/cli.h"
#include "cli/live_options.h"
#include "format/text.h"

enum {
  MOST_BYTES = 16 << 20 /* of the profile that is shown */,
  KEYS_MS = 50,
  MESSAGE_ROUNDS = 10, /* for which it is shown what happened */
  PLAIN_ROWS = 20,
  MOST_NAME = 40
};

typedef struct {
  live_options_t live; /* first */
  double interval;     /* seconds of a round */
  size_t rounds;       /* 0: until it is ended */
  size_t rows;         /* of a table in plain text, 0: all */
  bool ends;           /* with its targets */
  bool on_screen;
  top_state_t state;
  rolling_t rolling;
  top_view_t view;
  char failures[TOP_MESSAGE]; /* said when the terminal is free again */
} top_t;

static const char help[] =
    "Usage: luapulse top -p PID[,PID...] | --all [OPTIONS]\n\n"
    "Shows live which functions of running processes take the time. On a terminal, keys change the view: ? "
    "lists\n"
    "them. Otherwise a table is printed for each round. Nothing in the processes is changed.\n\n"
    "Options:\n" LIVE_HELP
    "  -d, --delay SEC         length of a round (default 1)\n"
    "  -n, --rounds N          so many rounds, then end (default: until q, or Ctrl-C)\n"
    "      --rows N            rows of a table in plain text (default 20, 0: all)\n"
    "  -x, --exit              end when the processes have ended; in plain text that is always "
    "so\n" LIVE_HELP_MORE
    "  -h, --help              this\n\n"
    "Columns: self is time in the function itself, total also that of all it called; % of all samples; /s "
    "samples\n"
    "per second, smoothed over some rounds; now: of the last round alone.\n\n"
    "Exit status: 0, or 1 when a process could not be sampled or nothing be printed, 2: wrong usage.\n\n"
    "Examples:\n"
    "  sudo luapulse top -p 1234\n"
    "  sudo luapulse top -s -p $(pidof -s nginx)\n"
    "  luapulse top -p 1234 -n 3 -d 5 | tee top.txt\n";

/* -- options -------------------------------------------------------------------------------------------------- */

static bool read_option(top_t *t, int option, char **argv, int *status) {
  if (live_option(&t->live, option, status)) return *status == STATUS_OK;
  switch (option) {
    case 'd':
      if (live_parse_seconds(optarg, &t->interval) && t->interval >= 0.1 && t->interval <= 3600) return true;
      *status = cli_usage("top", "--delay takes seconds from 0.1 to 3600, not '%s'", optarg);
      return false;
    case 'n':
      if (cli_parse_count(optarg, &t->rounds)) return true;
      *status = cli_usage("top", "--rounds takes a number, not '%s'", optarg);
      return false;
    case 'R':
      if (cli_parse_count(optarg, &t->rows)) return true;
      *status = cli_usage("top", "--rows takes a number, not '%s'", optarg);
      return false;
    case 'x':
      t->ends = true;
      return true;
    case 'h':
      fputs(help, stdout);
      *status = fflush(stdout) == 0 ? STATUS_OK : STATUS_FAILED;
      return false;
    default:
      *status = cli_bad_option("top", argv, option);
      return false;
  }
}

static bool read_options(top_t *t, int argc, char **argv, int *status) {
  static const struct option longs[] = {
      LIVE_LONG_OPTIONS,
      {"delay", required_argument, NULL, 'd'},
      {"rounds", required_argument, NULL, 'n'},
      {"rows", required_argument, NULL, 'R'},
      {"exit", no_argument, NULL, 'x'},
      {"help", no_argument, NULL, 'h'},
      {NULL, 0, NULL, 0},
  };
  opterr = 0;
  for (int option; (option = getopt_long(argc, argv, ":" LIVE_SHORT_OPTIONS "d:n:xh", longs, NULL)) != -1;)
    if (!read_option(t, option, argv, status)) return false;
  *status = STATUS_USAGE;
  return live_check(&t->live, argc, argv);
}

/* -- what is shown -------------------------------------------------------------------------------------------------- */

static void on_say(void *context, bool failed, const char *text) {
  top_t *t = context;
  snprintf(t->state.message, sizeof t->state.message, "%s", text);
  t->state.message_round = t->state.rounds;
  if (!t->on_screen && failed)
    cli_failed("top", "%s", text);
  else if (!t->on_screen)
    cli_say("%s", text);
  else if (failed)
    snprintf(t->failures, sizeof t->failures, "%s", text);
}

/* "process 12 (lua5.4)", "3 processes: 12 (nginx), 13 (nginx), …" */
static void describe_targets(top_t *t) {
  char *text = t->state.targets;
  const attach_pids_t *pids = &t->live.pids;
  if (t->live.all) {
    snprintf(text, TOP_TARGETS, "every process with Lua, %zu now", t->state.counts.sampled);
    return;
  }
  size_t used = pids->count == 1 ? (size_t)snprintf(text, TOP_TARGETS, "process")
                                 : (size_t)snprintf(text, TOP_TARGETS, "%zu processes:", pids->count);
  for (size_t i = 0; i < pids->count && used < TOP_TARGETS - 64; i++) {
    process_t process;
    bool known = process_look(&process, pids->pids[i], NULL);
    used += (size_t)snprintf(text + used, TOP_TARGETS - used, "%s %d (%.31s)", i > 0 ? "," : "",
                             (int)pids->pids[i], known ? process.name : "gone");
  }
}

void top_describe(const top_state_t *s, const top_view_t *view, char *text, size_t size) {
  uint64_t samples = s->counts.samples - s->base.samples;
  uint64_t unattributed = s->counts.unattributed - s->base.unattributed;
  double now = top_view_rate_now(view);
  int used =
      snprintf(text, size,
               "%.1f samples/s, %.0f %% of a processor, %" PRIu64 " lost, %" PRIu64 " unattributed (%.1f %%)",
               now, s->hz > 0 ? now * 100 / s->hz : 0, s->counts.lost - s->base.lost, unattributed,
               samples > 0 ? (double)unattributed * 100 / (double)samples : 0);
  uint64_t gone = s->counts.gone - s->base.gone, truncated = s->counts.truncated - s->base.truncated;
  if (gone > 0 && used < (int)size)
    used += snprintf(text + used, size - (size_t)used, ", %" PRIu64 " gone", gone);
  if (truncated > 0 && used < (int)size)
    snprintf(text + used, size - (size_t)used, ", %" PRIu64 " truncated", truncated);
}

/* -- plain text -------------------------------------------------------------------------------------------------------- */

static bool print_round(const top_t *t) {
  const top_view_t *v = &t->view;
  char text[512], clock[16];
  failure_t failure = {""};
  time_t now = time(NULL);
  size_t rows = t->rows != 0 && t->rows < v->line_count ? t->rows : v->line_count, names = 8;
  sink_t *sink = sink_to_fd(STDOUT_FILENO);
  if (sink == NULL) return cli_failed("top", "out of memory") == STATUS_OK;
  for (size_t i = 0; i < rows; i++) {
    size_t columns = text_columns(top_view_name(v, &v->lines[i]));
    if (columns > names) names = columns < MOST_NAME ? columns : MOST_NAME;
  }
  strftime(clock, sizeof clock, "%H:%M:%S", localtime(&now));
  top_describe(&t->state, v, text, sizeof text);
  sink_format(sink, "%s round %" PRIu64 ", %s, engine %s, %u Hz\n%s\n", clock, t->state.rounds,
              t->state.targets, t->state.engine, t->state.hz, text);
  sink_format(sink, "%s  function\n", top_view_head(v));
  for (size_t i = 0; i < rows; i++) {
    const top_line_t *line = &v->lines[i];
    const summary_row_t *row = &v->summary->rows[line->row];
    char numbers[TOP_NUMBERS];
    top_view_numbers(v, line, numbers);
    sink_format(sink, "%s  ", numbers);
    text_put_place(sink, top_view_name(v, line), profile_text(v->summary->profile, row->file), row->line,
                   SIZE_MAX, names);
  }
  if (rows < v->line_count) sink_format(sink, "… and %zu more; --rows 0 shows all\n", v->line_count - rows);
  sink_text(sink, "\n");
  return sink_close(sink, &failure) ||
         cli_failed("top", "standard output: cannot be written: %s", failure.text) == STATUS_OK;
}

/* -- rounds ------------------------------------------------------------------------------------------------------------ */

/* Takes what was sampled into the view. */
static bool end_round(top_t *t, recorder_t *recorder, double seconds) {
  recorder_counts(recorder, &t->state.counts);
  if (t->live.all) describe_targets(t);
  profile_t *window = recorder_window(recorder);
  t->state.rounds++;
  if (!t->state.ended && t->state.rounds > t->state.message_round + MESSAGE_ROUNDS)
    t->state.message[0] = '\0';
  if (window != NULL && rolling_add(&t->rolling, window, seconds) && top_view_make(&t->view)) return true;
  snprintf(t->failures, sizeof t->failures, "out of memory");
  return false;
}

static bool reset(top_t *t, recorder_t *recorder) {
  recorder_counts(recorder, &t->state.base);
  t->state.counts = t->state.base;
  profile_free(recorder_window(recorder));
  return rolling_reset(&t->rolling) && top_view_make(&t->view);
}

/* False to quit. */
static bool act(top_t *t, recorder_t *recorder, top_action_t action, int64_t *began) {
  switch (action) {
    case TOP_FREEZE:
      t->state.frozen = !t->state.frozen;
      break;
    case TOP_RESET:
      *began = clock_now();
      t->state.frozen = false;
      if (!reset(t, recorder)) return false;
      break;
    case TOP_MAKE:
      if (!top_view_make(&t->view)) return false;
      break;
    case TOP_QUIT:
      return false;
    default:
      break;
  }
  top_screen_draw(&t->state, &t->view);
  return true;
}

static bool handle_keys(top_t *t, recorder_t *recorder, int64_t *began) {
  for (top_action_t action; t->on_screen && (action = top_screen_keys(&t->view)) != TOP_NOTHING;)
    if (!act(t, recorder, action, began)) return false;
  return true;
}

static bool show_round(top_t *t) {
  if (!t->on_screen) return print_round(t);
  top_screen_draw(&t->state, &t->view);
  return true;
}

/* Until it is quit, or there is nothing more to see. */
static bool look_on(top_t *t, recorder_t *recorder, failure_t *failure) {
  int64_t length = (int64_t)(t->interval * 1e9), began = clock_now();
  while (live_ended_by == 0 && (t->rounds == 0 || t->state.rounds < t->rounds)) {
    recorder_counts_t counts;
    int64_t left = began + length - clock_now();
    int wait = left <= 0 ? 0 : left < (int64_t)KEYS_MS * 1000000 ? (int)(left / 1000000) + 1 : KEYS_MS;
    if (!recorder_poll(recorder, t->state.frozen || t->state.ended ? KEYS_MS : wait, failure)) return false;
    if (!handle_keys(t, recorder, &began)) return true;
    recorder_counts(recorder, &counts);
    bool ends = !live_goes_on(&t->live, &counts) && !t->state.ended;
    if (t->state.ended || t->state.frozen || (clock_now() < began + length && !ends)) continue;
    int64_t now = clock_now();
    t->state.ended = ends;
    if (!end_round(t, recorder, (double)(now - began) / 1e9) || !show_round(t)) return false;
    began = now;
    if (ends && (t->ends || !t->on_screen)) return true;
  }
  return true;
}

static int top_with(top_t *t, engine_t *engine) {
  recorder_options_t options = live_recorder_options(&t->live, on_say, t);
  failure_t failure = {""};
  recorder_counts_t counts;
  recorder_t *recorder = recorder_new(engine, &options);
  bool ok = recorder != NULL && rolling_begin(&t->rolling, MOST_BYTES);
  top_view_begin(&t->view, &t->rolling);
  ok = ok && top_view_make(&t->view);
  if (!ok) failure_set(&failure, "out of memory");
  bool all = ok && live_add_processes(&t->live, recorder, on_say, t) == t->live.pids.count;
  ok = ok && live_look_into(&t->live, recorder, &failure); /* no screen is there yet: what is wrong is said */
  if (ok) recorder_counts(recorder, &counts);
  if (ok && live_goes_on(&t->live, &counts)) {
    profile_free(recorder_window(recorder)); /* the first round begins with all of them */
    t->state.base = t->state.counts = counts;
    describe_targets(t);
    t->on_screen = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO) && top_screen_open();
    t->state.message[0] = '\0';
    if (t->on_screen) top_screen_draw(&t->state, &t->view);
    ok = look_on(t, recorder, &failure);
    top_screen_close();
    t->on_screen = false;
  }
  if (t->failures[0] != '\0') cli_failed("top", "%s", t->failures);
  if (failure.text[0] != '\0') cli_failed("top", "%s", failure.text);
  if (ok) recorder_counts(recorder, &counts);
  ok = ok && all && counts.found > 0 && counts.failed == 0;
  top_view_end(&t->view);
  rolling_end(&t->rolling);
  recorder_free(recorder);
  return ok ? STATUS_OK : STATUS_FAILED;
}

int top_run(int argc, char **argv) {
  static top_t t; /* large */
  failure_t failure = {""}, why_not_bpf = {""};
  int status;
  t = (top_t){.live = {.name = "top", .hz = LIVE_HZ}, .interval = 1, .rows = PLAIN_ROWS};
  if (!read_options(&t, argc, argv, &status)) return status;
  engine_t *engine = live_open_engine(&t.live, &why_not_bpf, &failure);
  if (engine == NULL) return cli_failed("top", "%s", failure.text);
  if (why_not_bpf.text[0] != '\0') cli_say("not with engine bpf: %s", why_not_bpf.text);
  t.state.engine = engine->name;
  t.state.hz = t.live.hz;
  live_catch_signals(false);
  status = top_with(&t, engine);
  engine->close(engine);
  return status;
}
