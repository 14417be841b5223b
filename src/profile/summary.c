/* SPDX-License-Identifier: MIT */
/* Flat and cumulative values; see summary.h.
 *
 * One depth-first walk counts each sample once per row: a node adds its total to its row only when the row is
 * not already on the path above it. */
#include "profile/summary.h"

#include <stdlib.h>
#include <string.h>

#include "profile/intern.h"
#include "profile/mem.h"
#include "profile/trace_values.h"

/* -- rows ------------------------------------------------------------------------------------------------ */

static bool row_equal(const void *owner, const void *wanted, uint32_t position) {
  const summary_row_t *have = &((const summary_t *)owner)->rows[position];
  const summary_row_t *want = wanted;
  return have->name == want->name && have->file == want->file && have->line == want->line;
}

static bool add_rows(summary_t *s, summary_by_t by, intern_t *index) {
  const profile_t *p = s->profile;
  for (size_t i = 0; i < p->frame_count; i++) {
    const profile_function_t *f = &p->functions[p->frames[i].function];
    int64_t line = by == SUMMARY_LINES ? p->frames[i].line : f->start_line;
    summary_row_t row = {.name = f->name, .file = f->file, .line = line};
    uint32_t words[4] = {row.name, row.file, (uint32_t)line, (uint32_t)(line >> 32)};
    uint32_t hash = hash_bytes(words, sizeof words, 7);
    uint32_t at = intern_find(index, hash, row_equal, s, &row);
    if (at == UINT32_MAX) {
      at = (uint32_t)s->row_count;
      if (!intern_add(index, hash, at)) return false;
      s->rows[s->row_count++] = row;
    }
    s->row_of_frame[i] = at;
  }
  return true;
}

/* -- values ---------------------------------------------------------------------------------------------- */

typedef struct {
  summary_t *summary;
  uint32_t *on_path; /* by row: how many nodes of it are on the path */
} count_t;

static void count_enter(void *context, uint32_t node) {
  count_t *count = context;
  summary_t *s = count->summary;
  uint32_t at = s->tree->nodes[node].key;
  summary_row_t *row = &s->rows[at];
  row->flat = tree_sum(row->flat, s->self[node]);
  if (count->on_path[at]++ == 0) row->cum = tree_sum(row->cum, s->totals[node]);
}

static void count_leave(void *context, uint32_t node) {
  count_t *count = context;
  count->on_path[count->summary->tree->nodes[node].key]--;
}

static void add_total(summary_t *s) {
  uint64_t total = 0;
  if (trace_is(s->profile)) { /* negative times are corrections, not differences */
    for (size_t i = 0; i < s->profile->sample_count; i++)
      total += (uint64_t)s->profile->samples[i].values[s->type];
    s->total = (int64_t)total;
    return;
  }
  for (size_t i = 0; i < s->profile->sample_count; i++) {
    int64_t value = s->profile->samples[i].values[s->type];
    if (value < 0) s->has_negative = true;
    total += value < 0 ? -(uint64_t)value : (uint64_t)value;
  }
  s->total = (int64_t)total;
}

static bool fill(summary_t *s, summary_by_t by) {
  const profile_t *p = s->profile;
  intern_t *index = intern_new();
  s->rows = mem_alloc((p->frame_count + 1) * sizeof *s->rows);
  s->row_of_frame = mem_alloc((p->frame_count + 1) * sizeof *s->row_of_frame);
  bool rows = index != NULL && s->rows != NULL && s->row_of_frame != NULL && add_rows(s, by, index);
  intern_free(index);
  if (!rows) return false;

  s->tree = tree_new(p, s->row_of_frame);
  if (s->tree == NULL) return false;
  s->self = mem_alloc(s->tree->count * sizeof *s->self);
  s->totals = mem_alloc(s->tree->count * sizeof *s->totals);
  count_t count = {s, mem_alloc((s->row_count + 1) * sizeof *count.on_path)};
  bool done = s->self != NULL && s->totals != NULL && count.on_path != NULL;
  if (done) {
    tree_values(s->tree, p, s->type, s->self, s->totals);
    tree_walk(s->tree, count_enter, count_leave, &count);
    add_total(s);
  }
  mem_free(count.on_path);
  return done;
}

summary_t *summary_new(const profile_t *p, size_t type, summary_by_t by) {
  summary_t *s = mem_alloc(sizeof *s);
  if (s == NULL) return NULL;
  s->profile = p;
  s->type = type;
  if (fill(s, by)) return s;
  summary_free(s);
  return NULL;
}

void summary_free(summary_t *s) {
  if (s == NULL) return;
  tree_free(s->tree);
  mem_free(s->rows);
  mem_free(s->row_of_frame);
  mem_free(s->self);
  mem_free(s->totals);
  mem_free(s);
}

/* -- ranking --------------------------------------------------------------------------------------------- */

static int compare_magnitudes(int64_t a, int64_t b) { /* the larger first */
  uint64_t x = a < 0 ? -(uint64_t)a : (uint64_t)a, y = b < 0 ? -(uint64_t)b : (uint64_t)b;
  return (x < y) - (x > y);
}

static int compare_texts(text_t a, text_t b) {
  int order = memcmp(a.data, b.data, a.len < b.len ? a.len : b.len);
  return order != 0 ? order : (a.len > b.len) - (a.len < b.len);
}

