/* SPDX-License-Identifier: MIT */
/* The peek view: each matching function with its callers above and its callees below; see text.h. */
#include <errno.h>
#include <string.h>

#include "format/text.h"
#include "profile/mem.h"

enum { VALUES_COLUMNS = 2 * TEXT_VALUE_COLUMNS + 2 * TEXT_PERCENT_COLUMNS };

bool text_peek_matches(const text_table_t *table, uint32_t row) {
  text_t name = profile_text(table->summary->profile, table->summary->rows[row].name);
  const char *peek = table->options->peek;
  return memmem(name.data, name.len, peek, strlen(peek)) != NULL;
}

/* What a caller or a callee shares with the function, and its share of the function's cum. */
static void put_edge(const text_table_t *table, const summary_edge_t *edge, uint32_t other, int64_t cum) {
  char share[VALUE_TEXT_BYTES];
  value_percent(edge->value, cum, share);
  sink_format(table->sink, "%*s", TEXT_VALUE_COLUMNS + TEXT_PERCENT_COLUMNS, "");
  text_put_value(table, edge->value);
  sink_format(table->sink, "%*s |     ", TEXT_PERCENT_COLUMNS, share);
  text_put_row(table, other, VALUES_COLUMNS + 7);
}

/* The edges by their ends: lists in the order of the edges, heaviest first. Positions are counted from 1. */
typedef struct {
  const summary_edge_t *edges;
  uint32_t *into, *out_of;           /* by row: the first edge */
  uint32_t *next_into, *next_out_of; /* by edge */
} ends_t;

static void free_ends(ends_t *ends) {
  mem_free(ends->into);
  mem_free(ends->out_of);
  mem_free(ends->next_into);
  mem_free(ends->next_out_of);
}

static bool link_ends(ends_t *ends, const summary_edge_t *edges, size_t edge_count, size_t row_count) {
  *ends = (ends_t){.edges = edges};
  ends->into = mem_alloc((row_count + 1) * sizeof *ends->into);
  ends->out_of = mem_alloc((row_count + 1) * sizeof *ends->out_of);
  ends->next_into = mem_alloc((edge_count + 1) * sizeof *ends->next_into);
  ends->next_out_of = mem_alloc((edge_count + 1) * sizeof *ends->next_out_of);
  if (ends->into == NULL || ends->out_of == NULL || ends->next_into == NULL || ends->next_out_of == NULL)
    return false;
  for (size_t i = edge_count; i-- > 0;) {
    ends->next_into[i] = ends->into[edges[i].callee];
    ends->into[edges[i].callee] = (uint32_t)i + 1;
    ends->next_out_of[i] = ends->out_of[edges[i].caller];
    ends->out_of[edges[i].caller] = (uint32_t)i + 1;
  }
  return true;
}

static void put_function(const text_table_t *table, uint32_t row, const ends_t *ends) {
  const summary_row_t *r = &table->summary->rows[row];
  for (uint32_t at = ends->into[row]; at != 0; at = ends->next_into[at - 1])
    put_edge(table, &ends->edges[at - 1], ends->edges[at - 1].caller, r->cum);
  text_put_value(table, r->flat);
  text_put_percent(table, r->flat);
  text_put_value(table, r->cum);
  text_put_percent(table, r->cum);
  sink_text(table->sink, " | ");
  text_put_row(table, row, VALUES_COLUMNS + 3);
  for (uint32_t at = ends->out_of[row]; at != 0; at = ends->next_out_of[at - 1])
    put_edge(table, &ends->edges[at - 1], ends->edges[at - 1].callee, r->cum);
}

static void put_functions(const text_table_t *table, const uint32_t *ranking, size_t count,
                          const ends_t *ends) {
  size_t shown = 0;
  sink_format(table->sink, "%*s%*s%*s%*s   callers, function, callees\n", TEXT_VALUE_COLUMNS, "flat",
              TEXT_PERCENT_COLUMNS, "flat%", TEXT_VALUE_COLUMNS, "cum", TEXT_PERCENT_COLUMNS, "cum%");
  for (size_t i = 0; i < count; i++) {
    if (!text_peek_matches(table, ranking[i])) continue;
    if (table->options->rows != 0 && shown == table->options->rows) {
      sink_text(table->sink, "… and more; -n 0 shows all\n");
      break;
    }
    if (shown++ > 0) sink_text(table->sink, "----------\n");
    put_function(table, ranking[i], ends);
  }
}

void text_put_peek(const text_table_t *table) {
  ends_t ends = {.edges = NULL};
  size_t edge_count = 0, row_count = 0;
  summary_edge_t *edges = summary_edges(table->summary, &edge_count);
  uint32_t *ranking = summary_ranking(table->summary, &row_count);
  if (edges != NULL && ranking != NULL && link_ends(&ends, edges, edge_count, table->summary->row_count))
    put_functions(table, ranking, row_count, &ends);
  else
    sink_fail(table->sink, ENOMEM);
  free_ends(&ends);
  mem_free(edges);
  mem_free(ranking);
}
