/* SPDX-License-Identifier: MIT */
/* callgrind's format, for KCachegrind, QCachegrind and callgrind_annotate: every sample type is an event, a
 * call counts as many times as it was sampled. How recursion is counted is told in callgrind_calls.h.
 *
 * The format has no negative costs: those of a difference are written as zero, and a desc line says so. */
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>

#include "format/callgrind_calls.h"
#include "format/encoding.h"
#include "format/format.h"
#include "format/losses.h"
#include "profile/mem.h"

typedef struct {
  const calls_t *calls;
  sink_t *sink;
  uint8_t *named_files;     /* by string: the file's number has been given its name */
  uint8_t *named_functions; /* by function */
} writer_t;

static void put_text(sink_t *sink, text_t text) {
  encoding_write(sink, ENCODING_SHOWN, text.data, text.len);
}

/* Names are compressed: "(number) name" the first time, "(number)" from then on. */
static void put_file(writer_t *w, const char *key, uint32_t string) {
  text_t file = profile_text(w->calls->profile, string);
  sink_format(w->sink, "%s=(%" PRIu32 ")", key, string + 1);
  if (!w->named_files[string]) {
    sink_text(w->sink, " ");
    put_text(w->sink, file.len > 0 ? file : (text_t){"???", 3});
    w->named_files[string] = 1;
  }
  sink_text(w->sink, "\n");
}

static void put_function(writer_t *w, const char *key, uint32_t function) {
  text_t name = profile_text(w->calls->profile, w->calls->functions[function].name);
  sink_format(w->sink, "%s=(%" PRIu32 ")", key, function + 1);
  if (!w->named_functions[function]) {
    sink_text(w->sink, " ");
    put_text(w->sink, name.len > 0 ? name : (text_t){"???", 3});
    w->named_functions[function] = 1;
  }
  sink_text(w->sink, "\n");
}

static int64_t positive(int64_t value) {
  return value > 0 ? value : 0;
}

/* The type at a place of the events line: the default type comes first, viewers begin with it. */
static size_t type_at(const profile_t *p, size_t place) {
  return place == 0 ? p->default_type : place <= p->default_type ? place - 1 : place;
}

static void put_costs(const writer_t *w, const int64_t *costs) {
  const profile_t *p = w->calls->profile;
  for (size_t i = 0; i < p->type_count; i++)
    sink_format(w->sink, " %" PRId64, positive(costs[type_at(p, i)]));
  sink_text(w->sink, "\n");
}

/* -- head ------------------------------------------------------------------------------------------------ */

/* A word of letters, digits and underscores: what an event may be called. */
static void put_event(sink_t *sink, text_t name) {
  sink_text(sink, " ");
  for (size_t i = 0; i < name.len; i++)
    sink_write(sink, isalnum((unsigned char)name.data[i]) ? &name.data[i] : "_", 1);
  if (name.len == 0) sink_text(sink, "_");
}

static bool has_negative(const profile_t *p) {
  for (size_t i = 0; i < p->sample_count; i++)
    for (size_t t = 0; t < p->type_count; t++)
      if (p->samples[i].values[t] < 0) return true;
  return false;
}

static void put_totals(const writer_t *w) {
  const profile_t *p = w->calls->profile;
  int64_t totals[PROFILE_MAX_TYPES] = {0};
  for (size_t i = 0; i < p->sample_count; i++)
    for (size_t t = 0; t < p->type_count; t++) totals[t] = tree_sum(totals[t], p->samples[i].values[t]);
  sink_text(w->sink, "summary:");
  put_costs(w, totals);
}

static void put_head(const writer_t *w) {
  const profile_t *p = w->calls->profile;
  sink_t *sink = w->sink;
  sink_text(sink, "# callgrind format\nversion: 1\ncreator: luapulse " LUAPULSE_VERSION "\ncmd: ");
  put_text(sink, p->program != 0 ? profile_text(p, p->program) : (text_t){"lua", 3});
  sink_text(sink, "\ndesc: Lost: ");
  losses_write_words(p, sink);
  if (has_negative(p)) sink_text(sink, "\ndesc: Difference: negative values are written as zero");
  for (size_t i = 0; i < p->type_count; i++) {
    profile_type_t type = p->types[type_at(p, i)];
    sink_text(sink, "\nevent:");
    put_event(sink, profile_text(p, type.type));
    sink_text(sink, " : ");
    put_text(sink, profile_text(p, type.type));
    sink_text(sink, " in ");
    put_text(sink, profile_text(p, type.unit));
  }
  sink_text(sink, "\npositions: line\nevents:");
  for (size_t i = 0; i < p->type_count; i++) put_event(sink, profile_text(p, p->types[type_at(p, i)].type));
  sink_text(sink, "\n");
  put_totals(w);
}

/* -- body ------------------------------------------------------------------------------------------------ */

static bool is_zero(const int64_t *costs, size_t columns) {
  for (size_t i = 0; i < columns; i++)
    if (costs[i] != 0) return false;
  return true;
}

static void put_line(writer_t *w, uint32_t row) {
  const calls_t *c = w->calls;
  int64_t line = positive(c->lines->rows[row].line);
  const int64_t *costs = &c->row_costs[row * c->columns];
  if (!is_zero(costs, c->columns)) {
    sink_format(w->sink, "%" PRId64, line);
    put_costs(w, costs);
  }
  for (uint32_t edge = c->first_edge[row]; edge != UINT32_MAX; edge = c->edges[edge].next) {
    const calls_function_t *callee = &c->functions[c->edges[edge].callee];
    costs = &c->edge_costs[edge * c->columns];
    if (is_zero(costs, c->columns)) continue;
    put_file(w, "cfl", callee->file);
    put_function(w, "cfn", c->edges[edge].callee);
    sink_format(w->sink, "calls=%" PRId64 " %" PRId64 "\n%" PRId64, positive(costs[c->columns - 1]),
                positive(callee->start_line), line);
    put_costs(w, costs);
  }
}

static void put_functions(writer_t *w) {
  const calls_t *c = w->calls;
  for (uint32_t f = 0; f < c->function_count; f++) {
    sink_text(w->sink, "\n");
    put_file(w, "fl", c->functions[f].file);
    put_function(w, "fn", f);
    for (uint32_t row = c->functions[f].first_row; row != UINT32_MAX; row = c->next_row[row])
      put_line(w, row);
  }
}

void callgrind_write(const profile_t *profile, sink_t *sink) {
  if (profile->default_type >= profile->type_count) {
    sink_fail(sink, EINVAL);
    return;
  }
  calls_t *calls = calls_new(profile);
  writer_t w = {.calls = calls, .sink = sink};
  if (calls != NULL) {
    w.named_files = mem_alloc(profile->string_count);
    w.named_functions = mem_alloc(calls->function_count + 1);
  }
  if (calls != NULL && w.named_files != NULL && w.named_functions != NULL) {
    put_head(&w);
    put_functions(&w);
  } else {
    sink_fail(sink, ENOMEM);
  }
  mem_free(w.named_files);
  mem_free(w.named_functions);
  calls_free(calls);
}
