/* SPDX-License-Identifier: MIT */
/* The status line; see record_status.h. */
#include "cli/record_status.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "attach/clock.h"

enum { EVERY_NS = 250 * 1000000, TEXT = 512 };

void record_status_begin(record_status_t *s, unsigned hz, bool quiet) {
  *s = (record_status_t){
      .hz = hz, .quiet = quiet, .terminal = isatty(STDERR_FILENO) == 1, .began = clock_now()};
  s->last = s->began;
}

static size_t add_reason(char *text, size_t used, bool *any, const char *name, uint64_t count) {
  if (count == 0 || used >= TEXT) return used;
  used += (size_t)snprintf(text + used, TEXT - used, "%s%s %" PRIu64, *any ? ", " : " (", name, count);
  *any = true;
  return used;
}

/* "12 lost, 3 unattributed (no state 2, bad slot 1), …": what there is of it. */
static void describe_losses(const recorder_counts_t *c, char text[TEXT]) {
  bool any = false;
  size_t used =
      (size_t)snprintf(text, TEXT, "%" PRIu64 " lost, %" PRIu64 " unattributed", c->lost, c->unattributed);
  for (int reason = WALK_OK + 1; reason < WALK_REASONS; reason++)
    used = add_reason(text, used, &any, walk_reason_name((walk_reason_t)reason), c->reasons[reason]);
  used = add_reason(text, used, &any, "not looked into yet", c->unknown);
  if (any && used < TEXT) used += (size_t)snprintf(text + used, TEXT - used, ")");
  if (c->gone > 0 && used < TEXT)
    used += (size_t)snprintf(text + used, TEXT - used, ", %" PRIu64 " gone", c->gone);
  if (c->truncated > 0 && used < TEXT)
    used += (size_t)snprintf(text + used, TEXT - used, ", %" PRIu64 " truncated", c->truncated);
  if (c->overflow > 0 && used < TEXT)
    snprintf(text + used, TEXT - used, ", %" PRIu64 " overflow", c->overflow);
}

void record_status_clear(record_status_t *s) {
  if (s->shown) fputs("\r\033[K", stderr);
  s->shown = false;
}

void record_status_update(record_status_t *s, const recorder_counts_t *counts) {
  int64_t now = clock_now();
  struct winsize size = {0};
  char losses[TEXT], line[2 * TEXT];
  if (!s->samples) s->began = now;
  if (counts->sampled > 0) s->samples = true;
  if (s->quiet || !s->terminal || now < s->due) return;
  s->due = now + EVERY_NS;
  if (now > s->last) s->rate = (double)(counts->samples - s->last_samples) * 1e9 / (double)(now - s->last);
  s->last = now;
  s->last_samples = counts->samples;
  describe_losses(counts, losses);
  snprintf(line, sizeof line, "%.0f s: %" PRIu64 " samples, %.0f/s, %s; %zu of %zu process%s",
           (double)(now - s->began) / 1e9, counts->samples, s->rate, losses, counts->sampled, counts->targets,
           counts->targets == 1 ? "" : "es");
  ioctl(STDERR_FILENO, TIOCGWINSZ, &size); /* longer than the terminal is wide it could not be taken away */
  fprintf(stderr, "\r\033[K%.*s", size.ws_col > 1 ? size.ws_col - 1 : 79, line);
  fflush(stderr);
  s->shown = true;
}

/* A gap may be two periods long, and it takes one to begin with: within less, one that never sleeps may have no sample. */
static void say_why_none(const record_status_t *s, double seconds) {
  enum { PERIODS = 3 };
  if (seconds * s->hz < PERIODS)
    fprintf(stderr,
            "luapulse: no samples: %.3f s are too short for %u in a second; record for longer, or more often "
            "(-F)\n",
            seconds, s->hz);
  else
    fputs(
        "luapulse: no samples: it used no processor time, or hardly any; `luapulse dump` shows what it waits "
        "for\n",
        stderr);
}

void record_status_end(record_status_t *s, const recorder_counts_t *counts) {
  char losses[TEXT];
  double seconds = (double)(clock_now() - s->began) / 1e9;
  record_status_clear(s);
  if (s->quiet) return;
  describe_losses(counts, losses);
  fprintf(stderr, "luapulse: %" PRIu64 " samples in %.1f s of %" PRIu64 " process%s, %s\n", counts->samples,
          seconds, counts->found, counts->found == 1 ? "" : "es", losses);
  if (counts->engine.stops > 0)
    fprintf(stderr, "luapulse: threads were stopped %" PRIu64 " times, for %.0f us on the average\n",
            counts->engine.stops, (double)counts->engine.stopped_ns / 1e3 / (double)counts->engine.stops);
  if (counts->engine.bpf_runs > 0 && counts->samples > 0)
    fprintf(stderr, "luapulse: the program in the kernel took %.1f us for a sample, and %u steps to verify\n",
            (double)counts->engine.bpf_ns / 1e3 / (double)counts->samples, counts->engine.verified);
  if (counts->samples > 0 && counts->engine.late > counts->samples / 10)
    fprintf(stderr, "luapulse: %" PRIu64 " ticks came late: the machine is busy, or the rate too high\n",
            counts->engine.late);
  if (counts->samples == 0 && counts->found > 0) say_why_none(s, seconds);
}
