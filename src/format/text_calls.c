/* SPDX-License-Identifier: MIT */
/* What reports of traced profiles show besides times: calls, and the mean, shortest and longest call; see text.h. */
#include <inttypes.h>

#include "format/text.h"
#include "profile/mem.h"
#include "profile/trace_values.h"

static void count(text_calls_t *into, const int64_t *values) {
  into->calls = tree_sum(into->calls, values[TRACE_CALLS]);
  into->min = trace_least(into->min, values[TRACE_MIN]);
  into->max = trace_greatest(into->max, values[TRACE_MAX]);
}

bool text_calls_fill(text_table_t *table) {
  const summary_t *s = table->summary;
  const profile_t *p = s->profile;
  if (!trace_is(p) || (s->type != TRACE_EXCLUSIVE && s->type != TRACE_EXCLUSIVE_RAW)) return true;
  table->calls_of_row = mem_alloc((s->row_count + 1) * sizeof *table->calls_of_row);
  table->calls_of_node = mem_alloc(s->tree->count * sizeof *table->calls_of_node);
  if (table->calls_of_row == NULL || table->calls_of_node == NULL) return false;
  for (size_t i = 0; i < p->sample_count; i++) {
    uint32_t stack = p->samples[i].stack;
    if (stack == 0) continue;
    count(&table->calls_of_row[s->row_of_frame[p->stacks[stack].frame]], p->samples[i].values);
    count(&table->calls_of_node[s->tree->node_of_stack[stack]], p->samples[i].values);
  }
  return true;
}

void text_calls_free(text_table_t *table) {
  mem_free(table->calls_of_row);
  mem_free(table->calls_of_node);
}

size_t text_put_calls_head(const text_table_t *table) {
  if (table->calls_of_row == NULL) return 0;
  sink_format(table->sink, "%*s%*s%*s%*s", TEXT_VALUE_COLUMNS, "calls", TEXT_VALUE_COLUMNS, "mean",
              TEXT_VALUE_COLUMNS, "min", TEXT_VALUE_COLUMNS, "max");
  return (size_t)4 * TEXT_VALUE_COLUMNS;
}

/* Each in a unit of its own: the shortest call and the longest are often powers of ten apart. */
static void put_time(const text_table_t *table, bool known, int64_t nanos) {
  char text[VALUE_TEXT_BYTES] = "-";
  if (known) value_text(value_scale("nanoseconds", nanos, nanos), nanos, text);
  sink_format(table->sink, " %*s", TEXT_VALUE_COLUMNS - 1, text);
}

size_t text_put_calls(const text_table_t *table, const text_calls_t *calls, int64_t inclusive) {
  if (calls == NULL) return 0;
  sink_format(table->sink, " %*" PRId64, TEXT_VALUE_COLUMNS - 1, calls->calls);
  put_time(table, calls->calls > 0, calls->calls > 0 ? inclusive / calls->calls : 0);
  put_time(table, calls->min != 0, calls->min);
  put_time(table, calls->max != 0, calls->max);
  return (size_t)4 * TEXT_VALUE_COLUMNS;
}
