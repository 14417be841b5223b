/* SPDX-License-Identifier: MIT */
/* Functions are called what their source calls them, or keep their place; no text does harm. */
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "unit.h"

#include "failing_memory.h"
#include "folder.h"
#include "name/definition.h"
#include "name/source.h"
#include "sample_profile.h"

/* -- definition_name ------------------------------------------------------------------------------------- */

/* The text stands at the end of a page with nothing behind it: a byte read too far is a crash. */
static char *at_the_edge(const char *text, size_t len) {
  size_t page = (size_t)sysconf(_SC_PAGESIZE), room = (len + page) / page * page;
  char *memory =
      mmap(NULL, room + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  assert_ptr_not_equal(memory, MAP_FAILED);
  assert_int_equal(mprotect(memory + room, page, PROT_NONE), 0);
  char *copy = memory + room - len;
  memcpy(copy, text, len);
  return copy;
}

static void assert_named(const char *text, size_t len, uint32_t line, const char *wanted) {
  char name[64] = "untouched";
  char *edge = at_the_edge(text, len);
  size_t got = definition_name(edge, len, line, name, sizeof name);
  if (strcmp(name, wanted) != 0) print_error("line %u of: %.*s\n", line, (int)(len < 200 ? len : 200), text);
  assert_string_equal(name, wanted);
  assert_int_equal(got, strlen(wanted));
}

typedef struct {
  const char *text;
  uint32_t line;
  const char *name;
} name_case_t;

static void assert_all_named(const name_case_t *cases, size_t count) {
  for (size_t i = 0; i < count; i++)
    assert_named(cases[i].text, strlen(cases[i].text), cases[i].line, cases[i].name);
}
#define ASSERT_ALL_NAMED(cases) assert_all_named(cases, sizeof(cases) / sizeof *(cases))

static void declarations_say_their_names(void **state) {
  (void)state;
  static const name_case_t cases[] = {
      {"function f() end", 1, "f"},
      {"local function f(a, b)", 1, "f"},
      {"\tlocal  function\tf (", 1, "f"},
      {"global function f(", 1, "f"},
      {"function M.f(", 1, "M.f"},
      {"function M.a.f(", 1, "M.a.f"},
      {"function M:m(", 1, "M:m"},
      {"function M . a : m (x) return x end", 1, "M.a:m"},
      {"function _1_(...)", 1, "_1_"},
      {"if x then function f() end end", 1, "f"},
      {"function --[[ odd ]] f --[==[ ]] ]==] (", 1, "f"},
      {"a = {\n}, local function g()", 2, "g"},
      {"function f", 1, ""}, /* the rest of the name may follow */
      {"function M.", 1, ""},
      {"function\n f()", 1, ""},
      {"function M.1(", 1, ""},
      {"function end(", 1, ""},
      {"functional(", 1, ""},
      {"a_function(", 1, ""},
  };
  ASSERT_ALL_NAMED(cases);
}

static void assignments_name_their_functions(void **state) {
  (void)state;
  static const name_case_t cases[] = {
      {"f = function() end", 1, "f"},
      {"f=function(a)", 1, "f"},
      {"local f = function (", 1, "f"},
      {"local f <const> = function(", 1, "f"},
      {"local f<close> = function(", 1, "f"},
      {"M.f = function(", 1, "M.f"},
      {"M.a.b.f = function(", 1, "M.a.b.f"},
      {"M['f'] = function(", 1, "M.f"},
      {"M[\"a\"].f = function(", 1, "M.a.f"},
      {"M['GET /'] = function(", 1, "GET /"},
      {"x = 1; f = function(", 1, "f"},
      {"x = y f = function(", 1, "f"},
      {"if a == b then f = function(", 1, "f"},
      {"t[i].f = function(", 1, "f"},
      {"t[i].a.f = function(", 1, "f"},
      {"get(x, y).f = function(", 1, "f"},
      {"a.b.c.d.e.f.g.h = function(", 1, "a.b.c.d.e.f.g.h"},
      {"a.b.c.d.e.f.g.h.i = function(", 1, ""}, /* too long to be a name */
      {"f = wrap(function(", 1, ""},
      {"f = (function(", 1, ""},
      {"f = g or function(", 1, ""},
      {"return function(", 1, ""},
      {"t[i] = function(", 1, ""},
      {"t['a' .. b] = function(", 1, ""},
      {"t['\\65'] = function(", 1, ""},
      {"t[''] = function(", 1, ""},
      {"f == function(", 1, ""},
      {"f ~= function(", 1, ""},
      {"pcall(function(", 1, ""},
      {"function(", 1, ""},
      {"= function(", 1, ""},
  };
  ASSERT_ALL_NAMED(cases);
}

static void fields_name_their_functions(void **state) {
  (void)state;
  static const name_case_t cases[] = {
      {"t = { f = function(", 1, "f"},
      {"{ [\"f\"] = function(", 1, "f"},
      {"{ ['f']=function(", 1, "f"},
      {"['on click'] = function(", 1, "on click"},
      {"{ a = 1, f = function(", 1, "f"},
      {"{ a = b, f = function(", 1, "f"},
      {"{ a = b.c[1], f = function(", 1, "f"},
      {"{ a = b or c, f = function(", 1, "f"},
      {"{ a = g(x, y), f = function(", 1, "f"},
      {"{ a = { b, c }, f = function(", 1, "f"},
      {"{ a, b, f = function(", 1, "f"},
      {"{ 'a', f = function(", 1, "f"},
      {"{ g('a').b, f = function(", 1, "f"},
      {"{ a = 1; f = function(", 1, "f"},
      {"{ ['a'] = 1, ['f'] = function(", 1, "f"},
      {"g { f = function(", 1, "f"},
      {"t = {\n  a = function() end,\n  f = function(", 3, "f"},
      {"t = {\n  a = nil,\n\n  -- a word,\n  f = function(", 5, "f"},
      {"t = {\n  a = b\n  , f = function(", 3, "f"},
  };
  ASSERT_ALL_NAMED(cases);
}

static void registered_functions_go_by_that_name(void **state) {
  (void)state;
  static const name_case_t cases[] = {
      {"redis.register_function('f', function(keys, args)", 1, "f"},
      {"redis.register_function(\"f\", function(", 1, "f"},
      {"x = 1 redis.register_function('f', function(", 1, "f"},
      {"redis.register_function(\n  'f',\n  function(", 3, "f"},
      {"redis.register_function( -- why\n  'f', -- (it, is)\n  -- so\n\n  function(", 5, "f"},
      {"redis.register_function('f',\r\n  function(", 2, "f"},
      {"core.register_action('f', { 'http-req', 'x' }, function(", 1, "f"},
      {"core.register_service('f', 'http', function(", 1, "f"},
      {"register('f', 1, function(", 1, "f"},
      {"redis.register_function{ function_name='f', callback=function(", 1, "f"},
      {"redis.register_function {\n  function_name = 'f',\n  callback = function(", 3, "f"},
      {"register{\n  function_name = 'f',\n  flags = { 'no-writes', 'x' },\n  n = 1, y = a.b,\n  callback = "
       "function(",
       5, "f"},
      {"{ description = 'a, b', function_name = 'f'; callback = function(", 1, "f"},
      {"{ callback = function(", 1, "callback"},
      {"{ function_name = f, callback = function(", 1, "callback"},
      {"{ function_name = 'f' }\nlocal t = { callback = function(", 2, "callback"},
      {"{ function_name = 'f', callback = 1 }\nt = { a = 1, callback = function(", 2, "callback"},
      {"local callback = function(", 1, "callback"},
      {"redis.register_function('f', wrap(function(", 1, ""},
      {"redis.register_function('f' .. x, function(", 1, ""},
      {"redis.register_function(f, function(", 1, ""},
      {"redis.register_function('f', f, function(", 1, ""},
      {"redis.register_function('a', a) pcall('f', function(", 1, ""},
      {"string.gsub(s, '%w+', function(", 1, ""},
      {"gsub('text', function(", 1, ""},
      {"('f', function(", 1, ""},
      {"register 'f', function(", 1, ""},
      {"register('f', function() end) register('g', function() end)", 1, ""},
      {"register(\n\n\n\n\n\n\n\n\n\n'f', function(", 11, ""}, /* too far */
  };
  ASSERT_ALL_NAMED(cases);
}

static void assert_spans(const char *text, uint32_t line, uint32_t last_line, const char *wanted) {
  size_t begin, end, len = strlen(text);
  char *edge = at_the_edge(text, len);
  bool spans = definition_spans(edge, len, line, last_line, &begin, &end);
  assert_int_equal(spans, wanted != NULL);
  if (wanted == NULL) return;
  assert_int_equal(end - begin, strlen(wanted));
  assert_memory_equal(edge + begin, wanted, end - begin);
}

static void lines_of_a_function_begin_and_end_it(void **state) {
  (void)state;
  static const char text[] = "#!lua name=x\nlocal function f(a)\n  return 'end'\nend\nf(function() end)\n";
  assert_spans(text, 2, 4, "local function f(a)\n  return 'end'\nend");
  assert_spans(text, 5, 5, "f(function() end)");
  assert_spans(text, 2, 5, "local function f(a)\n  return 'end'\nend\nf(function() end)");
  assert_spans(text, 2, 3, NULL); /* a string */
  assert_spans(text, 2, 2, NULL);
  assert_spans(text, 3, 4, NULL);
  assert_spans(text, 4, 2, NULL);
  assert_spans(text, 0, 4, NULL);
  assert_spans(text, 1, 4, NULL);
  assert_spans(text, 2, 9, NULL);
  assert_spans("", 1, 1, NULL);
}

static void several_variables_are_no_name(void **state) {
  (void)state;
  static const name_case_t cases[] = {
      {"a, b = function() end", 1, ""},
      {"local a, b = function() end", 1, ""},
      {"local a <const>, b = function() end", 1, ""},
      {"M.a, M.b = function() end", 1, ""},
      {"a[1], b = function() end", 1, ""},
      {"g(x).a, b = function() end", 1, ""},
      {"a, b, c = function() end", 1, ""},
      {"a, g().b = function() end", 1, ""},
      {"a, b['c'] = function() end", 1, ""},
      {"x = 1 a, b = function() end", 1, ""},
      {"x = y a, b = function() end", 1, ""},
      {"a = 1, function() end", 1, ""},
      {"local a,\n  b = function() end", 2, ""},
      {"local a\n  , b = function() end", 2, ""},
      {"a,\n  b = function() end", 2, ""},
  };
  ASSERT_ALL_NAMED(cases);
}

static void a_name_on_the_line_before_counts(void **state) {
  (void)state;
  static const name_case_t cases[] = {
      {"local f =\n  function(", 2, "f"},
      {"local f = -- why\n\n  -- because\n  function(", 4, "f"},
      {"M.f\n  = function(", 2, "M.f"},
      {"M.\nf = function(", 2, "M.f"},
      {"M.a.b =\r\n\r\n  function(", 3, "M.a.b"},
      {"#!/usr/bin/lua =\nfunction(", 2, ""},
      {"f = wrap(\n  function(", 2, ""},
      {"a, b =\n  function(", 2, ""},
      {"return\n  function(", 2, ""},
      {"x = f\nfunction(", 2, ""},
      {"local s = 'f =\nfunction(", 2, ""},
  };
  ASSERT_ALL_NAMED(cases);
}

static void two_functions_on_a_line_have_no_name(void **state) {
  (void)state;
  static const name_case_t cases[] = {
      {"function f() return function() end end", 1, ""},
      {"a = function() end b = function() end", 1, ""},
      {"{ a = function() end, b = function() end }", 1, ""},
  };
  ASSERT_ALL_NAMED(cases);
}

static void strings_and_comments_are_no_code(void **state) {
  (void)state;
  static const name_case_t cases[] = {
      {"-- function f()", 1, ""},
      {"x = 'function f()'", 1, ""},
      {"x = \"a\\\"function f()\"", 1, ""},
      {"x = [[function f()]]", 1, ""},
      {"x = [==[ ]] function f() ]=] ]==]", 1, ""},
      {"--[[ function f() ]] function g() end", 1, "g"},
      {"function g() end -- function f()", 1, "g"},
      {"g = function() return 'function f()' end", 1, "g"},
      {"g = function() return [[ function f() ", 1, "g"},
      {"'it\\'s' .. x function g()", 1, "g"},
      {"x = 1e-5 function g()", 1, "g"},
      {"x = 0x1p-3..[[=]] function g()", 1, "g"},
      {"x = t[1] function g()", 1, "g"},
      {"x = t[ [=[a]=] ] function g()", 1, "g"},
      {"x = a - -b function g()", 1, "g"},
      {"x = a--b function g()", 1, ""},
  };
  ASSERT_ALL_NAMED(cases);
}

static void lines_end_as_they_do_for_lua(void **state) {
  (void)state;
  static const name_case_t cases[] = {
      {"a\nfunction f()\nb", 2, "f"},
      {"a\r\nfunction f()\r\nb", 2, "f"},
      {"a\n\rfunction f()\n\rb", 2, "f"},
      {"a\rfunction f()\rb", 2, "f"},
      {"\r\n\r\n\r\nfunction f()", 4, "f"},
      {"\n\n\nfunction f()", 4, "f"},
      {"\n\n\nfunction f()", 3, ""},
      {"\n\n\nfunction f()", 5, ""},
      {"function f()\n", 2, ""},
      {"function f()", UINT32_MAX, ""},
      {"function f()", 0, ""},
      {"\xEF\xBB\xBF"
       "function f()",
       1, "f"},
      {"#!/bin/lua function f()\nx", 1, ""},
      {"\xEF\xBB\xBF#!lua\nf = function()", 2, "f"},
  };
  ASSERT_ALL_NAMED(cases);
}

static void hostile_text_has_no_name_and_does_no_harm(void **state) {
  (void)state;
  assert_named("", 0, 1, "");
  assert_named("", 0, 2, "");
  assert_named("\n", 1, 2, "");
  assert_named("\0\0\0", 3, 1, "");
  assert_named("f\0= function()", 14, 1, "");
  assert_named("\0 f = function()", 16, 1, "f");
  assert_named("function f\0()", 13, 1, "");
  static const char *const cut[] = {
      "\"",  "'\\", "[[", "[",  "[=", "--[[", "--[==",    "--",       "-",           ".", "..", ":",
      "f =", "1e",  "\\", "]]", "<",  "\xEF", "\xEF\xBB", "function", "function\n(", "#", "\r"};
  for (size_t i = 0; i < sizeof cut / sizeof *cut; i++) assert_named(cut[i], strlen(cut[i]), 1, "");
}

/* Every beginning of a text gives its name or none, never a part of it. */
static void a_cut_text_gives_no_cut_name(void **state) {
  (void)state;
  static const char text[] = "M.name = function(a) return '[[' end -- [[x\nlocal function second(b)";
  for (size_t len = 0; len < sizeof text; len++) {
    assert_named(text, len, 1, len > strlen("M.name = function") ? "M.name" : "");
    assert_named(text, len, 2, len >= strlen(text) - strlen("b)") ? "second" : "");
  }
}

static void a_name_that_does_not_fit_is_none(void **state) {
  (void)state;
  static const char text[] = "M.abc = function()";
  char name[8];
  for (size_t size = 1; size < sizeof name; size++) {
    memset(name, 'x', sizeof name);
    assert_int_equal(definition_name(text, strlen(text), 1, name, size), size > 5 ? 5 : 0);
    assert_string_equal(name, size > 5 ? "M.abc" : "");
    assert_int_equal(name[size], 'x');
  }
  assert_int_equal(definition_name(text, strlen(text), 1, NULL, 0), 0);
}

/* Given a text larger than what is searched, when the line lies beyond, then it has no name. */
static void the_search_is_bounded(void **state) {
  (void)state;
  static const char last[] = "\nf = function() end\ng = function() end\n";
  size_t len = DEFINITION_MAX_TEXT + 100, at = DEFINITION_MAX_TEXT - 20;
  char *text = malloc(len);
  memset(text, ' ', len);
  memcpy(text + at, last, strlen(last));
  assert_named(text, len, 2, "f");
  assert_named(text, len, 3, "");
  assert_named(text, at + strlen("\nf = function()"), 2, "f");
  free(text);
}

/* Machines write such lines: they hold many functions, and what is before them does not matter. */
static void long_lines_have_no_name(void **state) {
  (void)state;
  static const char *const fillings[] = {"[", "]",  "=",  "a.",        "\"", "--[[",
                                         "(", ",a", "[=", "function ", " "};
  static const char last[] = "f = function() end\ng = function() end\n";
  for (size_t i = 0; i < sizeof fillings / sizeof *fillings; i++) {
    char text[10000];
    for (size_t j = 0; j < sizeof text; j++) text[j] = fillings[i][j % strlen(fillings[i])];
    memcpy(text + 5000, last, strlen(last));
    assert_named(text, sizeof text, 1, "");
    assert_named(text, sizeof text, 2, "g");
    text[4999] = '\n';
    assert_named(text, sizeof text, 1, "");
    assert_named(text, sizeof text, 2, "f");
  }
}

/* -- source_name_functions ------------------------------------------------------------------------------- */

static void put(const char *path, const char *text) {
  FILE *file = fopen(path, "w");
  assert_non_null(file);
  fputs(text, file);
  fclose(file);
}

static const char *name_of(const profile_t *p, uint32_t frame) {
  return profile_text(p, p->functions[p->frames[frame].function].name).data;
}

static void places_become_names(void **state) {
  (void)state;
  put("a.lua", "local function one() end\n\nfunction M:two() end\nreturn function() end\n");
  put("b.lua", "three = function() end\n");
  profile_t *p = profile_new();
  uint32_t one = sample_frame(p, "a.lua:1", "a.lua", 1, 1), three = sample_frame(p, "b.lua:1", "b.lua", 1, 1),
           two = sample_frame(p, "a.lua:3", "a.lua", 3, 3), none = sample_frame(p, "a.lua:4", "a.lua", 4, 4),
           beyond = sample_frame(p, "a.lua:99", "a.lua", 99, 99);
  source_name_functions(p);
  assert_string_equal(name_of(p, one), "one");
  assert_string_equal(name_of(p, two), "M:two");
  assert_string_equal(name_of(p, three), "three");
  assert_string_equal(name_of(p, none), "a.lua:4");
  assert_string_equal(name_of(p, beyond), "a.lua:99");
  const profile_function_t *function = &p->functions[p->frames[two].function];
  assert_string_equal(profile_text(p, function->system_name).data, "a.lua:3");
  assert_int_equal(function->start_line, 3);
  profile_free(p);
}

static void other_names_stay(void **state) {
  (void)state;
  put("a.lua", "local function one() end\n");
  profile_t *p = profile_new();
  static const struct {
    const char *name;
    int64_t line;
  } others[] = {{"uno", 1},
                {"main chunk", 0},
                {"a.lua:0", 0},
                {"a.lua:2", 1},
                {"a.lua:11", 1},
                {"b/a.lua:1", 1},
                {"lua:1", 1},
                {"a.lua:-1", -1},
                {"a.lua:1 [reload ]", 1},
                {"a.lua:1 [x]", 1},
                {"a.lua:4294967297", 4294967297}};
  uint32_t frames[sizeof others / sizeof *others];
  for (size_t i = 0; i < sizeof others / sizeof *others; i++)
    frames[i] = sample_frame(p, others[i].name, "a.lua", others[i].line, 1);
  source_name_functions(p);
  for (size_t i = 0; i < sizeof others / sizeof *others; i++)
    assert_string_equal(name_of(p, frames[i]), others[i].name);
  profile_free(p);
}

static void reloaded_code_keeps_its_mark(void **state) {
  (void)state;
  put("a.lua", "local function one() end\n");
  profile_t *p = profile_new();
  uint32_t first = sample_frame(p, "a.lua:1", "a.lua", 1, 1),
           last = sample_frame(p, "a.lua:1 [reload 4294967295]", "a.lua", 1, 1);
  source_name_functions(p);
  assert_string_equal(name_of(p, first), "one");
  assert_string_equal(name_of(p, last), "one [reload 4294967295]");
  profile_free(p);
}

/* Of a long path the agent shows the last 240 bytes. */
static void cut_places_become_names(void **state) {
  (void)state;
  char path[320] = "", name[360];
  for (int i = 0; i < 150; i++) strcat(path, "./");
  strcat(path, "a.lua");
  put("a.lua", "local function one() end\n");
  profile_t *p = profile_new();
  snprintf(name, sizeof name, "%s:1", path + strlen(path) - 240);
  uint32_t cut = sample_frame(p, name, path, 1, 1);
  snprintf(name, sizeof name, "%s:1 [reload 2]", path + strlen(path) - 240);
  uint32_t again = sample_frame(p, name, path, 1, 1);
  snprintf(name, sizeof name, "%s:1", path);
  uint32_t whole = sample_frame(p, name, path, 1, 1);
  snprintf(name, sizeof name, "%s:1", path + strlen(path) - 239);
  uint32_t other = sample_frame(p, name, path, 1, 1);
  source_name_functions(p);
  assert_string_equal(name_of(p, cut), "one");
  assert_string_equal(name_of(p, again), "one [reload 2]");
  assert_string_equal(name_of(p, whole), "one");
  assert_string_equal(name_of(p, other), name);
  profile_free(p);
}

static void what_is_no_file_is_left_alone(void **state) {
  (void)state;
  put("empty", "");
  put("huge", "function f() end\n");
  put("nul", "function f() end\n");
  assert_int_equal(truncate("huge", (off_t)SOURCE_MAX_BYTES + 1), 0);
  assert_int_equal(mkfifo("fifo", 0600), 0); /* opening it must not wait for a writer */
  assert_int_equal(mkdir("folder", 0700), 0);
  assert_int_equal(symlink("loop", "loop"), 0);
  profile_t *p = profile_new();
  static const char *const files[] = {"empty",   "huge",           "fifo",      "folder",  "loop",
                                      "missing", "[string \"x\"]", "/dev/zero", "/dev/tty"};
  uint32_t frames[sizeof files / sizeof *files];
  char name[64];
  for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
    snprintf(name, sizeof name, "%s:1", files[i]);
    frames[i] = sample_frame(p, name, files[i], 1, 1);
  }
  uint32_t string = profile_string(p, "nul\0x:1", 7);
  uint32_t nul = profile_function(p, (profile_function_t){string, string, profile_string(p, "nul\0x", 5), 1});
  source_name_functions(p);
  for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
    snprintf(name, sizeof name, "%s:1", files[i]);
    assert_string_equal(name_of(p, frames[i]), name);
  }
  assert_int_equal(p->functions[nul].name, string);
  assert_true(profile_ok(p));
  profile_free(p);
}

