/* SPDX-License-Identifier: MIT */
/* The tree view: callers to callees, heaviest first, merged by function; see text.h. */
#include <errno.h>
#include <stdlib.h>

#include "format/text.h"
#include "profile/mem.h"

enum { MOST_INDENT = 20 }; /* levels; deeper than this, the depth is written as a number */

typedef struct {
  const text_table_t *table;
  bool *shown; /* by node */
  size_t depth;
} walk_t;

static uint64_t magnitude(int64_t value) {
  return value < 0 ? -(uint64_t)value : (uint64_t)value;
}

static int compare_nodes(const void *left, const void *right, void *context) {
  const int64_t *totals = context;
  uint32_t l = *(const uint32_t *)left, r = *(const uint32_t *)right;
  uint64_t x = magnitude(totals[l]), y = magnitude(totals[r]);
  if (x != y) return x < y ? 1 : -1;
  return (l > r) - (l < r); /* a parent comes first */
}

/* Marks the heaviest nodes and all above them; returns how many with a value were left out. */
static size_t choose(const text_table_t *table, const uint32_t *order, bool *shown) {
  const summary_t *s = table->summary;
  size_t chosen = 0, left_out = 0;
  for (size_t i = 0; i + 1 < s->tree->count; i++) {
    if (shown[order[i]]) continue;
    if (s->totals[order[i]] == 0 && s->self[order[i]] == 0) continue;
    if (table->options->rows != 0 && chosen >= table->options->rows) {
      left_out++;
      continue;
    }
    for (uint32_t node = order[i]; node != 0 && !shown[node]; node = s->tree->nodes[node].parent) {
      shown[node] = true;
      chosen++;
    }
  }
  return left_out;
}

static void enter(void *context, uint32_t node) {
  walk_t *walk = context;
  const text_table_t *table = walk->table;
  size_t depth = walk->depth++;
  if (!walk->shown[node]) return;
  text_put_value(table, table->summary->totals[node]);
  text_put_percent(table, table->summary->totals[node]);
  text_put_value(table, table->summary->self[node]);
  size_t more = text_put_calls(table, table->calls_of_node != NULL ? &table->calls_of_node[node] : NULL,
                               table->summary->totals[node]);
  size_t indent = 2 * (depth < MOST_INDENT ? depth : MOST_INDENT);
  size_t used = 2 * TEXT_VALUE_COLUMNS + TEXT_PERCENT_COLUMNS + 2 + indent + more;
  sink_format(table->sink, "  %*s", (int)indent, "");
  if (depth > MOST_INDENT) {
    sink_format(table->sink, "(depth %zu) ", depth + 1);
    used += 14;
  }
  text_put_row(table, table->summary->tree->nodes[node].key, used);
}

static void leave(void *context, uint32_t node) {
  (void)node;
  ((walk_t *)context)->depth--;
}

void text_put_tree(const text_table_t *table) {
  tree_t *tree = table->summary->tree;
  text_table_t plain = *table;
  plain.name_columns = 0; /* indented names make no column */
  walk_t walk = {.table = &plain, .shown = mem_alloc(tree->count * sizeof *walk.shown)};
  uint32_t *order = mem_alloc(tree->count * sizeof *order);
  if (walk.shown != NULL && order != NULL) {
    for (size_t i = 1; i < tree->count; i++) order[i - 1] = (uint32_t)i;
    qsort_r(order, tree->count - 1, sizeof *order, compare_nodes, table->summary->totals);
    size_t left_out = choose(table, order, walk.shown);
    tree_reorder(tree, order);
    sink_format(table->sink, "%*s%*s%*s", TEXT_VALUE_COLUMNS, "cum", TEXT_PERCENT_COLUMNS, "cum%",
                TEXT_VALUE_COLUMNS, "flat");
    text_put_calls_head(table);
    sink_text(table->sink, "  function, callers above callees\n");
    tree_walk(tree, enter, leave, &walk);
    if (left_out > 0) sink_format(table->sink, "… and %zu more; -n 0 shows all\n", left_out);
  } else {
    sink_fail(table->sink, ENOMEM);
  }
  mem_free(walk.shown);
  mem_free(order);
}