static int compare_names(const summary_t *s, uint32_t left, uint32_t right) {
  const summary_row_t *a = &s->rows[left], *b = &s->rows[right];
  int order = compare_texts(profile_text(s->profile, a->name), profile_text(s->profile, b->name));
  if (order == 0) order = compare_texts(profile_text(s->profile, a->file), profile_text(s->profile, b->file));
  return order != 0 ? order : (a->line > b->line) - (a->line < b->line);
}

static int compare_rows(const void *left, const void *right, void *context) {
  const summary_t *s = context;
  uint32_t l = *(const uint32_t *)left, r = *(const uint32_t *)right;
  int order = compare_magnitudes(s->rows[l].flat, s->rows[r].flat);
  if (order == 0) order = compare_magnitudes(s->rows[l].cum, s->rows[r].cum);
  return order != 0 ? order : compare_names(s, l, r);
}

uint32_t *summary_ranking(const summary_t *s, size_t *count) {
  uint32_t *rows = mem_alloc((s->row_count + 1) * sizeof *rows);
  if (rows == NULL) return NULL;
  *count = 0;
  for (size_t i = 0; i < s->row_count; i++)
    if (s->rows[i].flat != 0 || s->rows[i].cum != 0) rows[(*count)++] = (uint32_t)i;
  qsort_r(rows, *count, sizeof *rows, compare_rows, (void *)s);
  return rows;
}

static int compare_row_names(const void *left, const void *right, void *context) {
  return compare_names(context, *(const uint32_t *)left, *(const uint32_t *)right);
}

uint32_t *summary_name_ranks(const summary_t *s) {
  uint32_t *rows = mem_alloc((s->row_count + 1) * sizeof *rows);
  uint32_t *ranks = mem_alloc((s->row_count + 1) * sizeof *ranks);
  if (rows != NULL && ranks != NULL) {
    for (size_t i = 0; i < s->row_count; i++) rows[i] = (uint32_t)i;
    qsort_r(rows, s->row_count, sizeof *rows, compare_row_names, (void *)s);
    for (size_t i = 0; i < s->row_count; i++) ranks[rows[i]] = (uint32_t)i;
  } else {
    mem_free(ranks);
    ranks = NULL;
  }
  mem_free(rows);
  return ranks;
}

/* -- edges ----------------------------------------------------------------------------------------------- */

typedef struct {
  const summary_t *summary;
  summary_edge_t *edges;
  uint32_t *edge_of_node; /* UINT32_MAX when the node has none: outermost, or a row calling itself */
  uint32_t *on_path;      /* by edge */
} edges_t;

static bool edge_equal(const void *owner, const void *wanted, uint32_t position) {
  const summary_edge_t *have = &((const edges_t *)owner)->edges[position];
  const summary_edge_t *want = wanted;
  return have->caller == want->caller && have->callee == want->callee;
}

static bool find_edges(edges_t *e, size_t *count, intern_t *index) {
  const tree_t *tree = e->summary->tree;
  *count = 0;
  for (size_t i = 1; i < tree->count; i++) {
    const tree_node_t *node = &tree->nodes[i];
    e->edge_of_node[i] = UINT32_MAX;
    if (node->parent == 0 || tree->nodes[node->parent].key == node->key) continue;
    summary_edge_t edge = {.caller = tree->nodes[node->parent].key, .callee = node->key};
    uint32_t words[2] = {edge.caller, edge.callee};
    uint32_t hash = hash_bytes(words, sizeof words, 8);
    uint32_t at = intern_find(index, hash, edge_equal, e, &edge);
    if (at == UINT32_MAX) {
      at = (uint32_t)*count;
      if (!intern_add(index, hash, at)) return false;
      e->edges[(*count)++] = edge;
    }
    e->edge_of_node[i] = at;
  }
  return true;
}

static void edge_enter(void *context, uint32_t node) {
  edges_t *e = context;
  uint32_t at = e->edge_of_node[node];
  if (at != UINT32_MAX && e->on_path[at]++ == 0)
    e->edges[at].value = tree_sum(e->edges[at].value, e->summary->totals[node]);
}

static void edge_leave(void *context, uint32_t node) {
  edges_t *e = context;
  if (e->edge_of_node[node] != UINT32_MAX) e->on_path[e->edge_of_node[node]]--;
}

static int compare_edges(const void *left, const void *right, void *context) {
  const summary_edge_t *a = left, *b = right;
  int order = compare_magnitudes(a->value, b->value);
  if (order == 0) order = compare_names(context, a->caller, b->caller);
  return order != 0 ? order : compare_names(context, a->callee, b->callee);
}

summary_edge_t *summary_edges(const summary_t *s, size_t *count) {
  size_t found = 0;
  intern_t *index = intern_new();
  edges_t e = {.summary = s};
  e.edges = mem_alloc(s->tree->count * sizeof *e.edges);
  e.edge_of_node = mem_alloc(s->tree->count * sizeof *e.edge_of_node);
  e.on_path = mem_alloc(s->tree->count * sizeof *e.on_path);
  bool done = index != NULL && e.edges != NULL && e.edge_of_node != NULL && e.on_path != NULL &&
              find_edges(&e, &found, index);
  if (done) {
    tree_walk(s->tree, edge_enter, edge_leave, &e);
    *count = 0;
    for (size_t i = 0; i < found; i++)
      if (e.edges[i].value != 0) e.edges[(*count)++] = e.edges[i];
    qsort_r(e.edges, *count, sizeof *e.edges, compare_edges, (void *)s);
  } else {
    mem_free(e.edges);
    e.edges = NULL;
  }
  intern_free(index);
  mem_free(e.edge_of_node);
  mem_free(e.on_path);
  return e.edges;
}
