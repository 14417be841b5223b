/* SPDX-License-Identifier: MIT */
/* Writes the pages that the browser tests open, through the real writer: make_page CASE FILE.
 * The totals that tests/web/viewer.mjs expects are the ones spelt out here. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "format/format.h"
#include "profile/trace_values.h"

enum { MS = 1000000 };

static uint32_t frame(profile_t *p, const char *name, size_t len, const char *file, int64_t start,
                      int64_t line) {
  uint32_t string = profile_string(p, name, len);
  profile_function_t function = {string, string, profile_cstring(p, file), start};
  return profile_frame(p, profile_function(p, function), line);
}

static uint32_t call(profile_t *p, uint32_t caller, const char *name, const char *file, int64_t start,
                     int64_t line) {
  return profile_stack(p, caller, frame(p, name, strlen(name), file, start, line));
}

static void describe(profile_t *p, const char *program) {
  p->program = profile_cstring(p, program);
  p->period_type = (profile_type_t){profile_cstring(p, "cpu"), profile_cstring(p, "nanoseconds")};
  p->period = 10 * MS;
  p->time_nanos = INT64_C(1735732800) * 1000 * MS;
  p->duration_nanos = INT64_C(2000) * MS;
}

/* So many samples of 10 ms and so many bytes at a stack. */
static void add(profile_t *p, uint32_t stack, int64_t samples, int64_t bytes) {
  int64_t values[PROFILE_MAX_TYPES] = {samples, samples * 10 * MS, bytes};
  profile_add(p, stack, 0, values);
}

/* 100 samples, 1 s, 4 MiB. Flat: work 30 (10 on line 12, 20 on line 14), string.rep 30, idle 30, fact 10.
 * Cumulative: main 100, work 60, string.rep 30, idle 30, fact 10 (it calls itself). */
static void make_small(profile_t *p) {
  describe(p, "lua5.4 /srv/app/demo.lua --config /etc/demo/settings.lua");
  profile_add_type(p, "samples", "count");
  profile_add_type(p, "cpu", "nanoseconds");
  profile_add_type(p, "alloc_space", "bytes");
  p->default_type = 1;
  p->losses[LOSS_TRUNCATED] = 3;
  p->losses[LOSS_DROPPED] = 1234;
  profile_add_comment(p, profile_cstring(p, "host: testbed"));
  uint32_t top = call(p, 0, "main", "demo.lua", 0, 50);
  uint32_t work12 = call(p, top, "work", "demo.lua", 10, 12),
           work14 = call(p, top, "work", "demo.lua", 10, 14);
  uint32_t fact = call(p, call(p, top, "fact", "demo.lua", 30, 32), "fact", "demo.lua", 30, 32);
  add(p, call(p, work12, "string.rep", "[C]", 0, 0), 30, 1 << 20);
  add(p, work12, 10, 0);
  add(p, work14, 20, 0);
  add(p, call(p, top, "idle", "demo.lua", 20, 21), 30, 3 << 20);
  add(p, fact, 10, 0);
}

/* 29 KiB in use in 19 objects, 2058 KiB allocated, in two stacks, told apart by age. */
static void make_heap(profile_t *p) {
  describe(p, "/srv/app/heap.lua");
  p->period_type = (profile_type_t){profile_cstring(p, "space"), profile_cstring(p, "bytes")};
  p->period = 512 << 10;
  profile_add_type(p, "alloc_objects", "count");
  profile_add_type(p, "alloc_space", "bytes");
  profile_add_type(p, "inuse_objects", "count");
  p->default_type = profile_add_type(p, "inuse_space", "bytes");
  profile_label_t age = {profile_cstring(p, "gc_cycles_survived"), 0, 4, 0};
  uint32_t old = profile_label_set(p, &age, 1), top = call(p, 0, "main", "heap.lua", 0, 50);
  uint32_t load = call(p, top, "load", "heap.lua", 10, 12), rep = call(p, top, "string.rep", "[C]", 0, 0);
  profile_add(p, load, 0, (int64_t[PROFILE_MAX_TYPES]){10, 10 << 10, 4, 4 << 10});
  profile_add(p, load, old, (int64_t[PROFILE_MAX_TYPES]){0, 0, 5, 5 << 10});
  profile_add(p, rep, 0, (int64_t[PROFILE_MAX_TYPES]){1000, 2 << 20, 0, 0});
  profile_add(p, rep, old, (int64_t[PROFILE_MAX_TYPES]){0, 0, 10, 20 << 10});
}

