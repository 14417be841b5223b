/* SPDX-License-Identifier: MIT */
/* What luapulse top shows of a rolling profile: lines of a table or of a call tree, sorted and filtered. Nothing of terminals. */
#ifndef LUAPULSE_CLI_TOP_VIEW_H
#define LUAPULSE_CLI_TOP_VIEW_H

#include "format/sink.h"
#include "profile/rolling.h"
#include "profile/summary.h"

enum { TOP_FILTER = 64, TOP_TOGGLED = 4096 /* a power of two */ };

typedef enum { TOP_BY_SELF, TOP_BY_TOTAL, TOP_BY_NAME, TOP_SORTS } top_sort_t;

typedef struct {
  uint32_t row;  /* of the summary */
  uint64_t path; /* in the tree: tells a node of one round from those of others */
  unsigned depth;
  bool has_more, open;                      /* in the tree: calls others; they are shown */
  int64_t self, total, self_now, total_now; /* as the sample types have it */
} top_line_t;

/* Nodes of the tree that were opened or closed. */
typedef struct {
  uint64_t path; /* 0: free */
  bool open;
} top_toggled_t;

typedef struct {
  /* to be set by who shows it; then top_view_make() */
  bool by_line, tree, all; /* all: since the beginning, else of late */
  top_sort_t sort;
  char filter[TOP_FILTER]; /* names or files that contain it, in either case; "": everything */

  rolling_t *rolling;
  summary_t *summary, *now; /* the same rows and nodes */
  top_line_t *lines;
  size_t line_count, line_room;
  uint32_t *ranks; /* by row: of names */
  uint64_t *paths; /* by node */
  bool *shown;     /* by node: it fits the filter, or one below does */
  top_toggled_t toggled[TOP_TOGGLED];
  size_t toggled_count;
} top_view_t;

void top_view_begin(top_view_t *view, rolling_t *rolling);
void top_view_end(top_view_t *view);
/* Makes the lines of what the rolling profile has now. False when memory is out. */
bool top_view_make(top_view_t *view);

/* Opens or closes a node of the tree. */
void top_view_toggle(top_view_t *view, uint64_t path, bool open);
/* All of them as they were at first. */
void top_view_forget_toggled(top_view_t *view);

/* -- as text ------------------------------------------------------------------------------------------------------- */

/* "[self% ...]": the names of the columns before the function. */
const char *top_view_head(const top_view_t *view);
enum { TOP_NUMBERS = 96 };
/* The columns before the function, as wide as their head. */
void top_view_numbers(const top_view_t *view, const top_line_t *line, char text[TOP_NUMBERS]);
text_t top_view_name(const top_view_t *view, const top_line_t *line);
/* Where it is: "app.lua:12" into the sink, the end of it where it is longer than `room` columns. */
void top_view_place(const top_view_t *view, const top_line_t *line, size_t room, sink_t *sink);
/* Samples per second, of late or since the beginning; in the last round. */
double top_view_rate(const top_view_t *view);
double top_view_rate_now(const top_view_t *view);

#endif
