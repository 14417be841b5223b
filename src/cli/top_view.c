/* SPDX-License-Identifier: MIT */
/* Lines of a live view; see top_view.h. */
#include "cli/top_view.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format/text.h"
#include "profile/intern.h"
#include "profile/mem.h"

enum { OPEN_FROM = 10 /* percent: nodes of the tree with so much are open at first */ };

void top_view_begin(top_view_t *v, rolling_t *rolling) {
  memset(v, 0, sizeof *v);
  v->rolling = rolling;
}

static void forget(top_view_t *v) {
  summary_free(v->summary);
  summary_free(v->now);
  mem_free(v->ranks);
  mem_free(v->paths);
  mem_free(v->shown);
  v->summary = v->now = NULL;
  v->ranks = NULL;
  v->paths = NULL;
  v->shown = NULL;
  v->line_count = 0;
}

void top_view_end(top_view_t *v) {
  forget(v);
  mem_free(v->lines);
}

/* -- which are open --------------------------------------------------------------------------------------------------- */

static top_toggled_t *toggled(top_view_t *v, uint64_t path) {
  size_t at = (size_t)(path >> 20) & (TOP_TOGGLED - 1);
  while (v->toggled[at].path != 0 && v->toggled[at].path != path) at = (at + 1) & (TOP_TOGGLED - 1);
  return &v->toggled[at];
}

void top_view_toggle(top_view_t *v, uint64_t path, bool open) {
  top_toggled_t *t = toggled(v, path);
  if (t->path == 0 && v->toggled_count >= TOP_TOGGLED - TOP_TOGGLED / 4)
    return; /* more than anybody will look at */
  v->toggled_count += t->path == 0;
  *t = (top_toggled_t){path, open};
}

void top_view_forget_toggled(top_view_t *v) {
  memset(v->toggled, 0, sizeof v->toggled);
  v->toggled_count = 0;
}

/* What was open once stays so: shares that vary would make nodes open and close. */
static bool is_open(top_view_t *v, uint32_t node) {
  const top_toggled_t *t = toggled(v, v->paths[node]);
  if (t->path != 0) return t->open;
  if (v->summary->totals[node] < v->summary->total / 100 * OPEN_FROM) return false;
  top_view_toggle(v, v->paths[node], true);
  return true;
}

/* -- the table -------------------------------------------------------------------------------------------------------- */

static bool contains(text_t text, const char *part) {
  return strcasestr(text.data, part) != NULL;
}

static bool fits(const top_view_t *v, uint32_t row) {
  const summary_row_t *r = &v->summary->rows[row];
  const profile_t *p = v->summary->profile;
  return v->filter[0] == '\0' || contains(profile_text(p, r->name), v->filter) ||
         contains(profile_text(p, r->file), v->filter);
}

static bool add_line(top_view_t *v, top_line_t line) {
  if (!mem_reserve((void **)&v->lines, &v->line_room, v->line_count + 1, sizeof *v->lines)) return false;
  v->lines[v->line_count++] = line;
  return true;
}

static int64_t sort_value(const top_view_t *v, int64_t self, int64_t total) {
  if (v->sort == TOP_BY_NAME) return 0;
  return v->tree || v->sort == TOP_BY_TOTAL ? total : self;
}

static int compare_lines(const void *left, const void *right, void *context) {
  const top_view_t *v = context;
  const top_line_t *a = left, *b = right;
  int64_t x = sort_value(v, a->self, a->total), y = sort_value(v, b->self, b->total);
  if (x != y) return x < y ? 1 : -1;
  if (v->sort == TOP_BY_SELF && a->total != b->total) return a->total < b->total ? 1 : -1;
  return v->ranks[a->row] < v->ranks[b->row] ? -1 : 1;
}

/* Of what has faded away nobody wants to know: less than a hundredth of a sample. */
static int64_t least_of(const top_view_t *v) {
  return v->all ? 1 : v->summary->profile->period / 100 + 1;
}

