/* SPDX-License-Identifier: MIT */
/* The timeline of a traced profile in the trace event format of chrome://tracing, which Perfetto and speedscope read: a complete
 * event for each call, a track for each coroutine. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "format/format.h"
#include "format/json.h"
#include "format/losses.h"
#include "profile/mem.h"

/* In the order in which calls began, callers before their callees: readers need no more than one pass. */
static int compare(const void *left, const void *right) {
  const profile_event_t *l = left, *r = right;
  if (l->start != r->start) return l->start < r->start ? -1 : 1;
  return (l->duration < r->duration) - (l->duration > r->duration);
}

static void put_text(sink_t *sink, const profile_t *p, uint32_t string) {
  text_t text = profile_text(p, string);
  json_string(sink, text.data, text.len);
}

/* Microseconds, which is what the format counts in, to the nanosecond. */
static void put_time(sink_t *sink, const char *key, int64_t nanos) {
  sink_format(sink, ",\"%s\":%" PRId64 ".%03d", key, nanos / 1000, (int)(nanos % 1000));
}

static void put_event(const profile_t *p, const profile_event_t *event, int64_t zero, sink_t *sink) {
  const profile_function_t *function = &p->functions[event->function];
  sink_text(sink, ",\n{\"ph\":\"X\",\"cat\":\"lua\",\"name\":");
  put_text(sink, p, function->name);
  sink_format(sink, ",\"pid\":1,\"tid\":%" PRIu32, event->track);
  put_time(sink, "ts", event->start - zero);
  put_time(sink, "dur", event->duration);
  sink_text(sink, ",\"args\":{\"file\":");
  put_text(sink, p, function->file);
  sink_format(sink, ",\"line\":%" PRId64 "}}", function->start_line);
}

static void put_tracks(const profile_event_t *events, size_t count, sink_t *sink) {
  uint32_t most = 0;
  for (size_t i = 0; i < count; i++) most = events[i].track > most ? events[i].track : most;
  bool *seen = mem_alloc((size_t)most + 1);
  if (seen == NULL) {
    sink_fail(sink, ENOMEM);
    return;
  }
  for (size_t i = 0; i < count; i++) {
    uint32_t track = events[i].track;
    if (seen[track]) continue;
    seen[track] = true;
    sink_format(
        sink, ",\n{\"ph\":\"M\",\"pid\":1,\"tid\":%" PRIu32 ",\"name\":\"thread_name\",\"args\":{\"name\":\"",
        track);
    if (track == 1)
      sink_text(sink, "main\"}}");
    else
      sink_format(sink, "coroutine %" PRIu32 "\"}}", track - 1);
  }
  mem_free(seen);
}

const char *chrome_refuses(const profile_t *p) {
  return p->event_count > 0
             ? NULL
             : "there is no timeline in this profile: it is made by tracing with trace_events (luapulse run "
               "--trace), and only this format keeps it";
}

void chrome_write(const profile_t *p, sink_t *sink) {
  profile_event_t *events = mem_alloc(p->event_count * sizeof *events);
  if (events == NULL) {
    sink_fail(sink, ENOMEM);
    return;
  }
  for (size_t i = 0; i < p->event_count; i++) events[i] = p->events[i];
  qsort(events, p->event_count, sizeof *events, compare);
  sink_text(sink, "{\"displayTimeUnit\":\"ns\",\"otherData\":{\"producer\":\"luapulse\",\"program\":");
  put_text(sink, p, p->program);
  sink_format(sink, ",\"calls\":\"%" PRIu64 "\",\"kept\":\"%zu\",\"losses\":", p->event_total,
              p->event_count);
  char losses[LOSSES_LINE_BYTES];
  losses_line(p, losses);
  json_string(sink, losses, strlen(losses));
  sink_text(sink, "},\"traceEvents\":[\n");
  sink_text(sink, "{\"ph\":\"M\",\"pid\":1,\"name\":\"process_name\",\"args\":{\"name\":");
  put_text(sink, p, p->program);
  sink_text(sink, "}}");
  put_tracks(events, p->event_count, sink);
  for (size_t i = 0; i < p->event_count; i++) put_event(p, &events[i], events[0].start, sink);
  sink_text(sink, "\n]}\n");
  mem_free(events);
}
