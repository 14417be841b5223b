/* SPDX-License-Identifier: MIT */
/* Names of chunks in nginx's configuration, and where their text is in it. */
#include "attach/inline_source.h"

#include <string.h>

#include "unit.h"

static bool parse(inline_source_t *source, const char *name) {
  return inline_source_parse(source, name, strlen(name));
}

static void names_of_chunks_are_read(void **state) {
  (void)state;
  inline_source_t source;
  assert_true(parse(&source, "=content_by_lua(nginx.conf:42)"));
  assert_string_equal(source.directive, "content_by_lua");
  assert_string_equal(source.file, "nginx.conf");
  assert_int_equal(source.line, 42);
  assert_true(parse(&source, "=init_worker_by_lua(a:b.conf:7)"));
  assert_string_equal(source.file, "a:b.conf");
}

static void other_names_are_refused(void **state) {
  (void)state;
  static const char *const names[] = {"",
                                      "=",
                                      "@app.lua",
                                      "=stdin",
                                      "=content_by_lua",
                                      "=content_by_lua(nginx.conf)",
                                      "=content_by_lua(nginx.conf:0)",
                                      "=content_by_lua(nginx.conf:4",
                                      "=content_by_lua(:4)",
                                      "content_by_lua(nginx.conf:42)",
                                      "=(nginx.conf:4)_by_lua("};
  inline_source_t source;
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) assert_false(parse(&source, names[i]));
  char large[4096];
  memset(large, 'x', sizeof large);
  memcpy(large, "=content_by_lua(", 16);
  assert_false(inline_source_parse(&source, large, sizeof large));
}

static void the_text_begins_behind_the_brace(void **state) {
  (void)state;
  static const char text[] =
      "http {\n"
      "  # content_by_lua_block { of a comment }\n"
      "  content_by_lua_block {\n"
      "    local x = 1\n"
      "  }\n"
      "  content_by_lua 'return 1';\n"
      "  access_by_lua_block";
  inline_source_t source = {.directive = "content_by_lua", .line = 3};
  const char *found = inline_source_text(&source, text, sizeof text - 1);
  assert_non_null(found);
  assert_memory_equal(found, "\n    local x", 12);
  for (source.line = 1; source.line < 20; source.line++)
    if (source.line != 3) assert_null(inline_source_text(&source, text, sizeof text - 1));
  strcpy(source.directive, "access_by_lua");
  source.line = 7;
  assert_null(inline_source_text(&source, text, sizeof text - 1));
  assert_null(inline_source_text(&source, text, 0));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(names_of_chunks_are_read),
    cmocka_unit_test(other_names_are_refused),
    cmocka_unit_test(the_text_begins_behind_the_brace),
};
UNIT_MAIN(tests)
