/* SPDX-License-Identifier: MIT */
/* speedscope's JSON: one "sampled" profile for each sample type, over shared frames. A frame is a function;
 * lines and labels are merged away, so that one function is one box. Weights cannot be negative there: what a
 * difference lost is left out, and the name says so. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "format/format.h"
#include "format/json.h"
#include "format/losses.h"
#include "profile/mem.h"
#include "profile/summary.h"

typedef struct {
  const summary_t *summary;
  sink_t *sink;
  uint32_t *path; /* rows, outermost first */
  size_t depth, room;
  bool failed;   /* the path found no memory */
  bool weights;  /* this walk writes the weights, not the stacks */
  bool any;      /* an element has been written: a comma comes before the next */
  int64_t total; /* of the weights written */
} writer_t;

static void put_text(sink_t *sink, text_t text) {
  json_string(sink, text.data, text.len);
}

static void write_frames(const summary_t *s, sink_t *sink) {
  sink_text(sink, "\"shared\":{\"frames\":[");
  for (size_t i = 0; i < s->row_count; i++) {
    const summary_row_t *row = &s->rows[i];
    sink_text(sink, i == 0 ? "\n{\"name\":" : ",\n{\"name\":");
    put_text(sink, profile_text(s->profile, row->name));
    if (row->file != 0) {
      sink_text(sink, ",\"file\":");
      put_text(sink, profile_text(s->profile, row->file));
    }
    if (row->line > 0) sink_format(sink, ",\"line\":%" PRId64, row->line);
    sink_text(sink, "}");
  }
  sink_text(sink, "]}");
}

static void write_element(writer_t *w, int64_t weight) {
  if (weight <= 0 || w->failed) return;
  if (w->any) sink_text(w->sink, w->weights ? "," : ",\n");
  w->any = true;
  if (w->weights) {
    sink_format(w->sink, "%" PRId64, weight);
    return;
  }
  w->total = tree_sum(w->total, weight);
  sink_text(w->sink, "[");
  for (size_t i = 0; i < w->depth; i++) sink_format(w->sink, i == 0 ? "%" PRIu32 : ",%" PRIu32, w->path[i]);
  sink_text(w->sink, "]");
}

static void enter(void *context, uint32_t node) {
  writer_t *w = context;
  w->depth++;
  if (w->failed || !mem_reserve((void **)&w->path, &w->room, w->depth, sizeof *w->path)) {
    w->failed = true;
    return;
  }
  w->path[w->depth - 1] = w->summary->tree->nodes[node].key;
  write_element(w, w->summary->self[node]);
}

static void leave(void *context, uint32_t node) {
  (void)node;
  ((writer_t *)context)->depth--;
}

static void write_elements(writer_t *w, const char *name, bool weights) {
  sink_format(w->sink, ",\n\"%s\":[", name);
  w->weights = weights;
  w->any = false;
  write_element(w, w->summary->self[0]);
  tree_walk(w->summary->tree, enter, leave, w);
  sink_text(w->sink, "]");
}

static const char *unit_of(text_t unit) {
  static const char *const units[] = {"nanoseconds", "microseconds", "milliseconds", "seconds", "bytes"};
  for (size_t i = 0; i < sizeof units / sizeof *units; i++)
    if (strcmp(unit.data, units[i]) == 0) return units[i];
  return "none";
}

static void write_profile(const summary_t *s, sink_t *sink) {
  profile_type_t type = s->profile->types[s->type];
  writer_t w = {.summary = s, .sink = sink};
  sink_text(sink, "{\"type\":\"sampled\",\"name\":");
  put_text(sink, profile_text(s->profile, type.type));
  sink_format(sink, ",\"unit\":\"%s\",\"startValue\":0", unit_of(profile_text(s->profile, type.unit)));
  write_elements(&w, "samples", false);
  write_elements(&w, "weights", true);
  sink_format(sink, ",\n\"endValue\":%" PRId64 "}", w.total);
  if (w.failed) sink_fail(sink, ENOMEM);
  mem_free(w.path);
}

/* The file's name: speedscope shows it, so it carries what was lost. */
static void write_name(const profile_t *p, bool has_negative, sink_t *sink) {
  sink_t *words = sink_to_memory();
  if (words == NULL) {
    sink_fail(sink, ENOMEM);
    return;
  }
  text_t program = p->program != 0 ? profile_text(p, p->program) : (text_t){"lua", 3};
  sink_write(words, program.data, program.len);
  sink_text(words, ", lost: ");
  losses_write_words(p, words);
  if (has_negative) sink_text(words, "; negative differences are left out");
  size_t len = 0;
  const char *name = sink_memory(words, &len);
  sink_text(sink, ",\n\"name\":");
  json_string(sink, name != NULL ? name : "", len);
  if (!sink_close(words, NULL)) sink_fail(sink, ENOMEM);
}

static void write_head(const profile_t *p, sink_t *sink) {
  bool has_negative = false;
  for (size_t i = 0; i < p->sample_count; i++)
    for (size_t t = 0; t < p->type_count; t++) has_negative |= p->samples[i].values[t] < 0;
  sink_text(sink,
            "{\"$schema\":\"https://www.speedscope.app/file-format-schema.json\",\n\"exporter\":\"luapulse ");
  sink_text(sink, LUAPULSE_VERSION "\"");
  write_name(p, has_negative, sink);
  sink_format(sink, ",\n\"activeProfileIndex\":%zu,\n", p->default_type);
}

void speedscope_write(const profile_t *profile, sink_t *sink) {
  write_head(profile, sink);
  for (size_t i = 0; i < profile->type_count; i++) {
    summary_t *summary = summary_new(profile, i, SUMMARY_FUNCTIONS);
    if (summary == NULL) {
      sink_fail(sink, ENOMEM);
      return;
    }
    if (i == 0) write_frames(summary, sink);
    sink_text(sink, i == 0 ? ",\n\"profiles\":[" : ",\n");
    write_profile(summary, sink);
    summary_free(summary);
  }
  sink_text(sink, profile->type_count == 0 ? "\"shared\":{\"frames\":[]},\"profiles\":[]}\n" : "]}\n");
}
