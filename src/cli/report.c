/* SPDX-License-Identifier: MIT */
/* luapulse report: a profile as a table in the terminal. */
#include <getopt.h>
#include <stdio.h>
#include <unistd.h>

#include "cli/cli.h"
#include "format/read.h"
#include "format/text.h"

enum { DEFAULT_ROWS = 30 };

static const char help[] =
    "Usage: luapulse report FILE [OPTIONS]\n\n"
    "Shows where the value of a profile went, by function. FILE is pprof (gzip'd or not)\n"
    "or folded stacks; '-' is standard input.\n\n"
    "  flat  spent in the function itself     cum  spent in it and in all it called\n\n"
    "Options:\n"
    "  -s, --sample TYPE   the sample type to show (default: the profile's own); of a heap profile also\n"
    "                      free_space and free_objects: allocated less in use\n"
    "  -n, --top N         show the N heaviest (default 30; 0 for all)\n"
    "  -l, --lines         by line instead of by function\n"
    "  -t, --tree          callers to callees, as a tree\n"
    "  -k, --peek NAME     functions whose name contains NAME, with callers and callees\n"
    "  -w, --where KEY=VALUE  only samples with this label: pid=12, comm=nginx, vmstate=gc, ...; may be\n"
    "                      given several times\n"
    "  -h, --help          this\n\n"
    "Examples:\n"
    "  luapulse report app.pb.gz\n"
    "  luapulse report app.pb.gz --lines -n 10\n"
    "  luapulse report app.pb.gz --sample samples --tree\n"
    "  luapulse report app.pb.gz --peek parse\n"
    "  luapulse report nginx.pb.gz --where pid=1234\n"
    "  luapulse report heap.pb.gz --sample alloc_space --lines\n";

static int show(const profile_t *profile, const char *path, const text_options_t *options) {
  failure_t failure = {""};
  sink_t *sink = sink_to_fd(STDOUT_FILENO);
  if (sink == NULL) return cli_failed("report", "out of memory");
  bool found = text_report(profile, options, sink, &failure);
  if (!found) cli_failed("report", "%s: %s", path, failure.text);
  if (sink_close(sink, &failure)) return found ? STATUS_OK : STATUS_FAILED;
  return cli_failed("report", "standard output: cannot be written: %s", failure.text);
}

static int report(const char *path, const char *type, const cli_where_t *where, text_options_t *options) {
  failure_t failure = {""};
  profile_t *profile = profile_read_file(path, &failure);
  if (profile == NULL) return cli_failed("report", "%s", failure.text);
  int status = STATUS_FAILED;
  if (cli_keep_where("report", path, profile, where) &&
      cli_choose_type("report", path, profile, type, &options->type))
    status = show(profile, path, options);
  profile_free(profile);
  return status;
}

int report_run(int argc, char **argv) {
  static const struct option longs[] = {
      {"sample", required_argument, NULL, 's'}, {"top", required_argument, NULL, 'n'},
      {"lines", no_argument, NULL, 'l'},        {"tree", no_argument, NULL, 't'},
      {"peek", required_argument, NULL, 'k'},   {"where", required_argument, NULL, 'w'},
      {"help", no_argument, NULL, 'h'},         {NULL, 0, NULL, 0},
  };
  text_options_t options = {.rows = DEFAULT_ROWS, .width = cli_terminal_width()};
  cli_where_t where = {.count = 0};
  const char *type = NULL;
  bool tree = false;
  opterr = 0;
  for (int option; (option = getopt_long(argc, argv, ":s:n:ltk:w:h", longs, NULL)) != -1;) {
    if (option == 's') {
      type = optarg;
    } else if (option == 'n') {
      if (!cli_parse_count(optarg, &options.rows))
        return cli_usage("report", "--top takes a number, not '%s'", optarg);
    } else if (option == 'l') {
      options.by = SUMMARY_LINES;
    } else if (option == 't') {
      tree = true;
    } else if (option == 'k') {
      options.peek = optarg;
    } else if (option == 'w') {
      if (!cli_add_where(&where, optarg))
        return cli_usage("report", "--where takes KEY=VALUE, %d times at most, not '%s'", CLI_WHERE_MAX,
                         optarg);
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
  return report(argv[optind], type, &where, &options);
}
