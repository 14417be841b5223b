/* SPDX-License-Identifier: MIT */
/* luapulse convert: a profile in another format. Nothing is written unless the input was read whole. */
#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "format/format.h"
#include "format/read.h"

enum { OUTPUTS = 16 };

static int print_help(void) {
  fputs(
      "Usage: luapulse convert IN -o OUT [-o OUT...] [-f FORMAT] [-s TYPE] [-w KEY=VALUE]\n\n"
      "Reads a profile (pprof, gzip'd or not, or folded stacks) and writes it in another format.\n"
      "'-' is standard input or output. An existing OUT is replaced as a whole, or left alone.\n\n"
      "Options:\n"
      "  -o, --output OUT     where to write; may be given several times\n"
      "  -f, --format FORMAT  how, for every OUT: a name or an extension (default: told by the name of OUT)\n"
      "  -s, --sample TYPE    the sample type that OUT shows, in folded stacks and text the only one\n"
      "                       (default: the profile's own); of a heap profile also free_space and\n"
      "                       free_objects: allocated less in use\n"
      "  -w, --where KEY=VALUE  only samples with this label: pid=12, comm=nginx, ...; may be given\n"
      "                       several times\n"
      "  -h, --help           this\n\n"
      "Formats:\n",
      stdout);
  for (const format_t *format = formats; format->name != NULL; format++)
    printf("  %-11s %-17s %s\n", format->name, format->extension, format->summary);
  fputs(
      "\nExamples:\n"
      "  luapulse convert app.pb.gz -o app.html\n"
      "  luapulse convert app.pb.gz -o - -f folded | flamegraph.pl > app.svg\n"
      "  luapulse convert heap.pb.gz -s alloc_space -o alloc.html\n"
      "  luapulse convert perf.folded -o perf.pb.gz\n",
      stdout);
  return fflush(stdout) == 0 ? STATUS_OK : STATUS_FAILED;
}

static void list_formats(char *names, size_t size) {
  names[0] = '\0';
  for (const format_t *format = formats; format->name != NULL; format++) {
    size_t used = strlen(names);
    snprintf(names + used, size - used, "%s%s", used == 0 ? "" : ", ", format->name);
  }
}

typedef struct {
  const char *names[OUTPUTS];
  const format_t *formats[OUTPUTS];
  size_t count;
} outputs_t;

static int write_all(const outputs_t *out, const profile_t *profile) {
  failure_t failure = {""};
  int status = STATUS_OK;
  for (size_t i = 0; i < out->count; i++)
    if (!format_write_file(profile, out->formats[i], out->names[i], &failure))
      status = cli_failed("convert", "%s", failure.text);
  return status;
}

static int convert(const char *in, const outputs_t *out, const char *type, const cli_where_t *where) {
  failure_t failure = {""};
  profile_t *profile = profile_read_file(in, &failure);
  if (profile == NULL) return cli_failed("convert", "%s", failure.text);
  int status = STATUS_FAILED;
  if (cli_keep_where("convert", in, profile, where) &&
      cli_choose_type("convert", in, profile, type, &profile->default_type))
    status = write_all(out, profile);
  profile_free(profile);
  return status;
}

/* STATUS_OK when each file has a format. */
static int choose_formats(outputs_t *out, const char *name) {
  char names[128];
  list_formats(names, sizeof names);
  if (name != NULL && format_by_name(name) == NULL)
    return cli_usage("convert", "there is no format '%s'; there are: %s", name, names);
  for (size_t i = 0; i < out->count; i++) {
    out->formats[i] = name != NULL ? format_by_name(name) : format_for_path(out->names[i]);
    if (out->formats[i] == NULL)
      return cli_usage("convert", "the name '%s' tells no format; say -f with one of: %s", out->names[i],
                       names);
  }
  return STATUS_OK;
}

int convert_run(int argc, char **argv) {
  static const struct option longs[] = {
      {"output", required_argument, NULL, 'o'}, {"format", required_argument, NULL, 'f'},
      {"sample", required_argument, NULL, 's'}, {"where", required_argument, NULL, 'w'},
      {"help", no_argument, NULL, 'h'},         {NULL, 0, NULL, 0},
  };
  const char *name = NULL, *type = NULL;
  outputs_t out = {.count = 0};
  cli_where_t where = {.count = 0};
  opterr = 0;
  for (int option; (option = getopt_long(argc, argv, ":o:f:s:w:h", longs, NULL)) != -1;) {
    if (option == 'o') {
      if (out.count == OUTPUTS) return cli_usage("convert", "at most %d files", OUTPUTS);
      out.names[out.count++] = optarg;
    } else if (option == 'f')
      name = optarg;
    else if (option == 's')
      type = optarg;
    else if (option == 'w') {
      if (!cli_add_where(&where, optarg))
        return cli_usage("convert", "--where takes KEY=VALUE, %d times at most, not '%s'", CLI_WHERE_MAX,
                         optarg);
    } else if (option == 'h')
      return print_help();
    else
      return cli_bad_option("convert", argv, option);
  }
  if (optind == argc) return cli_usage("convert", "the file to read is missing");
  if (optind + 1 < argc)
    return cli_usage("convert", "one file at a time: '%s' is one too many", argv[optind + 1]);
  if (out.count == 0) return cli_usage("convert", "-o OUT is missing");
  int status = choose_formats(&out, name);
  return status == STATUS_OK ? convert(argv[optind], &out, type, &where) : status;
}
