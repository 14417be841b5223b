/* SPDX-License-Identifier: MIT */
/* A report and its main table; see text.h. The head is in text_head.c, the other views in text_tree.c and text_peek.c. */
#include "format/text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "format/encoding.h"
#include "format/format.h"
#include "profile/heap_types.h"
#include "profile/mem.h"
#include "profile/trace_values.h"

enum { MOST_NAME_COLUMNS = 40 };

/* -- text in columns ------------------------------------------------------------------------------------- */

size_t text_columns(text_t text) {
  size_t columns = 0;
  for (size_t at = 0; at < text.len;) {
    encoding_piece_t piece = encoding_piece(ENCODING_SHOWN, text.data + at, text.len - at);
    columns += piece.columns;
    at += piece.taken;
  }
  return columns;
}

size_t text_put_cut(sink_t *sink, text_t text, size_t room, bool keep_end) {
  size_t columns = text_columns(text);
  bool cut = columns > room;
  size_t skip = cut && keep_end ? columns - room + 1 : 0; /* columns to leave out in front */
  size_t keep = cut && !keep_end ? room - 1 : SIZE_MAX, seen = 0, written = 0;
  if (cut && keep_end) written++, sink_text(sink, "…");
  for (size_t at = 0; at < text.len && written < keep;) {
    encoding_piece_t piece = encoding_piece(ENCODING_SHOWN, text.data + at, text.len - at);
    at += piece.taken;
    seen += piece.columns;
    if (seen <= skip) continue;
    if (piece.columns > keep - written) break;
    sink_write(sink, piece.bytes, piece.len);
    written += piece.columns;
  }
  if (cut && !keep_end) written++, sink_text(sink, "…");
  return written;
}

static void put_spaces(sink_t *sink, size_t count) {
  sink_format(sink, "%*s", (int)count, "");
}

void text_put_value(const text_table_t *table, int64_t value) {
  char text[VALUE_TEXT_BYTES];
  value_text(table->scale, value, text);
  sink_format(table->sink, " %*s", TEXT_VALUE_COLUMNS - 1, text); /* apart even when too wide */
}

void text_put_percent(const text_table_t *table, int64_t value) {
  char text[VALUE_TEXT_BYTES];
  value_percent(value, table->summary->total, text);
  sink_format(table->sink, " %*s", TEXT_PERCENT_COLUMNS - 1, text);
}

void text_put_place(sink_t *sink, text_t name, text_t file, int64_t line_number, size_t left,
                    size_t name_columns) {
  char line[32] = "";
  if (line_number > 0) snprintf(line, sizeof line, ":%" PRId64, line_number);
  if (name.len == 0) name = (text_t){"?", 1};
  if (left < 20) left = 20; /* too narrow a terminal: let it wrap */
  size_t place = text_columns(file) + (file.len > 0 ? strlen(line) + 2 : 0);
  size_t room = left; /* for the name: all that the place leaves, half of the line at least */
  if (left != SIZE_MAX && place > 0) room = place < left / 2 ? left - place : left - left / 2;
  size_t written = text_put_cut(sink, name, room, false);
  if (file.len > 0) {
    size_t pad = name_columns < room ? name_columns : room;
    if (written < pad) put_spaces(sink, pad - written), written = pad;
    sink_text(sink, "  ");
    size_t tail = strlen(line) + 2;
    text_put_cut(sink, file,
                 left == SIZE_MAX            ? SIZE_MAX
                 : left - written > tail + 8 ? left - written - tail
                                             : 8,
                 true);
    sink_text(sink, line);
  }
  sink_text(sink, "\n");
}

void text_put_row(const text_table_t *table, uint32_t row, size_t used) {
  const profile_t *p = table->summary->profile;
  const summary_row_t *r = &table->summary->rows[row];
  size_t width = table->options->width;
  text_put_place(table->sink, profile_text(p, r->name), profile_text(p, r->file), r->line,
                 width == 0     ? SIZE_MAX
                 : width > used ? width - used
                                : 0,
                 table->name_columns);
}

/* -- the table ------------------------------------------------------------------------------------------- */

