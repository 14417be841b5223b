/* SPDX-License-Identifier: MIT */
/* Folded stacks, written: the value of the default sample type, one line a stack, sorted by frame; see
 * folded.h. Labels are merged away. Stacks are written straight off a walk over the tree: no line is held in
 * memory. */
#include "format/folded.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "format/encoding.h"
#include "format/format.h"
#include "format/losses.h"
#include "profile/mem.h"
#include "profile/summary.h"

typedef struct {
  const summary_t *summary;
  sink_t *sink;
  uint32_t *path; /* rows, outermost first */
  size_t depth, room;
  bool failed; /* the path found no memory: nothing more is written */
} writer_t;

/* Writes the text with `hidden` escaped wherever the character before it is `before` ('\0': anywhere). */
static void write_hiding(sink_t *sink, text_t text, char hidden, char before) {
  size_t plain = 0;
  for (size_t i = 0; i < text.len; i++) {
    if (text.data[i] != hidden || (before != '\0' && (i == 0 || text.data[i - 1] != before))) continue;
    encoding_write(sink, ENCODING_FOLDED, text.data + plain, i - plain);
    encoding_write_escaped(sink, hidden);
    plain = i + 1;
  }
  encoding_write(sink, ENCODING_FOLDED, text.data + plain, text.len - plain);
}

static void write_frame(const writer_t *w, const summary_row_t *row) {
  text_t name = profile_text(w->summary->profile, row->name);
  text_t file = profile_text(w->summary->profile, row->file);
  if (file.len == 0 && row->line == 0 && name.len > 0) {
    write_hiding(w->sink, name, '(', ' ');
    return;
  }
  encoding_write(w->sink, ENCODING_FOLDED, name.data, name.len);
  sink_text(w->sink, " (");
  write_hiding(w->sink, file, '(', ' ');
  sink_format(w->sink, ":%" PRId64 ")", row->line);
}

static void write_stack(const writer_t *w, int64_t value) {
  if (value == 0) return;
  for (size_t i = 0; i < w->depth; i++) {
    if (i > 0) sink_text(w->sink, ";");
    write_frame(w, &w->summary->rows[w->path[i]]);
  }
  sink_format(w->sink, " %" PRId64 "\n", value);
}

static void enter(void *context, uint32_t node) {
  writer_t *w = context;
  w->depth++;
  if (w->failed || !mem_reserve((void **)&w->path, &w->room, w->depth, sizeof *w->path)) {
    w->failed = true;
    sink_fail(w->sink, ENOMEM);
    return;
  }
  w->path[w->depth - 1] = w->summary->tree->nodes[node].key;
  write_stack(w, w->summary->self[node]);
}

static void leave(void *context, uint32_t node) {
  (void)node;
  ((writer_t *)context)->depth--;
}

static void write_word(sink_t *sink, const char *key, text_t value) {
  sink_format(sink, " %s=", key);
  write_hiding(sink, value, ' ', '\0');
}

static void write_header(const profile_t *p, sink_t *sink) {
  profile_type_t type = p->types[p->default_type];
  char losses[LOSSES_LINE_BYTES];
  sink_text(sink, "# " FOLDED_HEADER);
  write_word(sink, "type", profile_text(p, type.type));
  write_word(sink, "unit", profile_text(p, type.unit));
  if (p->program != 0) write_word(sink, "program", profile_text(p, p->program));
  losses_line(p, losses);
  sink_format(sink, "\n# %s\n", losses);
}

void folded_write(const profile_t *profile, sink_t *sink) {
  if (profile->default_type >= profile->type_count) { /* no types: nothing has a value */
    sink_fail(sink, EINVAL);
    return;
  }
  summary_t *summary = summary_new(profile, profile->default_type, SUMMARY_LINES);
  uint32_t *ranks = summary != NULL ? summary_name_ranks(summary) : NULL;
  if (ranks != NULL && tree_sort(summary->tree, ranks)) {
    writer_t w = {.summary = summary, .sink = sink};
    write_header(profile, sink);
    write_stack(&w, summary->self[0]);
    tree_walk(summary->tree, enter, leave, &w);
    mem_free(w.path);
  } else {
    sink_fail(sink, ENOMEM);
  }
  mem_free(ranks);
  summary_free(summary);
}