static bool make_table(top_view_t *v) {
  const summary_t *s = v->summary;
  for (uint32_t row = 0; row < s->row_count; row++) {
    top_line_t line = {.row = row,
                       .self = s->rows[row].flat,
                       .total = s->rows[row].cum,
                       .self_now = v->now->rows[row].flat,
                       .total_now = v->now->rows[row].cum};
    if (line.total < least_of(v) || !fits(v, row)) continue;
    if (!add_line(v, line)) return false;
  }
  if (v->line_count > 0) qsort_r(v->lines, v->line_count, sizeof *v->lines, compare_lines, v);
  return true;
}

/* -- the tree ---------------------------------------------------------------------------------------------------------- */

static uint64_t mix(uint64_t path, text_t text) {
  uint64_t hash = hash_bytes(text.data, text.len, (uint32_t)path);
  return (path ^ hash) * 0x9e3779b97f4a7c15u + (path >> 31);
}

static void find_paths(top_view_t *v) {
  const summary_t *s = v->summary;
  const profile_t *p = s->profile;
  for (size_t i = 1; i < s->tree->count; i++) {
    const tree_node_t *node = &s->tree->nodes[i];
    const summary_row_t *row = &s->rows[node->key];
    uint64_t path = mix(mix(v->paths[node->parent] + (uint64_t)row->line, profile_text(p, row->name)),
                        profile_text(p, row->file));
    v->paths[i] = path != 0 ? path : 1;
  }
}

static void find_shown(top_view_t *v) {
  const summary_t *s = v->summary;
  for (size_t i = s->tree->count; i-- > 1;) {
    const tree_node_t *node = &s->tree->nodes[i];
    if (s->totals[i] < least_of(v)) continue;
    if (fits(v, node->key)) v->shown[i] = true;
    if (v->shown[i] && v->filter[0] != '\0') v->shown[node->parent] = true;
  }
}

static int compare_nodes(const void *left, const void *right, void *context) {
  const top_view_t *v = context;
  const summary_t *s = v->summary;
  uint32_t l = *(const uint32_t *)left, r = *(const uint32_t *)right;
  int64_t x = sort_value(v, s->self[l], s->totals[l]), y = sort_value(v, s->self[r], s->totals[r]);
  if (x != y) return x < y ? 1 : -1;
  uint32_t a = v->ranks[s->tree->nodes[l].key], b = v->ranks[s->tree->nodes[r].key];
  return a != b ? (a < b ? -1 : 1) : (l > r) - (l < r);
}

typedef struct {
  top_view_t *view;
  unsigned depth;
  unsigned closed_at; /* nodes deeper than this are not shown; UINT_MAX: all are */
  bool ok;
} walk_t;

static bool has_shown_child(const top_view_t *v, uint32_t node) {
  const tree_t *tree = v->summary->tree;
  for (uint32_t child = tree->nodes[node].first_child; child != 0; child = tree->nodes[child].next_sibling)
    if (v->shown[child]) return true;
  return false;
}

static void enter(void *context, uint32_t node) {
  walk_t *w = context;
  top_view_t *v = w->view;
  const summary_t *s = v->summary;
  unsigned depth = w->depth++;
  if (depth > w->closed_at || !w->ok) return;
  w->closed_at = depth; /* unless it is open */
  if (!v->shown[node]) return;
  top_line_t line = {.row = s->tree->nodes[node].key,
                     .path = v->paths[node],
                     .depth = depth,
                     .has_more = has_shown_child(v, node),
                     .self = s->self[node],
                     .total = s->totals[node],
                     .self_now = v->now->self[node],
                     .total_now = v->now->totals[node]};
  line.open = line.has_more && (is_open(v, node) || (v->filter[0] != '\0' && !fits(v, line.row)));
  if (line.open) w->closed_at = UINT32_MAX;
  w->ok = add_line(v, line);
}

static void leave(void *context, uint32_t node) {
  walk_t *w = context;
  (void)node;
  if (--w->depth <= w->closed_at) w->closed_at = UINT32_MAX;
}

