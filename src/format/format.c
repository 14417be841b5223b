/* SPDX-License-Identifier: MIT */
/* The registry of formats: by name, and by how a file is called. */
#include "format/format.h"

#include <string.h>

const format_t formats[] = {
    {"pprof", ".pb.gz", "pprof's gzip'd protobuf: keeps everything; for luapulse and go tool pprof",
     "try  luapulse report @   or  go tool pprof -http=: @", pprof_write, NULL},
    {"html", ".html", "a flame graph in one self-contained page", "open @ in a browser", html_write, NULL},
    {"folded", ".folded", "one line for each stack; for flamegraph.pl and the like",
     "try  flamegraph.pl @ >^.svg", folded_write, NULL},
    {"speedscope", ".speedscope.json", "JSON for speedscope.app",
     "try  npx speedscope @   or  open it in www.speedscope.app", speedscope_write, NULL},
    {"callgrind", ".callgrind", "for KCachegrind; also files called callgrind.out.*", "try  kcachegrind @",
     callgrind_write, NULL},
    {"chrome", ".trace.json",
     "a timeline of calls, for Perfetto, chrome://tracing and speedscope; only after tracing",
     "open @ in Perfetto (ui.perfetto.dev)", chrome_write, chrome_refuses},
    {"text", ".txt", "the table that `luapulse report` shows", "try  less @", text_write, NULL},
    {NULL, NULL, NULL, NULL, NULL, NULL},
};

const format_t *format_by_name(const char *name) {
  for (const format_t *format = formats; format->name != NULL; format++)
    if (strcmp(name, format->name) == 0 || strcmp(name, format->extension) == 0 ||
        strcmp(name, format->extension + 1) == 0)
      return format;
  return NULL;
}

const format_t *format_for_path(const char *path) {
  const char *slash = strrchr(path, '/');
  const char *base = slash != NULL ? slash + 1 : path;
  const format_t *best = NULL;
  size_t best_len = 0, len = strlen(base);
  if (strncmp(base, "callgrind.out.", 14) == 0) return format_by_name("callgrind");
  for (const format_t *format = formats; format->name != NULL; format++) {
    size_t extension = strlen(format->extension);
    if (extension > best_len && len >= extension && strcmp(base + len - extension, format->extension) == 0) {
      best = format;
      best_len = extension;
    }
  }
  return best;
}
