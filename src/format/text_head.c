/* SPDX-License-Identifier: MIT */
/* The head of a report: what was profiled, how much, how long, and what was lost; see text.h. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <time.h>

#include "format/encoding.h"
#include "format/losses.h"
#include "format/text.h"
#include "profile/heap_types.h"
#include "profile/mem.h"
#include "profile/trace_values.h"

static void put_text(sink_t *sink, text_t text) {
  encoding_write(sink, ENCODING_SHOWN, text.data, text.len);
}

static void put_type(const text_table_t *table) {
  const summary_t *s = table->summary;
  profile_type_t type = s->profile->types[s->type];
  char total[VALUE_TEXT_BYTES];
  sink_text(table->sink, "Type      ");
  put_text(table->sink, profile_text(s->profile, type.type));
  sink_text(table->sink, " in ");
  put_text(table->sink, profile_text(s->profile, type.unit));
  value_text(table->scale, s->total, total);
  sink_format(table->sink, "\nTotal     %s%s\n", total,
              s->has_negative ? " (absolute values: this is a difference)" : "");
}

static void put_times(const profile_t *p, sink_t *sink) {
  char when[64], text[VALUE_TEXT_BYTES];
  time_t seconds = (time_t)(p->time_nanos / 1000000000);
  struct tm tm;
  if (p->time_nanos > 0 && gmtime_r(&seconds, &tm) != NULL &&
      strftime(when, sizeof when, "%Y-%m-%d %H:%M:%S UTC", &tm) > 0)
    sink_format(sink, "Started   %s\n", when);
  value_text(value_scale("nanoseconds", p->duration_nanos, p->duration_nanos), p->duration_nanos, text);
  sink_format(sink, "Duration  %s\n", p->duration_nanos != 0 ? text : "unknown");
}

/* -- samples --------------------------------------------------------------------------------------------- */

/* True when the sample has a value of memory, or of anything else. */
static bool tells_of(const profile_t *p, const profile_sample_t *sample, bool memory) {
  for (size_t i = 0; i < p->type_count; i++)
    if (sample->values[i] != 0 && heap_is_type(p, i) == memory) return true;
  return false;
}

/* How many stacks have a value of the kind that is shown. */
static uint64_t count_stacks(const text_table_t *table, bool memory) {
  const profile_t *p = table->summary->profile;
  bool *seen = mem_alloc(p->stack_count);
  uint64_t count = 0;
  if (seen == NULL) {
    sink_fail(table->sink, ENOMEM);
    return 0;
  }
  for (size_t i = 0; i < p->sample_count; i++) {
    const profile_sample_t *sample = &p->samples[i];
    if (seen[sample->stack] || !tells_of(p, sample, memory)) continue;
    seen[sample->stack] = true;
    count++;
  }
  mem_free(seen);
  return count;
}

static void put_samples(const text_table_t *table) {
  const profile_t *p = table->summary->profile;
  bool traced = trace_is(p), memory = heap_is_type(p, table->summary->type);
  uint32_t counts = traced ? TRACE_CALLS : profile_find_type(p, "samples");
  uint64_t samples = 0, stacks = count_stacks(table, memory);
  if (memory) {
    sink_format(table->sink, "Stacks    %" PRIu64 "\n", stacks);
    return;
  }
  for (size_t i = 0; i < p->sample_count && counts != PROFILE_NONE; i++)
    samples += (uint64_t)p->samples[i].values[counts];
  sink_text(table->sink, traced ? "Calls     " : "Samples   ");
  if (counts != PROFILE_NONE) sink_format(table->sink, "%" PRId64 ", in ", (int64_t)samples);
  sink_format(table->sink, "%" PRIu64 " different stack%s\n", stacks, stacks == 1 ? "" : "s");
}

/* -- comments -------------------------------------------------------------------------------------------- */

/* "heap_alloc_bytes_total: 123456" as "alloc total 120.56kB". */
static void put_told(sink_t *sink, text_t key, int64_t number) {
  static const char bytes[] = "bytes";
  const char *word = key.data + strlen("heap_"), *end = key.data + key.len;
  bool size = false;
  while (word < end) {
    const char *next = memchr(word, '_', (size_t)(end - word));
    size_t len = (size_t)((next != NULL ? next : end) - word);
    if (len == sizeof bytes - 1 && memcmp(word, bytes, len) == 0) {
      size = true;
    } else if (len > 0) {
      sink_write(sink, word, len);
      sink_text(sink, " ");
    }
    word += len + 1;
  }
  char text[VALUE_TEXT_BYTES];
  value_text(value_scale(size ? "bytes" : "count", number, number), number, text);
  sink_text(sink, text);
}

static void put_comments(const profile_t *p, sink_t *sink) {
  text_t key;
  int64_t number;
  bool any = false;
  for (size_t i = 0; i < p->comment_count; i++) {
    if (!heap_parse_comment(profile_text(p, p->comments[i]), &key, &number)) continue;
    sink_text(sink, any ? ", " : "Heap      ");
    put_told(sink, key, number);
    any = true;
  }
  if (any) sink_text(sink, "\n");
  for (size_t i = 0; i < p->comment_count; i++) {
    text_t comment = profile_text(p, p->comments[i]);
    if (heap_parse_comment(comment, &key, &number)) continue;
    sink_text(sink, "Comment   ");
    put_text(sink, comment);
    sink_text(sink, "\n");
  }
}

void text_put_head(const text_table_t *table) {
  const profile_t *p = table->summary->profile;
  sink_t *sink = table->sink;
  sink_text(sink, "Program   ");
  put_text(sink, p->program != 0 ? profile_text(p, p->program) : (text_t){"unknown", 7});
  sink_text(sink, "\n");
  put_type(table);
  put_times(p, sink);
  put_samples(table);
  put_comments(p, sink);
  sink_text(sink, "Lost      ");
  losses_write_words(p, sink);
  sink_text(sink, "\n\n");
}