/* A scale and a width that suit the rows shown. */
static void fit(text_table_t *table, const uint32_t *ranking, size_t count) {
  const summary_t *s = table->summary;
  uint64_t smallest = UINT64_MAX;
  for (size_t i = 0; i < count; i++) {
    const summary_row_t *row = &s->rows[ranking[i]];
    int64_t value = row->flat != 0 ? row->flat : row->cum;
    uint64_t magnitude = value < 0 ? -(uint64_t)value : (uint64_t)value;
    if (magnitude != 0 && magnitude < smallest) smallest = magnitude;
    size_t columns = text_columns(profile_text(s->profile, row->name));
    if (columns > MOST_NAME_COLUMNS) columns = MOST_NAME_COLUMNS;
    if (columns > table->name_columns) table->name_columns = columns;
  }
  int64_t least = smallest > INT64_MAX ? s->total : (int64_t)smallest;
  /* calls of nanoseconds stand beside calls of seconds: there the smallest need not be told to the last digit */
  if (trace_is(s->profile) && !heap_is_type(s->profile, s->type) && least < s->total / 100000)
    least = s->total / 100000;
  text_t unit = profile_text(s->profile, s->profile->types[s->type].unit);
  table->scale = value_scale(unit.data, least, s->total);
}

static void put_top(const text_table_t *table, const uint32_t *ranking, size_t shown, size_t count) {
  const summary_t *s = table->summary;
  int64_t sum = 0;
  sink_format(table->sink, "%*s%*s%*s%*s%*s", TEXT_VALUE_COLUMNS, "flat", TEXT_PERCENT_COLUMNS, "flat%",
              TEXT_PERCENT_COLUMNS, "sum%", TEXT_VALUE_COLUMNS, "cum", TEXT_PERCENT_COLUMNS, "cum%");
  text_put_calls_head(table);
  sink_text(table->sink, "  function\n");
  for (size_t i = 0; i < shown; i++) {
    const summary_row_t *row = &s->rows[ranking[i]];
    sum = tree_sum(sum, row->flat);
    text_put_value(table, row->flat);
    text_put_percent(table, row->flat);
    text_put_percent(table, sum);
    text_put_value(table, row->cum);
    text_put_percent(table, row->cum);
    size_t more = text_put_calls(table, table->calls_of_row != NULL ? &table->calls_of_row[ranking[i]] : NULL,
                                 row->cum);
    sink_text(table->sink, "  ");
    text_put_row(table, ranking[i], 2 * TEXT_VALUE_COLUMNS + 3 * TEXT_PERCENT_COLUMNS + 2 + more);
  }
  if (shown < count) sink_format(table->sink, "… and %zu more; -n 0 shows all\n", count - shown);
}

static bool put_view(text_table_t *table, const uint32_t *ranking, size_t count, failure_t *failure) {
  const text_options_t *options = table->options;
  size_t shown = options->rows == 0 || options->rows > count ? count : options->rows, matching = 0;
  fit(table, ranking, options->view == TEXT_TOP ? shown : count);
  if (options->view == TEXT_PEEK) {
    while (matching < count && !text_peek_matches(table, ranking[matching])) matching++;
    if (matching == count)
      return failure_set(failure, "no function with a value has '%s' in its name", options->peek);
  }
  text_put_head(table);
  if (options->view == TEXT_TREE)
    text_put_tree(table);
  else if (options->view == TEXT_PEEK)
    text_put_peek(table);
  else
    put_top(table, ranking, shown, count);
  return true;
}

bool text_report(const profile_t *profile, const text_options_t *options, sink_t *sink, failure_t *failure) {
  if (options->type >= profile->type_count) {
    sink_fail(sink, EINVAL);
    return true;
  }
  summary_t *summary = summary_new(profile, options->type, options->by);
  size_t count;
  uint32_t *ranking = summary != NULL ? summary_ranking(summary, &count) : NULL;
  text_table_t table = {.summary = summary, .options = options, .sink = sink};
  bool done = true;
  if (ranking != NULL && text_calls_fill(&table))
    done = put_view(&table, ranking, count, failure);
  else
    sink_fail(sink, ENOMEM);
  text_calls_free(&table);
  mem_free(ranking);
  summary_free(summary);
  return done;
}

void text_write(const profile_t *profile, sink_t *sink) {
  text_options_t options = {.view = TEXT_TOP, .by = SUMMARY_FUNCTIONS, .type = profile->default_type};
  text_report(profile, &options, sink, NULL);
}
