/* SPDX-License-Identifier: MIT */
/* HTML: the viewer of web/ as one page, with the profile inside it as JSON.
 *
 * The parts of the page are in the library as they are in web/. viewer.html is the frame; each of its markers
 * (<!--luapulse:NAME-->) is replaced by what the table below says: a part, or the profile. Everything is
 * streamed. Runs inside other people's processes: no printing, no abort; failures are sticky in the sink. */
#include <inttypes.h>
#include <string.h>

#include "format/format.h"
#include "format/json.h"

/* The bytes of a file, between two hidden symbols. Paths are relative to the repository, where make runs. */
// clang-format off
#define EMBED(symbol, path)                                        \
  EMBED_BETWEEN("luapulse_web_" #symbol, "luapulse_web_" #symbol "_end", path) \
  extern const char luapulse_web_##symbol[] HIDDEN;                \
  extern const char luapulse_web_##symbol##_end[] HIDDEN;
#define EMBED_BETWEEN(begin, end, path)                            \
  __asm__(".pushsection .rodata,\"a\"\n"                           \
          ".globl " begin "\n.hidden " begin "\n"                  \
          ".globl " end "\n.hidden " end "\n"                      \
          begin ":\n.incbin \"" path "\"\n"                        \
          end ":\n.byte 0\n"                                       \
          ".popsection\n");
#define HIDDEN __attribute__((visibility("hidden")))
// clang-format on

EMBED(frame, "web/viewer.html")
EMBED(style, "web/viewer.css")
EMBED(text, "web/text.js")
EMBED(colour, "web/colour.js")
EMBED(profile, "web/profile.js")
EMBED(tree, "web/tree.js")
EMBED(flame, "web/flame.js")
EMBED(tooltip, "web/tooltip.js")
EMBED(table, "web/table.js")
EMBED(header, "web/header.js")
EMBED(page, "web/page.js")

static const char marker_begin[] = "<!--luapulse:";
static const char marker_end[] = "-->";

#define PART(symbol) \
  { #symbol, luapulse_web_##symbol, luapulse_web_##symbol##_end }

static const struct {
  const char *name; /* of the marker */
  const char *begin, *end;
} parts[] = {
    PART(style), PART(text),    PART(colour), PART(profile), PART(tree),
    PART(flame), PART(tooltip), PART(table),  PART(header),  PART(page),
};

static void write_text(const profile_t *p, sink_t *sink, uint32_t string) {
  text_t text = profile_text(p, string);
  json_string(sink, text.data, text.len);
}

static void write_type(const profile_t *p, sink_t *sink, profile_type_t type) {
  sink_text(sink, "{\"type\":");
  write_text(p, sink, type.type);
  sink_text(sink, ",\"unit\":");
  write_text(p, sink, type.unit);
  sink_text(sink, "}");
}

/* What stands before element i of a list: a comma, and now and then a new line, so that no line is endless.
 */
static const char *separator(size_t i) {
  return i == 0 ? "" : i % 32 == 0 ? ",\n" : ",";
}

static void write_head(const profile_t *p, sink_t *sink) {
  sink_text(sink, "{\"format\":1,\"program\":");
  write_text(p, sink, p->program);
  sink_format(sink, ",\"time_nanos\":%" PRId64 ",\"duration_nanos\":%" PRId64 ",\"period\":%" PRId64,
              p->time_nanos, p->duration_nanos, p->period);
  sink_text(sink, ",\"period_type\":");
  write_type(p, sink, p->period_type);
  sink_text(sink, ",\n\"types\":[");
  for (size_t i = 0; i < p->type_count; i++) {
    sink_text(sink, separator(i));
    write_type(p, sink, p->types[i]);
  }
  sink_format(sink, "],\"default_type\":%zu,\n\"losses\":{", p->default_type);
  for (int i = 0; i < LOSS_COUNT; i++)
    sink_format(sink, "%s\"%s\":%" PRIu64, i == 0 ? "" : ",", loss_name((loss_t)i), p->losses[i]);
  sink_text(sink, "},\n\"comments\":[");
  for (size_t i = 0; i < p->comment_count; i++) {
    sink_text(sink, separator(i));
    write_text(p, sink, p->comments[i]);
  }
  sink_text(sink, "]");
}

static void write_names(const profile_t *p, sink_t *sink) {
  sink_text(sink, ",\n\"strings\":[");
  for (size_t i = 0; i < p->string_count; i++) {
    sink_text(sink, separator(i));
    json_string(sink, p->strings[i].data, p->strings[i].len);
  }
  sink_text(sink, "],\n\"functions\":[");
  for (size_t i = 0; i < p->function_count; i++)
    sink_format(sink, "%s%" PRIu32 ",%" PRIu32 ",%" PRId64, separator(i), p->functions[i].name,
                p->functions[i].file, p->functions[i].start_line);
  sink_text(sink, "],\n\"frames\":[");
  for (size_t i = 0; i < p->frame_count; i++)
    sink_format(sink, "%s%" PRIu32 ",%" PRId64, separator(i), p->frames[i].function, p->frames[i].line);
  sink_text(sink, "]");
}

/* Stack 0, the empty one, is left out: stack i stands at 2 * (i - 1). */
static void write_stacks(const profile_t *p, sink_t *sink) {
  sink_text(sink, ",\n\"stacks\":[");
  for (size_t i = 1; i < p->stack_count; i++)
    sink_format(sink, "%s%" PRIu32 ",%" PRIu32, separator(i - 1), p->stacks[i].parent, p->stacks[i].frame);
  sink_text(sink, "]");
}

static void write_samples(const profile_t *p, sink_t *sink) {
  size_t written = 0;
  sink_text(sink, ",\n\"samples\":[");
  for (size_t i = 0; i < p->sample_count; i++) {
    const profile_sample_t *sample = &p->samples[i];
    if (profile_sample_is_zero(p, sample)) continue;
    sink_format(sink, "%s%" PRIu32, separator(written++), sample->stack);
    for (size_t t = 0; t < p->type_count; t++) sink_format(sink, ",%" PRId64, sample->values[t]);
  }
  sink_text(sink, "]}\n");
}

static void write_json(const profile_t *p, sink_t *sink) {
  write_head(p, sink);
  write_names(p, sink);
  write_stacks(p, sink);
  write_samples(p, sink);
}

static void write_part(const profile_t *p, sink_t *sink, const char *name, size_t len) {
  if (len == strlen("json") && memcmp(name, "json", len) == 0) write_json(p, sink);
  for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
    if (len == strlen(parts[i].name) && memcmp(name, parts[i].name, len) == 0)
      sink_write(sink, parts[i].begin, (size_t)(parts[i].end - parts[i].begin));
}

void html_write(const profile_t *p, sink_t *sink) {
  const char *at = luapulse_web_frame, *end = luapulse_web_frame_end;
  for (;;) {
    const char *marker = memmem(at, (size_t)(end - at), marker_begin, strlen(marker_begin));
    if (marker == NULL) break;
    const char *name = marker + strlen(marker_begin);
    const char *close = memmem(name, (size_t)(end - name), marker_end, strlen(marker_end));
    if (close == NULL) break;
    sink_write(sink, at, (size_t)(marker - at));
    write_part(p, sink, name, (size_t)(close - name));
    at = close + strlen(marker_end);
  }
  sink_write(sink, at, (size_t)(end - at));
}
