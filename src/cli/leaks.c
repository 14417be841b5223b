/* SPDX-License-Identifier: MIT */
/* luapulse leaks: where live memory keeps surviving collections, as a table. The judging is in profile/leak.c. */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include "cli/cli.h"
#include "format/encoding.h"
#include "format/read.h"
#include "format/text.h"
#include "profile/leak.h"

enum { DEFAULT_ROWS = 10, DEFAULT_CYCLES = 4, DEFAULT_BYTES = 4096, MOST_NAME_COLUMNS = 40 };
enum { FIRST_FRAMES = 1, LAST_FRAMES = 5 }; /* of a path that is shortened */
enum { OLDEST_COLUMNS = 9 };

typedef struct {
  leak_by_t by;
  size_t rows; /* of each part of the table, 0 for all */
  size_t width;
  int64_t min_bytes, min_cycles;
  bool all;
} options_t;

typedef struct {
  const leaks_t *leaks;
  const options_t *options;
  sink_t *sink;
  const char *unit;
  value_scale_t scale; /* of the table */
} view_t;

static const char help[] =
    "Usage: luapulse leaks FILE [OPTIONS]\n\n"
    "Shows where memory keeps growing: the sites whose live bytes survive one collection after the\n"
    "other, so that something is left of all ages, up to about that of the session. Data that was\n"
    "loaded once, caches that are turned over, and what is in use just now are left out.\n\n"
    "FILE is a heap profile (pprof), best of a long session; '-' is standard input. A site is a line of\n"
    "Lua, with the C function that it called if that allocated.\n\n"
    "Options:\n"
    "  -l, --lines           by line (default)\n"
    "  -p, --paths           by whole call path\n"
    "  -n, --top N           show the N largest (default 10; 0 for all)\n"
    "  -a, --all             show as well what was kept since early and does not grow\n"
    "      --min-bytes SIZE  leave out sites with less that is live; k, M, G for kB, MB, GB (default 4k)\n"
    "      --min-cycles N    the oldest must have survived N collections (default 4)\n"
    "  -h, --help            this\n\n"
    "Examples:\n"
    "  luapulse run --heap -o heap.pb.gz -- lua5.4 app.lua\n"
    "  luapulse leaks heap.pb.gz\n"
    "  luapulse leaks heap.pb.gz --paths -n 3\n"
    "  luapulse leaks heap.pb.gz --all --min-bytes 1M\n";

/* -- sites and paths ------------------------------------------------------------------------------------- */

static text_t name_of(const profile_t *p, uint32_t frame) {
  text_t name = {"", 0};
  if (frame != PROFILE_NONE) name = profile_text(p, p->functions[p->frames[frame].function].name);
  return name.len > 0 ? name : (text_t){"?", 1};
}

static text_t file_of(const profile_t *p, uint32_t frame) {
  return frame != PROFILE_NONE ? profile_text(p, p->functions[p->frames[frame].function].file)
                               : (text_t){"", 0};
}

/* "remember", or "string.rep in remember" when a C function allocated. */
static void write_site(const profile_t *p, const leak_site_t *site, sink_t *sink) {
  text_t leaf = name_of(p, site->leaf);
  sink_write(sink, leaf.data, leaf.len);
  if (site->lua == site->leaf || site->lua == PROFILE_NONE) return;
  text_t lua = name_of(p, site->lua);
  sink_text(sink, " in ");
  sink_write(sink, lua.data, lua.len);
}

/* "remember app.lua:12", of a C function the name alone. */
static void write_frame(const profile_t *p, uint32_t frame, sink_t *sink) {
  text_t name = name_of(p, frame), file = file_of(p, frame);
  int64_t line = p->frames[frame].line;
  sink_write(sink, name.data, name.len);
  if (line <= 0) return;
  sink_text(sink, " ");
  sink_write(sink, file.data, file.len);
  sink_format(sink, ":%" PRId64, line);
}

/* Root to leaf; of a long one the first and the last frames. */
static void write_path(const profile_t *p, const leak_site_t *site, sink_t *sink) {
  size_t depth = 0;
  for (uint32_t stack = site->path; stack != 0; stack = p->stacks[stack].parent) depth++;
  for (size_t at = 0; at < depth; at++) {
    bool shortened = depth > FIRST_FRAMES + LAST_FRAMES + 1;
    if (at > 0) sink_text(sink, " > ");
    if (shortened && at == FIRST_FRAMES) {
      sink_text(sink, "…");
      at = depth - LAST_FRAMES - 1;
      continue;
    }
    uint32_t stack = site->path;
    for (size_t up = depth - 1; up > at; up--) stack = p->stacks[stack].parent;
    write_frame(p, p->stacks[stack].frame, sink);
  }
}

typedef void write_t(const profile_t *p, const leak_site_t *site, sink_t *sink);