/* 79 calls and 18 ms, corrected. Exclusive, in ms: main 9, f 2 + 1 (it calls itself), g in f 4, g 1, [region checkout] 0, h in it 1; n
 * was corrected by 6 us too much. Inclusive: f 7, g 5. */
static void trace(profile_t *p, uint32_t stack, int64_t calls, int64_t exclusive, int64_t min, int64_t max) {
  int64_t values[PROFILE_MAX_TYPES] = {calls, exclusive, 0, exclusive + calls * 100, 0, min, max};
  profile_add(p, stack, 0, values);
}

static void make_traced(profile_t *p) {
  describe(p, "/srv/app/traced.lua");
  for (int i = 0; i < TRACE_VALUES; i++) profile_add_type(p, trace_value_names[i], trace_value_unit(i));
  p->default_type = TRACE_EXCLUSIVE;
  p->period_type = (profile_type_t){0, 0};
  p->period = 0;
  profile_add_comment(p, profile_cstring(p, "luapulse 0.1.0, Lua 5.4, every call, engine trace"));
  uint32_t top = call(p, 0, "main", "traced.lua", 0, 0), f = call(p, top, "f", "traced.lua", 10, 10);
  uint32_t region = call(p, top, "[region checkout]", "", 0, 0);
  trace(p, top, 0, 9 * MS, 0, 0);
  trace(p, f, 4, 2 * MS, MS, 3 * MS);
  trace(p, call(p, f, "f", "traced.lua", 10, 10), 1, MS, MS, MS);
  trace(p, call(p, f, "g", "traced.lua", 20, 20), 8, 4 * MS, MS / 4, MS);
  trace(p, call(p, top, "g", "traced.lua", 20, 20), 2, MS, MS / 4, MS);
  trace(p, region, 1, 0, MS, MS);
  trace(p, call(p, region, "h", "traced.lua", 30, 30), 3, MS, MS / 4, MS / 2);
  trace(p, call(p, top, "n", "traced.lua", 40, 40), 60, -6000, -200, 50);
  trace_finish(p);
}

/* Names that try to leave the page's data and become its markup or script. */
static void make_hostile(profile_t *p) {
  static const char control[] = "nul\0bell\aesc\033[31mline\nend";
  static const char *const names[] = {
      "</script><img src=x onerror=\"window.harmed=1\">",
      "</SCRIPT /",
      "<!--<script>window.harmed=1",
      "]]>&lt;b&gt;&amp;",
      "__proto__",
      "constructor",
      "\"};window.harmed=1;//",
      "bidi\342\200\256evil",
      "sep\342\200\250\342\200\251",
      "bytes\xff\xfe\xc0\x80",
      "$&$1`<!--luapulse:json-->",
  };
  describe(p, "</title><script>window.harmed=1</script>");
  profile_add_type(p, "</option><img src=x onerror=window.harmed=1>", "<b>unit");
  profile_add_comment(p, profile_cstring(p, "<img src=x onerror=window.harmed=1>"));
  int64_t one[PROFILE_MAX_TYPES] = {10};
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
    profile_add(p, call(p, 0, names[i], "<i>file</i>.lua", 1, 1), 0, one);
  profile_add(p, profile_stack(p, 0, frame(p, control, sizeof control - 1, "=stdin", 1, 1)), 0, one);
  char *longest = malloc(200000);
  if (longest != NULL) {
    memset(longest, 'x', 200000);
    profile_add(p, profile_stack(p, 0, frame(p, longest, 200000, "long.lua", 1, 1)), 0, one);
  }
  free(longest);
}

/* One path 1,024 deep and 120,000 more nodes, placed by a fixed generator. */
static void make_big(profile_t *p) {
  enum { NODES = 120000, FUNCTIONS = 4000 };
  char name[32];
  uint32_t *node = calloc(NODES, sizeof *node);
  if (node == NULL) return;
  uint64_t seed = 42;
  describe(p, "big.lua");
  profile_add_type(p, "samples", "count");
  profile_add_type(p, "cpu", "nanoseconds");
  for (size_t i = 0; i < NODES; i++) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    uint64_t random = seed >> 33;
    unsigned function = (unsigned)(random % FUNCTIONS);
    snprintf(name, sizeof name, "function_%u", function);
    uint32_t caller = i == 0 ? 0 : i < 1024 ? node[i - 1] : node[(random / FUNCTIONS) % (i / 8)];
    node[i] = call(p, caller, name, "big.lua", function * 10, function * 10 + (int64_t)(i % 5));
    add(p, node[i], 1 + (int64_t)(random % 7), 0);
  }
  free(node);
}