static void the_largest_file_is_read(void **state) {
  (void)state;
  put("a.lua", "function f() end\n");
  assert_int_equal(truncate("a.lua", (off_t)SOURCE_MAX_BYTES), 0);
  profile_t *p = profile_new();
  uint32_t frame = sample_frame(p, "a.lua:1", "a.lua", 1, 1);
  source_name_functions(p);
  assert_string_equal(name_of(p, frame), "f");
  profile_free(p);
}

static void without_memory_names_stay(void **state) {
  (void)state;
  put("a.lua", "function one() end\nfunction two() end\n");
  for (int for_good = 0; for_good < 2; for_good++) {
    bool failed = true;
    for (size_t n = 1; failed; n++) {
      profile_t *p = profile_new();
      uint32_t one = sample_frame(p, "a.lua:1", "a.lua", 1, 1),
               two = sample_frame(p, "a.lua:2", "a.lua", 2, 2);
      failing_memory_start(n, for_good != 0);
      source_name_functions(p);
      failed = failing_memory_stop();
      assert_true(profile_ok(p));
      bool named_one = strcmp(name_of(p, one), "one") == 0, named_two = strcmp(name_of(p, two), "two") == 0;
      assert_true(named_one || strcmp(name_of(p, one), "a.lua:1") == 0);
      assert_true(named_two || strcmp(name_of(p, two), "a.lua:2") == 0);
      assert_true(failed != (named_one && named_two));
      profile_free(p);
    }
  }
}

