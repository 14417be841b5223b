/* SPDX-License-Identifier: MIT */
/* luapulse report: a profile as a table in the terminal. */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "cli/cli.h"
#include "format/read.h"
#include "format/text.h"

enum { DEFAULT_ROWS = 30, LEAST_WIDTH = 80 };

static const char help[] =
    "Usage: luapulse report FILE [OPTIONS]\n\n"
    "Shows where the value of a profile went, by function. FILE is pprof (gzip'd or not)\n"
    "or folded stacks; '-' is standard input.\n\n"
    "  flat  spent in the function itself     cum  spent in it and in all it called\n\n"
    "Options:\n"
    "  -s, --sample TYPE   the sample type to show (default: the profile's own)\n"
    "  -n, --top N         show the N heaviest (default 30; 0 for all)\n"
    "  -l, --lines         by line instead of by function\n"
    "  -t, --tree          callers to callees, as a tree\n"
    "  -k, --peek NAME     functions whose name contains NAME, with callers and callees\n"
    "  -h, --help          this\n\n"
    "Examples:\n"
    "  luapulse report app.pb.gz\n"
    "  luapulse report app.pb.gz --lines -n 10\n"
    "  luapulse report app.pb.gz --sample samples --tree\n"
    "  luapulse report app.pb.gz --peek parse\n";

/* The terminal's width, or 0 (no limit) when standard output is none. */
static size_t terminal_width(void) {
  struct winsize size;
  if (!isatty(STDOUT_FILENO)) return 0;
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 100;
  return size.ws_col < LEAST_WIDTH ? LEAST_WIDTH : size.ws_col;
}

static bool parse_count(const char *text, size_t *count) {
  char *end;
  errno = 0;
  unsigned long value = strtoul(text, &end, 10);
  *count = value;
  return errno == 0 && *text >= '0' && *text <= '9' && *end == '\0';
}

static int show(const profile_t *profile, const char *path, const text_options_t *options) {
  failure_t failure = {""};
  sink_t *sink = sink_to_fd(STDOUT_FILENO);
  if (sink == NULL) return cli_failed("report", "out of memory");
  bool found = text_report(profile, options, sink, &failure);
  if (!found) cli_failed("report", "%s: %s", path, failure.text);
  if (sink_close(sink, &failure)) return found ? STATUS_OK : STATUS_FAILED;
  return cli_failed("report", "standard output: cannot be written: %s", failure.text);
}

static int no_such_type(const profile_t *profile, const char *path, const char *type) {
  char names[256] = "";
  for (size_t i = 0; i < profile->type_count; i++) {
    size_t used = strlen(names);
    snprintf(names + used, sizeof names - used, "%s%s", i == 0 ? "" : ", ",
             profile_text(profile, profile->types[i].type).data);
  }
  return cli_failed("report", "%s: has no sample type '%s'; it has: %s", path, type, names);
}

static int report(const char *path, const char *type, text_options_t *options) {
  failure_t failure = {""};
  profile_t *profile = profile_read_file(path, &failure);
  if (profile == NULL) return cli_failed("report", "%s", failure.text);
  uint32_t found = type != NULL ? profile_find_type(profile, type) : (uint32_t)profile->default_type;
  options->type = found;
  int status = found != PROFILE_NONE ? show(profile, path, options) : no_such_type(profile, path, type);
  profile_free(profile);
  return status;
}

int report_run(int argc, char **argv) {
  static const struct option longs[] = {
      {"sample", required_argument, NULL, 's'},
      {"top", required_argument, NULL, 'n'},
      {"lines", no_argument, NULL, 'l'},
      {"tree", no_argument, NULL, 't'},
      {"peek", required_argument, NULL, 'k'},
      {"help", no_argument, NULL, 'h'},
      {NULL, 0, NULL, 0},
  };
  text_options_t options = {.rows = DEFAULT_ROWS, .width = terminal_width()};
  const char *type = NULL;
  bool tree = false;
  opterr = 0;
  for (int option; (option = getopt_long(argc, argv, ":s:n:ltk:h", longs, NULL)) != -1;) {
    if (option == 's') {
      type = optarg;
    } else if (option == 'n') {
      if (!parse_count(optarg, &options.rows))
        return cli_usage("report", "--top takes a number, not '%s'", optarg);
    } else if (option == 'l') {
      options.by = SUMMARY_LINES;
    } else if (option == 't') {
      tree = true;
    } else if (option == 'k') {
      options.peek = optarg;
    } else if (option == 'h') {
      fputs(help, stdout);
      return fflush(stdout) == 0 ? STATUS_OK : STATUS_FAILED;
    } else {
      return cli_bad_option("report", argv, option);
    }
  }
  if (tree && options.peek != NULL) return cli_usage("report", "--tree and --peek exclude each other");
  if (optind == argc) return cli_usage("report", "a FILE is missing");
  if (optind + 1 < argc)
    return cli_usage("report", "one FILE at a time: '%s' is one too many", argv[optind + 1]);
  options.view = tree ? TEXT_TREE : options.peek != NULL ? TEXT_PEEK : TEXT_TOP;
  return report(argv[optind], type, &options);
}
