/* SPDX-License-Identifier: MIT */
/* A profile as tables for people: what `luapulse report` shows and text files hold. */
#ifndef LUAPULSE_FORMAT_TEXT_H
#define LUAPULSE_FORMAT_TEXT_H

#include "format/sink.h"
#include "format/value.h"
#include "profile/failure.h"
#include "profile/profile.h"
#include "profile/summary.h"

typedef enum {
  TEXT_TOP,  /* flat and cum by function */
  TEXT_TREE, /* callers to callees */
  TEXT_PEEK, /* callers and callees of the functions whose name contains `peek` */
} text_view_t;

typedef struct {
  text_view_t view;
  summary_by_t by;
  size_t type;      /* sample type */
  size_t rows;      /* the heaviest so many, 0 for all */
  size_t width;     /* columns; longer lines are cut, 0 for no limit */
  const char *peek; /* for TEXT_PEEK */
} text_options_t;

/* Head, losses, table. Names cannot drive a terminal: see ENCODING_SHOWN. False only when `peek` matches
 * nothing, and then nothing is written; other failures are sticky in the sink. */
bool text_report(const profile_t *profile, const text_options_t *options, sink_t *sink, failure_t *failure);

/* -- text in columns ------------------------------------------------------------------------------------- */

/* How many columns the text takes, as ENCODING_SHOWN. */
size_t text_columns(text_t text);
/* Writes at most `room` columns of the text: its beginning, or its end when `keep_end` (paths tell most
 * there); what is cut is marked by "…". Returns the columns written. */
size_t text_put_cut(sink_t *sink, text_t text, size_t room, bool keep_end);
/* A name, filled up to `name_columns`, where it is (no file: nothing; line 0: the file alone), and the end of the line, in at most
 * `left` columns; SIZE_MAX is no limit. */
void text_put_place(sink_t *sink, text_t name, text_t file, int64_t line_number, size_t left,
                    size_t name_columns);

/* -- shared by the views --------------------------------------------------------------------------------- */

/* Of traced profiles; times in nanoseconds, 0 when no call has returned. */
typedef struct {
  int64_t calls, min, max;
} text_calls_t;

typedef struct {
  const summary_t *summary;
  const text_options_t *options;
  sink_t *sink;
  value_scale_t scale;
  size_t name_columns;                        /* width of the function column when a file column follows */
  text_calls_t *calls_of_row, *calls_of_node; /* NULL: the profile tells of no calls */
} text_table_t;

/* False when memory is out. */
bool text_calls_fill(text_table_t *table);
void text_calls_free(text_table_t *table);
/* Both return the columns they took. `calls` NULL: none. */
size_t text_put_calls_head(const text_table_t *table);
size_t text_put_calls(const text_table_t *table, const text_calls_t *calls, int64_t inclusive);

void text_put_head(const text_table_t *table);

/* The value columns of a table: right-aligned numbers. */
void text_put_value(const text_table_t *table, int64_t value);
void text_put_percent(const text_table_t *table, int64_t value);
/* The function and where it is, in what is left of the line after `used` columns, and the end of the line. */
void text_put_row(const text_table_t *table, uint32_t row, size_t used);

void text_put_tree(const text_table_t *table);
void text_put_peek(const text_table_t *table);
/* True when the row's name contains the text to peek at. */
bool text_peek_matches(const text_table_t *table, uint32_t row);

enum { TEXT_VALUE_COLUMNS = 11, TEXT_PERCENT_COLUMNS = 9 };

#endif