static bool make_tree(top_view_t *v) {
  tree_t *tree = v->summary->tree;
  uint32_t *order = mem_alloc(tree->count * sizeof *order);
  v->paths = mem_alloc(tree->count * sizeof *v->paths);
  v->shown = mem_alloc(tree->count * sizeof *v->shown);
  walk_t walk = {.view = v, .closed_at = UINT32_MAX, .ok = true};
  if (order == NULL || v->paths == NULL || v->shown == NULL) {
    mem_free(order);
    return false;
  }
  find_paths(v);
  find_shown(v);
  for (size_t i = 1; i < tree->count; i++) order[i - 1] = (uint32_t)i;
  qsort_r(order, tree->count - 1, sizeof *order, compare_nodes, v);
  tree_reorder(tree, order);
  mem_free(order);
  tree_walk(tree, enter, leave, &walk);
  return walk.ok;
}

bool top_view_make(top_view_t *v) {
  summary_by_t by = v->by_line ? SUMMARY_LINES : SUMMARY_FUNCTIONS;
  forget(v);
  v->summary = summary_new(v->rolling->profile, v->all ? ROLLING_ALL : ROLLING_RECENT, by);
  v->now = summary_new(v->rolling->profile, ROLLING_NOW, by);
  if (v->summary != NULL && v->now != NULL) v->ranks = summary_name_ranks(v->summary);
  return v->ranks != NULL && (v->tree ? make_tree(v) : make_table(v));
}

/* -- as text ------------------------------------------------------------------------------------------------------- */

const char *top_view_head(const top_view_t *v) {
  return v->tree ? " total%  total/s     now  self%   self/s     now"
                 : "  self%   self/s     now total%  total/s     now";
}

static double per_second(const top_view_t *v, int64_t value, rolling_type_t type) {
  double seconds = v->rolling->seconds[type];
  int64_t period = v->rolling->profile->period;
  return seconds > 0 && period > 0 ? (double)value / (double)period / seconds : 0;
}

static double percent(const top_view_t *v, int64_t value) {
  return v->summary->total > 0 ? (double)value * 100 / (double)v->summary->total : 0;
}

/* Nothing at all is told from little. */
static size_t put_number(char *text, size_t size, int width, double value) {
  int made = value > 0 ? snprintf(text, size, "%*.1f", width, value) : snprintf(text, size, "%*d", width, 0);
  return made > 0 && (size_t)made < size ? (size_t)made : size;
}

void top_view_numbers(const top_view_t *v, const top_line_t *l, char text[TOP_NUMBERS]) {
  static const int widths[] = {7, 9, 8, 7, 9, 8}; /* as in top_view_head() */
  rolling_type_t type = v->all ? ROLLING_ALL : ROLLING_RECENT;
  int64_t first = v->tree ? l->total : l->self, second = v->tree ? l->self : l->total;
  int64_t first_now = v->tree ? l->total_now : l->self_now, second_now = v->tree ? l->self_now : l->total_now;
  const double values[] = {
      percent(v, first),  per_second(v, first, type),  per_second(v, first_now, ROLLING_NOW),
      percent(v, second), per_second(v, second, type), per_second(v, second_now, ROLLING_NOW)};
  size_t used = 0;
  for (size_t i = 0; i < sizeof values / sizeof values[0]; i++)
    used += put_number(text + used, TOP_NUMBERS - used, widths[i], values[i]);
}

text_t top_view_name(const top_view_t *v, const top_line_t *line) {
  text_t name = profile_text(v->summary->profile, v->summary->rows[line->row].name);
  return name.len > 0 ? name : (text_t){"?", 1};
}

void top_view_place(const top_view_t *v, const top_line_t *line, size_t room, sink_t *sink) {
  const summary_row_t *row = &v->summary->rows[line->row];
  text_t file = profile_text(v->summary->profile, row->file);
  char number[32] = "";
  if (file.len == 0 || room < 8) return;
  if (row->line > 0) snprintf(number, sizeof number, ":%" PRId64, row->line);
  text_put_cut(sink, file, room > strlen(number) + 4 ? room - strlen(number) : 4, true);
  sink_text(sink, number);
}

double top_view_rate(const top_view_t *v) {
  return v->summary != NULL ? per_second(v, v->summary->total, v->all ? ROLLING_ALL : ROLLING_RECENT) : 0;
}

double top_view_rate_now(const top_view_t *v) {
  return v->now != NULL ? per_second(v, v->now->total, ROLLING_NOW) : 0;
}