/* Something like a real program, for eyes: "path weight", frames as name@file:line, callers first. */
#define SERVE "main@app.lua:212;serve@server/loop.lua:"
#define HANDLE SERVE "52;handle@server/http.lua:"
#define DISPATCH HANDLE "124;dispatch@server/router.lua:"
#define AUTH DISPATCH "71;auth.check@middleware/auth.lua:19;jwt.verify@middleware/jwt.lua:"
#define ORDERS DISPATCH "74;orders.list@handlers/orders.lua:"
#define QUERY ORDERS "27;db.query@db/pool.lua:"
#define ENCODE ORDERS "41;json.encode@util/json.lua:160;encode_table@util/json.lua:118;"
#define RENDER DISPATCH "74;users.show@handlers/users.lua:22;template.render@view/template.lua:"

static const char *const realistic[] = {
    SERVE "48;poll.wait@[C]:0 210",
    HANDLE "118;parse_request@server/http.lua:31;string.find@[C]:0 160",
    HANDLE
    "118;parse_request@server/http.lua:35;parse_headers@server/http.lua:74;string.gmatch iterator@[C]:0 240",
    HANDLE "118;parse_request@server/http.lua:35;parse_headers@server/http.lua:77;string.lower@[C]:0 95",
    HANDLE "118;parse_request@server/http.lua:35;parse_headers@server/http.lua:78 130",
    DISPATCH "66;match_route@server/router.lua:41 310",
    DISPATCH "66;match_route@server/router.lua:43;string.match@[C]:0 280",
    AUTH "88;hmac_sha256@[C]:0 520",
    AUTH "92;base64.decode@util/base64.lua:44 410",
    AUTH "92;base64.decode@util/base64.lua:51;string.byte@[C]:0 150",
    QUERY "102;pg_exec@[C]:0 980",
    QUERY "109;decode_row@db/types.lua:58 640",
    QUERY "109;decode_row@db/types.lua:63;parse_timestamp@db/types.lua:21;string.match@[C]:0 470",
    QUERY "109;decode_row@db/types.lua:63;parse_timestamp@db/types.lua:24;os.time@[C]:0 220",
    ORDERS "33;table.sort@[C]:0;by_date@handlers/orders.lua:12 330",
    ORDERS "33;table.sort@[C]:0 190",
    ENCODE "encode_table@util/json.lua:118;encode_string@util/json.lua:71;string.gsub@[C]:0 760",
    ENCODE "encode_table@util/json.lua:121;encode_number@util/json.lua:88;string.format@[C]:0 350",
    ENCODE "encode_table@util/json.lua:118;encode_table@util/json.lua:124;table.concat@[C]:0 280",
    ENCODE "encode_table@util/json.lua:118;encode_string@util/json.lua:74 210",
    DISPATCH "74;users.show@handlers/users.lua:18;cache.get@util/cache.lua:33 260",
    RENDER "140;anonymous@view/user.tpl:3;escape_html@view/template.lua:31;string.gsub@[C]:0 540",
    RENDER "140;anonymous@view/user.tpl:9;format_date@view/filters.lua:17;os.date@[C]:0 230",
    RENDER "131;compile@view/template.lua:77;load@[C]:0 390",
    RENDER "131;compile@view/template.lua:69;tokenize@view/lexer.lua:52 300",
    HANDLE "131;write_response@server/http.lua:205;socket.send@[C]:0 420",
    HANDLE "131;write_response@server/http.lua:199;table.concat@[C]:0 120",
    SERVE "58;run_timers@server/timer.lua:29;flush_metrics@metrics.lua:64;string.format@[C]:0 140",
    SERVE "58;run_timers@server/timer.lua:29;cache.sweep@util/cache.lua:81;next@[C]:0 90",
    SERVE "58;run_timers@server/timer.lua:29;cache.sweep@util/cache.lua:84 110",
    "main@app.lua:190;require@[C]:0;load_config@config.lua:12;dofile@[C]:0 45",
    "[outside Lua] 130",
    "[truncated];visit@util/walk.lua:14;visit@util/walk.lua:14;visit@util/walk.lua:17 60",
    "[overflow] 12",
};