static void an_empty_or_failed_profile_is_left_alone(void **state) {
  (void)state;
  profile_t *p = profile_new();
  source_name_functions(p);
  assert_true(profile_ok(p));
  put("a.lua", "function one() end\n");
  uint32_t one = sample_frame(p, "a.lua:1", "a.lua", 1, 1);
  p->failed = true;
  source_name_functions(p);
  assert_false(profile_ok(p));
  assert_string_equal(name_of(p, one), "a.lua:1");
  profile_free(p);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(declarations_say_their_names),
    cmocka_unit_test(assignments_name_their_functions),
    cmocka_unit_test(fields_name_their_functions),
    cmocka_unit_test(registered_functions_go_by_that_name),
    cmocka_unit_test(lines_of_a_function_begin_and_end_it),
    cmocka_unit_test(several_variables_are_no_name),
    cmocka_unit_test(a_name_on_the_line_before_counts),
    cmocka_unit_test(two_functions_on_a_line_have_no_name),
    cmocka_unit_test(strings_and_comments_are_no_code),
    cmocka_unit_test(lines_end_as_they_do_for_lua),
    cmocka_unit_test(hostile_text_has_no_name_and_does_no_harm),
    cmocka_unit_test(a_cut_text_gives_no_cut_name),
    cmocka_unit_test(a_name_that_does_not_fit_is_none),
    cmocka_unit_test(the_search_is_bounded),
    cmocka_unit_test(long_lines_have_no_name),
    cmocka_unit_test_setup_teardown(places_become_names, folder_enter, folder_leave),
    cmocka_unit_test_setup_teardown(other_names_stay, folder_enter, folder_leave),
    cmocka_unit_test_setup_teardown(reloaded_code_keeps_its_mark, folder_enter, folder_leave),
    cmocka_unit_test_setup_teardown(cut_places_become_names, folder_enter, folder_leave),
    cmocka_unit_test_setup_teardown(what_is_no_file_is_left_alone, folder_enter, folder_leave),
    cmocka_unit_test_setup_teardown(the_largest_file_is_read, folder_enter, folder_leave),
    cmocka_unit_test_setup_teardown(without_memory_names_stay, folder_enter, folder_leave),
    cmocka_unit_test_setup_teardown(an_empty_or_failed_profile_is_left_alone, folder_enter, folder_leave),
};
UNIT_MAIN(tests)
