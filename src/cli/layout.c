/* SPDX-License-Identifier: MIT */
/* luapulse layout: layout data of a Lua from its debug information. Nothing is written unless it is complete. */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/layout_debug.h"
#include "format/encoding.h"
#include "format/format.h"

typedef struct {
  const char *path;
  const layout_debug_t *made;
} writing_t;

static int print_help(void) {
  fputs(
      "Usage: luapulse layout FILE [-o OUT]\n\n"
      "Tells where a build of Lua or LuaJIT keeps what a walk of its stacks needs, as layout data, from the\n"
      "debug information (DWARF) of FILE: the program or library that has Lua in it, or its debug file.\n"
      "Separate debug files are found by debug link and under /usr/lib/debug by build-id.\n\n"
      "Options:\n"
      "  -o, --output OUT  where to write (default: standard output)\n"
      "  -h, --help        this\n\n"
      "Examples:\n"
      "  luapulse layout /usr/local/bin/lua\n"
      "  luapulse layout libluajit-5.1.so.2 -o patched.layout\n",
      stdout);
  return fflush(stdout) == 0 ? STATUS_OK : STATUS_FAILED;
}

static void write_layout(void *context, sink_t *sink) {
  const writing_t *writing = context;
  const layout_debug_t *made = writing->made;
  char text[8192];
  size_t len = layout_print(&made->layout, text, sizeof text);
  sink_text(sink, "# ");
  encoding_write(sink, ENCODING_SHOWN, writing->path, strlen(writing->path));
  sink_format(sink, ", %s%s\n", made->build_id[0] != '\0' ? "build-id " : "without a build-id",
              made->build_id);
  if (made->known != NULL)
    sink_format(sink, "# the same as \"%s\", which LuaPulse knows\n", made->known->name);
  if (len >= sizeof text) sink_fail(sink, EOVERFLOW);
  sink_write(sink, text, len);
}

static int make_layout(const char *path, const char *out) {
  failure_t failure = {""};
  layout_debug_t made;
  if (!layout_debug_read(&made, path, &failure)) return cli_failed("layout", "%s", failure.text);
  writing_t writing = {path, &made};
  return file_replace(out, write_layout, &writing, &failure) ? STATUS_OK
                                                             : cli_failed("layout", "%s", failure.text);
}

int layout_run(int argc, char **argv) {
  static const struct option longs[] = {
      {"output", required_argument, NULL, 'o'},
      {"help", no_argument, NULL, 'h'},
      {NULL, 0, NULL, 0},
  };
  const char *out = "-";
  opterr = 0;
  for (int option; (option = getopt_long(argc, argv, ":o:h", longs, NULL)) != -1;) {
    if (option == 'o')
      out = optarg;
    else if (option == 'h')
      return print_help();
    else
      return cli_bad_option("layout", argv, option);
  }
  if (optind == argc) return cli_usage("layout", "the file to read is missing");
  if (optind + 1 < argc)
    return cli_usage("layout", "one file at a time: '%s' is one too many", argv[optind + 1]);
  return make_layout(argv[optind], out);
}