/* What `write` writes, as a text in a sink that is the caller's to close; NULL when memory is out. */
static sink_t *made(const view_t *view, write_t *write, const leak_site_t *site, text_t *text) {
  sink_t *sink = sink_to_memory();
  if (sink != NULL) write(view->leaks->profile, site, sink);
  text->data = sink != NULL ? sink_memory(sink, &text->len) : NULL;
  if (text->data != NULL) return sink;
  sink_fail(view->sink, ENOMEM);
  if (sink != NULL) sink_close(sink, NULL);
  return NULL;
}

/* -- the table ------------------------------------------------------------------------------------------- */

static void size_text(const view_t *view, int64_t bytes, char text[VALUE_TEXT_BYTES]) {
  value_text(value_scale(view->unit, bytes, bytes), bytes, text);
}

/* A bar for each class of age, half as much being one step lower; a dot when there is nothing. */
static void put_ages(const view_t *view, const leak_site_t *site) {
  static const char *const bars[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  int64_t most = 0;
  for (unsigned class = 0; class < view->leaks->classes; class ++)
    if (site->bytes[class] > most) most = site->bytes[class];
  for (unsigned class = 0; class < view->leaks->classes; class ++) {
    int bar = 7;
    for (double step = 0.7 * (double)most; bar > 0 && (double)site->bytes[class] < step; step /= 2) bar--;
    sink_text(view->sink, site->bytes[class] > 0 ? bars[bar] : "·");
  }
}

static size_t ages_columns(const view_t *view) {
  return view->leaks->classes > 4 ? view->leaks->classes : 4;
}

/* Returns how many columns are taken before the site. */
static size_t put_table_head(const view_t *view) {
  int ages = (int)ages_columns(view);
  sink_format(view->sink, "%*s%*s%*s%*s  %-*s  site\n", TEXT_VALUE_COLUMNS, "live", TEXT_PERCENT_COLUMNS,
              "share", TEXT_VALUE_COLUMNS, "objects", OLDEST_COLUMNS, "oldest", ages, "ages");
  return 2 * TEXT_VALUE_COLUMNS + TEXT_PERCENT_COLUMNS + OLDEST_COLUMNS + (size_t)ages + 4;
}

static void put_numbers(const view_t *view, const leak_site_t *site) {
  char live[VALUE_TEXT_BYTES], share[VALUE_TEXT_BYTES], objects[32] = "-", oldest[32];
  value_text(view->scale, site->live, live);
  value_percent(site->live, view->leaks->live, share);
  if (view->leaks->has_objects) snprintf(objects, sizeof objects, "%" PRId64, site->live_objects);
  snprintf(oldest, sizeof oldest, "%" PRId64 "+", leak_class_age(site->oldest));
  sink_format(view->sink, " %*s %*s %*s %*s  ", TEXT_VALUE_COLUMNS - 1, live, TEXT_PERCENT_COLUMNS - 1, share,
              TEXT_VALUE_COLUMNS - 1, objects, OLDEST_COLUMNS - 1, oldest);
  put_ages(view, site);
  sink_format(view->sink, "%*s", (int)(ages_columns(view) - view->leaks->classes) + 2, "");
}

static void put_site(const view_t *view, const leak_site_t *site, size_t used, size_t name_columns) {
  const profile_t *p = view->leaks->profile;
  uint32_t place = site->lua != PROFILE_NONE ? site->lua : site->leaf;
  size_t width = view->options->width;
  text_t name;
  sink_t *sink = made(view, write_site, site, &name);
  if (sink == NULL) return;
  text_put_place(view->sink, name, file_of(p, place), place != PROFILE_NONE ? p->frames[place].line : 0,
                 width == 0     ? SIZE_MAX
                 : width > used ? width - used
                                : 0,
                 name_columns);
  sink_close(sink, NULL);
}

static void put_path(const view_t *view, const leak_site_t *site) {
  enum { INDENT = 12 };
  text_t path;
  sink_t *sink = made(view, write_path, site, &path);
  if (sink == NULL) return;
  sink_format(view->sink, "%*s", INDENT, "");
  text_put_cut(view->sink, path, view->options->width > INDENT ? view->options->width - INDENT : SIZE_MAX,
               true);
  sink_text(view->sink, "\n");
  sink_close(sink, NULL);
}

static size_t shown_of(const view_t *view, size_t count) {
  size_t rows = view->options->rows;
  return rows == 0 || rows > count ? count : rows;
}

static size_t widest_name(const view_t *view, const leak_site_t *first, size_t shown) {
  size_t widest = 0;
  for (size_t i = 0; i < shown; i++) {
    text_t name;
    sink_t *sink = made(view, write_site, &first[i], &name);
    if (sink == NULL) return 0;
    size_t columns = text_columns(name);
    if (columns > widest) widest = columns;
    sink_close(sink, NULL);
  }
  return widest < MOST_NAME_COLUMNS ? widest : MOST_NAME_COLUMNS;
}

/* A part of the table: the sites from `first` on, of which there are `count`. */
static void put_part(const view_t *view, const char *title, const leak_site_t *first, size_t count,
                     bool paths) {
  size_t shown = shown_of(view, count), name_columns = widest_name(view, first, shown);
  if (count == 0) return;
  sink_format(view->sink, "%s\n", title);
  size_t used = put_table_head(view);
  for (size_t i = 0; i < shown; i++) {
    put_numbers(view, &first[i]);
    put_site(view, &first[i], used, name_columns);
    if (paths) put_path(view, &first[i]);
  }
  if (shown < count) sink_format(view->sink, "… and %zu more; -n 0 shows all\n", count - shown);
  sink_text(view->sink, "\n");
}

/* -- head and end ---------------------------------------------------------------------------------------- */

static void put_head(const view_t *view) {
  const leaks_t *l = view->leaks;
  const profile_t *p = l->profile;
  char live[VALUE_TEXT_BYTES], survived[VALUE_TEXT_BYTES];
  text_t program = p->program != 0 ? profile_text(p, p->program) : (text_t){"unknown", 7};
  size_text(view, l->live, live);
  size_text(view, l->survived, survived);
  sink_text(view->sink, "Program   ");
  encoding_write(view->sink, ENCODING_SHOWN, program.data, program.len);
  sink_format(view->sink, "\nLive      %s", live);
  if (l->has_objects) sink_format(view->sink, " in %" PRId64 " objects", l->live_objects);
  sink_format(view->sink,
              ", %s of it survived a collection or more\nAge       %s%" PRId64 " collections; ages are",
              survived, l->cycles_told ? "" : "at least ", l->cycles);
  for (unsigned class = 0; class < l->classes; class ++)
    sink_format(view->sink, " %" PRId64, leak_class_age(class));
  sink_text(view->sink, " and more collections survived\n\n");
}

typedef struct {
  size_t count;
  int64_t live;
} tally_t;

static void put_tally(const view_t *view, const char *words, tally_t tally, const char *hint) {
  char live[VALUE_TEXT_BYTES];
  size_text(view, tally.live, live);
  sink_format(view->sink, "%s %zu", words, tally.count);
  if (tally.count > 0) sink_format(view->sink, " (%s%s)", live, hint);
}

/* What was looked at, by verdict, and what was too small. */
static void put_end(const view_t *view, const tally_t tally[LEAK_VERDICTS], size_t small) {
  const leaks_t *l = view->leaks;
  char live[VALUE_TEXT_BYTES], least[VALUE_TEXT_BYTES];
  size_t count = 0;
  int64_t sum = 0;
  for (int i = 0; i < LEAK_VERDICTS; i++) {
    count += tally[i].count;
    sum = tree_sum(sum, tally[i].live);
  }
  size_text(view, sum, live);
  size_text(view, view->options->min_bytes, least);
  sink_format(view->sink, "%slooked at %zu site%s with %s live, over %s%" PRId64 " collections",
              tally[LEAK_GROWING].count == 0 ? "no leaks seen: " : "", count, count == 1 ? "" : "s", live,
              l->cycles_told ? "" : "at least ", l->cycles);
  if (small > 0) sink_format(view->sink, "; %zu below %s left out", small, least);
  put_tally(view, "\n  growing", tally[LEAK_GROWING], "");
  put_tally(view, ", kept since early", tally[LEAK_KEPT],
            view->options->all            ? ""
            : tally[LEAK_KEPT].count == 1 ? ", --all shows it"
                                          : ", --all shows them");
  put_tally(view, ", turned over or recent", tally[LEAK_RECENT], "");
  put_tally(view, ", in use only now", tally[LEAK_NEW], "");
  sink_text(view->sink, "\n");
}

/* Takes the small ones out; returns how many. */
static size_t drop_small(leaks_t *l, int64_t min_bytes) {
  size_t kept = 0, all = l->count;
  for (size_t i = 0; i < all; i++)
    if (l->sites[i].live >= min_bytes) l->sites[kept++] = l->sites[i];
  l->count = kept;
  return all - kept;
}

/* The least that is live in the rows shown, or `least`. */
static int64_t least_of(const view_t *view, const leak_site_t *first, size_t count, int64_t least) {
  size_t shown = first != NULL ? shown_of(view, count) : 0;
  for (size_t i = 0; i < shown; i++)
    if (first[i].live > 0 && first[i].live < least) least = first[i].live;
  return least;
}

static void put_leaks(leaks_t *l, const options_t *options, sink_t *sink) {
  const profile_t *p = l->profile;
  view_t view = {.leaks = l, .options = options, .sink = sink};
  view.unit = profile_text(p, p->types[profile_find_type(p, "inuse_space")].unit).data;
  tally_t tally[LEAK_VERDICTS] = {{0, 0}};
  size_t small = drop_small(l, options->min_bytes);
  for (size_t i = 0; i < l->count; i++) {
    tally_t *of = &tally[l->sites[i].verdict];
    of->count++;
    of->live = tree_sum(of->live, l->sites[i].live);
  }
  size_t growing = tally[LEAK_GROWING].count, kept = options->all ? tally[LEAK_KEPT].count : 0;
  const leak_site_t *second = l->count > 0 ? l->sites + growing : NULL;
  int64_t least = least_of(&view, l->sites, growing, l->live);
  view.scale = value_scale(view.unit, least_of(&view, second, kept, least), l->live);
  put_head(&view);
  put_part(&view, "Growing: something is left of all ages, up to about that of the session", l->sites,
           growing, true);
  put_part(&view, "Kept since early, not growing", second, kept, options->by == LEAK_BY_PATH);
  put_end(&view, tally, small);
}

/* -- the command ----------------------------------------------------------------------------------------- */

static int show(const profile_t *profile, const char *path, const options_t *options) {
  failure_t failure = {""};
  leaks_t *found = leak_find(profile, options->by, options->min_cycles, &failure);
  if (found == NULL)
    return cli_failed(
        "leaks",
        "%s: %s. Take a heap profile over some collections, the more the better: luapulse run --heap -o "
        "heap.pb.gz -- PROGRAM …",
        path, failure.text);
  sink_t *sink = sink_to_fd(STDOUT_FILENO);
  if (sink != NULL) put_leaks(found, options, sink);
  leak_free(found);
  if (sink == NULL) return cli_failed("leaks", "out of memory");
  if (sink_close(sink, &failure)) return STATUS_OK;
  return cli_failed("leaks", "standard output: cannot be written: %s", failure.text);
}

static int leaks(const char *path, const options_t *options) {
  failure_t failure = {""};
  profile_t *profile = profile_read_file(path, &failure);
  if (profile == NULL) return cli_failed("leaks", "%s", failure.text);
  int status = show(profile, path, options);
  profile_free(profile);
  return status;
}

int leaks_run(int argc, char **argv) {
  enum { MIN_BYTES = 256, MIN_CYCLES };
  static const struct option longs[] = {
      {"lines", no_argument, NULL, 'l'},
      {"paths", no_argument, NULL, 'p'},
      {"top", required_argument, NULL, 'n'},
      {"all", no_argument, NULL, 'a'},
      {"min-bytes", required_argument, NULL, MIN_BYTES},
      {"min-cycles", required_argument, NULL, MIN_CYCLES},
      {"help", no_argument, NULL, 'h'},
      {NULL, 0, NULL, 0},
  };
  options_t options = {.rows = DEFAULT_ROWS,
                       .width = cli_terminal_width(),
                       .min_bytes = DEFAULT_BYTES,
                       .min_cycles = DEFAULT_CYCLES};
  bool lines = false;
  size_t cycles;
  opterr = 0;
  for (int option; (option = getopt_long(argc, argv, ":lpn:ah", longs, NULL)) != -1;) {
    if (option == 'l') {
      lines = true;
    } else if (option == 'p') {
      options.by = LEAK_BY_PATH;
    } else if (option == 'a') {
      options.all = true;
    } else if (option == 'n') {
      if (!cli_parse_count(optarg, &options.rows))
        return cli_usage("leaks", "--top takes a number, not '%s'", optarg);
    } else if (option == MIN_BYTES) {
      if (!cli_parse_size(optarg, &options.min_bytes))
        return cli_usage("leaks", "--min-bytes takes a size like 4096, 64k or 1M, not '%s'", optarg);
    } else if (option == MIN_CYCLES) {
      if (!cli_parse_count(optarg, &cycles) || cycles == 0 || cycles > INT32_MAX)
        return cli_usage("leaks", "--min-cycles takes a number from 1 on, not '%s'", optarg);
      options.min_cycles = (int64_t)cycles;
    } else if (option == 'h') {
      fputs(help, stdout);
      return fflush(stdout) == 0 ? STATUS_OK : STATUS_FAILED;
    } else {
      return cli_bad_option("leaks", argv, option);
    }
  }
  if (lines && options.by == LEAK_BY_PATH)
    return cli_usage("leaks", "--lines and --paths exclude each other");
  if (optind == argc) return cli_usage("leaks", "a FILE is missing");
  if (optind + 1 < argc)
    return cli_usage("leaks", "one FILE at a time: '%s' is one too many", argv[optind + 1]);
  return leaks(argv[optind], &options);
}