/* Where the function was first said to start; otherwise a little above the line. */
static int64_t start_of(const profile_t *p, const char *name, size_t len, const char *file, int64_t line) {
  for (size_t i = 0; i < p->function_count; i++) {
    text_t known = profile_text(p, p->functions[i].name);
    if (known.len == len && memcmp(known.data, name, len) == 0 &&
        strcmp(profile_text(p, p->functions[i].file).data, file) == 0)
      return p->functions[i].start_line;
  }
  return line > 9 ? line / 10 * 10 - 9 : line > 0;
}

/* Adds one line of the list. */
static void add_path(profile_t *p, const char *path) {
  uint32_t stack = 0;
  for (;;) {
    size_t len = strcspn(path, ";");
    const char *space = path[len] == '\0' ? strrchr(path, ' ') : NULL;
    if (space != NULL) len = (size_t)(space - path);
    const char *at = memchr(path, '@', len),
               *colon = at != NULL ? memchr(at, ':', len - (size_t)(at - path)) : NULL;
    char file[64] = "";
    long line = colon != NULL ? strtol(colon + 1, NULL, 10) : 0;
    if (colon != NULL) snprintf(file, sizeof file, "%.*s", (int)(colon - at - 1), at + 1);
    size_t name = at != NULL ? (size_t)(at - path) : len;
    stack = profile_stack(p, stack, frame(p, path, name, file, start_of(p, path, name, file, line), line));
    path += len;
    if (*path != ';') break;
    path++;
  }
  int64_t weight = strtol(path, NULL, 10);
  add(p, stack, weight, weight * 4096 + weight % 7 * 65536);
}

static void make_realistic(profile_t *p) {
  describe(p, "/srv/shop/app.lua");
  profile_add_type(p, "samples", "count");
  profile_add_type(p, "cpu", "nanoseconds");
  profile_add_type(p, "alloc_space", "bytes");
  p->default_type = 1;
  p->duration_nanos = INT64_C(180000) * MS;
  p->losses[LOSS_UNATTRIBUTED] = 130;
  p->losses[LOSS_TRUNCATED] = 60;
  p->losses[LOSS_OVERFLOW] = 12;
  profile_add_comment(p, profile_cstring(p, "luapulse 0.1.0, Lua 5.4.6, cpu_clock=timer"));
  profile_add_comment(p, profile_cstring(p, "host: shop-3"));
  for (size_t i = 0; i < sizeof realistic / sizeof realistic[0]; i++) add_path(p, realistic[i]);
}

static void make_empty(profile_t *p) {
  profile_add_type(p, "samples", "count");
  profile_add_type(p, "cpu", "nanoseconds");
}

static const struct {
  const char *name;
  void (*make)(profile_t *p);
} cases[] = {
    {"small", make_small}, {"hostile", make_hostile}, {"big", make_big},     {"realistic", make_realistic},
    {"heap", make_heap},   {"traced", make_traced},   {"empty", make_empty},
};

static bool write_page(const profile_t *p, const char *path) {
  failure_t failure;
  int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
  sink_t *sink = fd >= 0 ? sink_to_fd(fd) : NULL;
  if (sink != NULL) html_write(p, sink);
  bool written = sink != NULL && sink_close(sink, &failure);
  if (fd >= 0 && close(fd) != 0) written = false;
  return written;
}

int main(int argc, char **argv) {
  for (size_t i = 0; argc == 3 && i < sizeof cases / sizeof cases[0]; i++) {
    if (strcmp(argv[1], cases[i].name) != 0) continue;
    profile_t *p = profile_new();
    if (p != NULL) cases[i].make(p);
    bool written = p != NULL && profile_ok(p) && write_page(p, argv[2]);
    profile_free(p);
    if (!written) fprintf(stderr, "make_page: cannot write %s\n", argv[2]);
    return written ? 0 : 1;
  }
  fprintf(stderr, "usage: make_page small|hostile|big|realistic|heap|traced|empty FILE\n");
  return 2;
}
