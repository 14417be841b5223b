/* SPDX-License-Identifier: MIT */
/* Layout data: what is written is what is read, and hostile text is refused in words. */
#include "walk/layout.h"

#include <stdlib.h>

#include "attach/table.h"
#include "unit.h"

enum { TEXT_BYTES = 8192 };

/* Parses a copy without a byte to spare, so that a sanitizer sees what is read past the end. */
static bool parse(const char *text, size_t len, size_t *at, layout_t *layout, layout_error_t *error) {
  char *copy = malloc(len > 0 ? len : 1);
  memcpy(copy, text, len);
  memset(error->text, 'x', sizeof error->text);
  bool done = layout_parse(copy, len, at, layout, error);
  free(copy);
  assert_non_null(memchr(error->text, '\0', sizeof error->text));
  return done;
}

static bool same_layout(const layout_t *a, const layout_t *b) {
  if (a->family != b->family || a->language != b->language || strcmp(a->name, b->name) != 0) return false;
  return a->family == LAYOUT_PUC ? memcmp(&a->puc, &b->puc, sizeof a->puc) == 0
                                 : memcmp(&a->luajit, &b->luajit, sizeof a->luajit) == 0;
}

static void every_known_layout_prints_and_parses_back(void **state) {
  (void)state;
  char text[TEXT_BYTES];
  const layout_t *known;
  size_t count = 0;
  for (; (known = layout_known(count)) != NULL; count++) {
    size_t len = layout_print(known, text, sizeof text), at = 0;
    layout_t back;
    layout_error_t error;
    assert_true(len < sizeof text && len == strlen(text));
    assert_true(parse(text, len, &at, &back, &error));
    assert_string_equal(error.text, "");
    assert_int_equal(at, len);
    assert_true(same_layout(known, &back));
    assert_null(layout_missing(known));
    /* without the newline at its end it is the same */
    at = 0;
    assert_true(parse(text, len - 1, &at, &back, &error));
    assert_true(same_layout(known, &back));
    /* there is no second one */
    at = len;
    assert_false(parse(text, len, &at, &back, &error));
    assert_string_equal(error.text, "");
  }
  assert_true(count > 10);
}

static bool is_optional_and_new(const char *field) {
  static const char *const fields[] = {
      "top=",      "allowhook=",   "strt.hash=", "callstatus=",   "hookmask=",  "str.tab=",
      "fin=",      "status=",      "allgc=",     "currentwhite=", "gc.root=",   "gc.currentwhite=",
      "l_gt=",     "l_registry=",  "env=",       "registrytv=",   "lsizenode=", "node=",
      "array=",    "sizearray=",   "arraytags=", "metatable=",    "hmask=",     "i_val=",
      "key_val=",  "key_tt=",      "val=",       "key=",          "gcstate=",   "gckind=",
      "gcstopem=", "gc.state=",    "tail=",      "tailcalls=",    "k=",         "sizek=",
      "locvars=",  "sizelocvars=", "upvalues=",  "sizeupvalues=", "varname=",   "startpc=",
      "endpc=",    "name=",        "tail_else=", "nextraargs=",   "numparams=", "maxstacksize=",
      "sizeuv=",   "uvinfo=",      "varinfo=",   "uvptr=",        "v=",         "base=",
      "traces=",   "nextroot=",    "mcode=",     "szmcode=",      "tobefnz="};
  for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
    if (strncmp(field, fields[i], strlen(fields[i])) == 0) return true;
  return false;
}

/* Lays the text out as before there were the optional fields. */
static void take_optional_fields_out(char *text, bool puc) {
  static const char *const sizes[] = {"\n  Node", "\n  LocVar",
                                      "\n  Upvaldesc"}; /* structures whose sizes are some of them */
  char *to = text;
  assert_non_null(strstr(text, "\n  Node size="));
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    char *size = strstr(text, sizes[i]);
    if (size == NULL) continue;
    size += strlen(sizes[i]);
    memmove(size, size + strlen(" size=24"), strlen(size + strlen(" size=24")) + 1);
  }
  for (const char *at = text; *at != '\0';) {
    const char *word = at + strspn(at, " ");
    size_t len = strcspn(at + (word - at), " \n");
    bool of_luajit = !puc && (strncmp(word, "top=", 4) == 0 || strncmp(word, "base=", 5) == 0 ||
                              strncmp(word, "startpc=", 8) == 0); /* which it cannot do without */
    if (word == at || !is_optional_and_new(word) || of_luajit) {
      size_t all = word == at ? strcspn(at, " ") : (size_t)(word - at) + len;
      memmove(to, at, all);
      to += all;
      at += all;
    } else {
      at = word + len;
    }
  }
  *to = '\0';
}

static void forget_tables_of_puc(layout_puc_t *l) {
  l->state_globals = l->global_registry = LAYOUT_ABSENT;
  l->table_log_nodes = l->table_nodes = l->table_array = l->table_array_count = LAYOUT_ABSENT;
  l->table_array_tags = l->table_metatable = LAYOUT_ABSENT;
  l->node_size = l->node_value = l->node_key = l->node_key_tag = LAYOUT_ABSENT;
}

static void forget_variables(layout_puc_t *l) {
  l->ci_tail_calls = l->status_tail = l->proto_constants = l->proto_constant_count = LAYOUT_ABSENT;
  l->proto_locals = l->proto_local_count = l->proto_upvalues = l->proto_upvalue_count = LAYOUT_ABSENT;
  l->local_size = l->local_name = l->local_start = l->local_end = LAYOUT_ABSENT;
  l->upvalue_size = l->upvalue_name = LAYOUT_ABSENT;
  l->ci_base = l->ci_extra = l->status_tail_else = LAYOUT_ABSENT;
  l->proto_parameters = l->proto_registers = LAYOUT_ABSENT;
}

static void forget_tables_of_luajit(layout_luajit_t *l) {
  l->state_globals = l->global_registry = LAYOUT_ABSENT;
  l->table_nodes = l->table_node_mask = l->table_metatable = LAYOUT_ABSENT;
  l->node_size = l->node_value = l->node_key = LAYOUT_ABSENT;
  l->proto_constants = l->proto_upvalue_count = l->proto_upvalues = l->proto_locals = LAYOUT_ABSENT;
  l->function_upvalues = l->function_globals = l->upvalue_value = LAYOUT_ABSENT;
  l->proto_trace = l->trace_next = l->trace_code = l->trace_code_bytes = LAYOUT_ABSENT;
}

/* The largest number for a field whose structure ends elsewhere in each layout; 0: for no such field. */
static uint16_t most_of_layout(const layout_t *known, const char *key) {
  const layout_puc_t *p = &known->puc;
  const layout_luajit_t *j = &known->luajit;
  uint32_t most = 0;
  if (known->family == LAYOUT_PUC) {
    if (strcmp(key, "callstatus.tail_else") == 0) most = p->status_tail / 8u * 8 + 7;
    if (strcmp(key, "CallInfo.base") == 0) most = p->ci_size - 8u;
    if (strcmp(key, "CallInfo.nextraargs") == 0) most = p->ci_size - 4u;
    if (strcmp(key, "Proto.numparams") == 0 || strcmp(key, "Proto.maxstacksize") == 0)
      most = p->proto_size - 1u;
    return (uint16_t)most;
  }
  if (strncmp(key, "GCproto.", 8) == 0) most = j->proto_size - (uint32_t)j->pointer;
  if (strcmp(key, "GCproto.sizeuv") == 0) most = j->proto_size - 1u;
  if (strcmp(key, "GCproto.traces") == 0) most = j->proto_size - 2u;
  if (strcmp(key, "GCfunc.env") == 0 || strcmp(key, "GCupval.v") == 0) most = 128u - j->pointer;
  return (uint16_t)most;
}

static void files_without_the_optional_fields_are_read(void **state) {
  (void)state;
  char text[TEXT_BYTES];
  const layout_t *known;
  for (size_t i = 0; (known = layout_known(i)) != NULL; i++) {
    size_t at = 0;
    layout_t expected = *known, layout;
    layout_error_t error;
    bool puc = known->family == LAYOUT_PUC;
    layout_print(known, text, sizeof text);
    take_optional_fields_out(text, puc);
    if (puc) {
      expected.puc.state_top = expected.puc.state_allowhook = expected.puc.global_strings = LAYOUT_ABSENT;
      expected.puc.ci_status = expected.puc.status_finalizer = LAYOUT_ABSENT;
      expected.puc.state_status = expected.puc.global_objects = expected.puc.global_white = LAYOUT_ABSENT;
      expected.puc.global_gc_state = expected.puc.global_gc_kind = expected.puc.global_gc_stop =
          expected.puc.global_waiting = LAYOUT_ABSENT;
      forget_tables_of_puc(&expected.puc);
      forget_variables(&expected.puc);
    } else {
      expected.luajit.state_status = expected.luajit.global_objects = expected.luajit.global_white =
          expected.luajit.global_gc_state = LAYOUT_ABSENT;
      expected.luajit.global_hookmask = expected.luajit.global_strings = LAYOUT_ABSENT;
      forget_tables_of_luajit(&expected.luajit);
    }
    if (!parse(text, strlen(text), &at, &layout, &error)) fail_msg("%s: %s", text, error.text);
    assert_true(same_layout(&expected, &layout));
  }
}

static void known_layouts_have_what_their_lua_has(void **state) {
  (void)state;
  const layout_t *known;
  for (size_t i = 0; (known = layout_known(i)) != NULL; i++) {
    assert_true(table_is_known(known));
    if (known->family == LAYOUT_LUAJIT) {
      assert_int_not_equal(known->luajit.global_hookmask, LAYOUT_ABSENT);
      assert_int_not_equal(known->luajit.global_strings, LAYOUT_ABSENT);
      /* the collector's fields follow each other, the same way in all */
      assert_int_equal(known->luajit.global_objects - known->luajit.global_gc_total,
                       known->luajit.pointer == 8 ? 24 : 16);
      assert_int_equal(known->luajit.global_white - known->luajit.global_gc_total, 2 * known->luajit.pointer);
      assert_int_equal(known->luajit.global_gc_state, known->luajit.global_white + 1);
      assert_int_equal(known->luajit.state_status, known->luajit.state_tag + 2);
      continue;
    }
    const layout_puc_t *l = &known->puc;
    assert_int_equal(l->state_top, 16);
    assert_int_not_equal(l->state_allowhook, LAYOUT_ABSENT);
    assert_int_not_equal(l->global_strings, LAYOUT_ABSENT);
    assert_int_not_equal(l->state_status, LAYOUT_ABSENT);
    assert_int_not_equal(l->global_objects, LAYOUT_ABSENT);
    assert_int_not_equal(l->global_white, LAYOUT_ABSENT);
    assert_int_equal(l->global_gc_state, l->global_white + 1);
    assert_int_equal(l->global_gc_kind, known->language == 51 ? LAYOUT_ABSENT : l->global_white + 2);
    bool marks_steps = known->language > 54 || strcmp(known->name, "Lua 5.4.3-5.4.9") == 0;
    assert_int_equal(l->global_gc_stop, marks_steps ? l->global_white + 3 : LAYOUT_ABSENT);
    assert_int_equal(l->global_waiting == LAYOUT_ABSENT, !marks_steps);
    assert_int_equal(l->ci_status == LAYOUT_ABSENT, known->language == 51);
    assert_int_equal(l->state_globals == LAYOUT_ABSENT, known->language != 51);
    assert_int_equal(l->table_array_tags == LAYOUT_ABSENT, known->language != 55);
    /* 5.3.4 has it first; 5.4.1 and 5.4.2 share a layout, but not the bit */
    bool early = known->language <= 52 || strcmp(known->name, "Lua 5.3.0") == 0 ||
                 strcmp(known->name, "Lua 5.3.1") == 0 || strcmp(known->name, "Lua 5.3.2") == 0;
    bool unclear = strcmp(known->name, "Lua 5.4.1-5.4.2") == 0;
    assert_int_equal(l->status_finalizer == LAYOUT_ABSENT, early || unclear);
    assert_int_equal(l->status_tail == LAYOUT_ABSENT, known->language == 51);
    assert_int_equal(l->status_tail_else == LAYOUT_ABSENT, !unclear); /* either may say it */
    assert_int_equal(l->ci_base == LAYOUT_ABSENT, known->language >= 54);
    assert_int_equal(l->ci_extra == LAYOUT_ABSENT, known->language < 54);
    assert_int_equal(l->proto_registers, l->proto_parameters + 2);
    assert_int_equal(l->ci_tail_calls == LAYOUT_ABSENT, known->language != 51);
    assert_int_equal(l->upvalue_size == LAYOUT_ABSENT, known->language == 51);
    assert_int_equal(l->local_size, 16);
    assert_int_not_equal(l->proto_constants, LAYOUT_ABSENT);
  }
}

/* Without a file's other fields at odds: each alone must be refused. */
static void optional_fields_where_they_cannot_be(void **state) {
  (void)state;
  static const struct {
    uint8_t family;
    const char *key;
    uint16_t most; /* the largest number that may be; one more may not */
  } limits[] = {
      {LAYOUT_PUC, "lua_State.top", 1024 - 8},
      {LAYOUT_PUC, "lua_State.allowhook", 1023},
      {LAYOUT_PUC, "global_State.strt.hash", 8192 - 8},
      {LAYOUT_PUC, "lua_State.status", 1023},
      {LAYOUT_PUC, "global_State.allgc", 8192 - 8},
      {LAYOUT_PUC, "global_State.currentwhite", 8191},
      {LAYOUT_PUC, "CallInfo.callstatus", 0},
      {LAYOUT_PUC, "callstatus.fin", 31},
      {LAYOUT_PUC, "callstatus.tail", 31},
      {LAYOUT_PUC, "callstatus.tail_else", 0},
      {LAYOUT_PUC, "CallInfo.base", 0},
      {LAYOUT_PUC, "CallInfo.nextraargs", 0},
      {LAYOUT_PUC, "Proto.numparams", 0},
      {LAYOUT_PUC, "Proto.maxstacksize", 0},
      {LAYOUT_LUAJIT, "GCproto.k", 0},
      {LAYOUT_LUAJIT, "GCproto.sizeuv", 0},
      {LAYOUT_LUAJIT, "GCproto.uvinfo", 0},
      {LAYOUT_LUAJIT, "GCproto.varinfo", 0},
      {LAYOUT_LUAJIT, "GCfunc.env", 0},
      {LAYOUT_LUAJIT, "GCfunc.uvptr", 128},
      {LAYOUT_LUAJIT, "GCupval.v", 0},
      {LAYOUT_PUC, "LocVar.size", 64},
      {LAYOUT_PUC, "LocVar.varname", 8},
      {LAYOUT_PUC, "LocVar.endpc", 12},
      {LAYOUT_PUC, "Upvaldesc.size", 64},
      {LAYOUT_PUC, "Upvaldesc.name", 8},
      {LAYOUT_LUAJIT, "global_State.hookmask", 0},
      {LAYOUT_LUAJIT, "global_State.str.tab", 0},
      {LAYOUT_PUC, "global_State.l_registry", 8192 - 16},
      {LAYOUT_PUC, "Table.node", 128 - 8},
      {LAYOUT_PUC, "Table.metatable", 128 - 8},
      {LAYOUT_PUC, "Node.size", 64},
      {LAYOUT_PUC, "Node.key_val", 0},
      {LAYOUT_LUAJIT, "GCtab.node", 0},
      {LAYOUT_LUAJIT, "GCtab.hmask", 124},
      {LAYOUT_LUAJIT, "Node.size", 64},
      {LAYOUT_LUAJIT, "Node.key", 16},
  };
  char text[TEXT_BYTES];
  const layout_t *known;
  for (size_t i = 0; (known = layout_known(i)) != NULL; i++)
    for (size_t k = 0; k < sizeof limits / sizeof *limits; k++) {
      uint16_t most = limits[k].most;
      if (known->family != limits[k].family) continue;
      if (known->family == LAYOUT_PUC && known->language == 51 &&
          (strstr(limits[k].key, "callstatus") != NULL || strstr(limits[k].key, "Upvaldesc") != NULL))
        continue;
      uint16_t of_layout = most_of_layout(known, limits[k].key);
      if (of_layout != 0) {
        most = of_layout;
      } else if (strcmp(limits[k].key, "CallInfo.callstatus") == 0) {
        uint16_t bit = known->puc.status_finalizer;
        most = (uint16_t)(known->puc.ci_size - (bit != LAYOUT_ABSENT ? bit / 8 + 1 : 1));
      } else if (strncmp(limits[k].key, "callstatus.", 11) == 0) { /* it must lie in CallInfo as well */
        uint16_t bits = (uint16_t)(8 * (known->puc.ci_size - known->puc.ci_status));
        most = bits <= most ? (uint16_t)(bits - 1) : most;
      } else if (strcmp(limits[k].key, "Node.key_val") == 0) {
        most = (uint16_t)(known->puc.node_size - 8);
      } else if (strcmp(limits[k].key, "GCtab.node") == 0) {
        most = (uint16_t)(128 - known->luajit.pointer);
      } else if (known->family == LAYOUT_LUAJIT && limits[k].most == 0) {
        most = (uint16_t)(known->luajit.gg_jit - known->luajit.gg_global -
                          (strstr(limits[k].key, "str.tab") != NULL ? 8 : 1));
      }
      for (int more = 0; more < 3; more++) {
        uint16_t number = more < 2 ? (uint16_t)(most + more) : 65534;
        size_t at = 0;
        layout_t layout = *known, back;
        layout_error_t error;
        assert_true(layout_set(&layout, limits[k].key, strlen(limits[k].key), number));
        layout_print(&layout, text, sizeof text);
        if (parse(text, strlen(text), &at, &back, &error) != (more == 0))
          fail_msg("%s: %s=%d: %s", known->name, limits[k].key, number, error.text);
        if (more > 0) assert_non_null(strstr(error.text, "where it cannot be"));
      }
    }
}

/* An error in the files would end the list early, in silence. */
static void every_block_of_the_files_is_known(void **state) {
  (void)state;
  static char text[65536];
#if defined __aarch64__
  const char *paths[] = {"src/walk/puc.layout", "src/walk/luajit_arm64.layout", "src/walk/luajit.layout"};
#else
  const char *paths[] = {"src/walk/puc.layout", "src/walk/luajit.layout", "src/walk/luajit_arm64.layout"};
#endif
  enum { OWN = 2, ALL = 3 }; /* the last is another processor's */
  size_t count = 0;
  for (size_t i = 0; i < ALL; i++) {
    FILE *file = fopen(paths[i], "r");
    assert_non_null(file);
    size_t len = fread(text, 1, sizeof text, file), at = 0;
    fclose(file);
    assert_true(len > 0 && len < sizeof text);
    layout_t layout;
    layout_error_t error;
    while (parse(text, len, &at, &layout, &error)) {
      assert_null(layout_missing(&layout));
      if (i >= OWN) continue;
      assert_non_null(layout_known(count));
      assert_true(same_layout(&layout, layout_known(count++)));
    }
    assert_string_equal(error.text, "");
    assert_int_equal(at, len);
  }
  assert_null(layout_known(count));
}

static void print_is_cut_at_size_and_tells_the_whole_length(void **state) {
  (void)state;
  char whole[TEXT_BYTES];
  size_t len = layout_print(layout_known(0), whole, sizeof whole);
  for (size_t size = 0; size <= len + 1; size++) {
    char *part = malloc(size + 1);
    part[size] = '\x7f';
    assert_int_equal(layout_print(layout_known(0), part, size), len);
    assert_int_equal(part[size], '\x7f');
    if (size > 0) {
      assert_memory_equal(part, whole, size - 1);
      assert_int_equal(part[size - 1], '\0');
    }
    free(part);
  }
  assert_int_equal(layout_print(layout_known(0), NULL, 0), len);
}

static void blocks_follow_each_other_among_comments(void **state) {
  (void)state;
  char text[3 * TEXT_BYTES] = "# made by hand\r\n\n   # indented\n";
  for (size_t i = 0; i < 2; i++) {
    layout_print(layout_known(i), text + strlen(text), TEXT_BYTES);
    strcat(text, i == 0 ? "\t\n# between\n" : "#end");
  }
  size_t at = 0;
  layout_t layout;
  layout_error_t error;
  for (size_t i = 0; i < 2; i++) {
    assert_true(parse(text, strlen(text), &at, &layout, &error));
    assert_true(same_layout(&layout, layout_known(i)));
  }
  assert_false(parse(text, strlen(text), &at, &layout, &error));
  assert_string_equal(error.text, "");
  /* nothing at all is the end, too */
  at = 0;
  assert_false(parse("", 0, &at, &layout, &error));
  assert_string_equal(error.text, "");
}

static void errors_name_the_line_and_the_word(void **state) {
  (void)state;
  static const struct {
    const char *text, *line, *word;
  } wrong[] = {
      {"hello\n", "line 1:", "hello"},
      {"\n\n  lua_State tt=8\n", "line 3:", "lua_State"},
      {"layout", "line 1:", "nothing"},
      {"layout perl 5.1 \"x\"\n", "line 1:", "perl"},
      {"layout puc\n", "line 1:", "nothing"},
      {"layout puc 5.6 \"x\"\n", "line 1:", "5.6"},
      {"layout puc 5.0 \"x\"\n", "line 1:", "5.0"},
      {"layout puc 51 \"x\"\n", "line 1:", "51"},
      {"layout puc 5.1\n", "line 1:", "name"},
      {"layout puc 5.1 x\n", "line 1:", "name"},
      {"layout puc 5.1 \"\"\n", "line 1:", "name"},
      {"layout puc 5.1 \"x\n", "line 1:", "name"},
      {"layout puc 5.1 \"x\"\n lua_State tt\n", "line 2:", "tt"},
      {"layout puc 5.1 \"x\"\n lua_State tt=\n", "line 2:", "tt="},
      {"layout puc 5.1 \"x\"\n# c\n lua_State tt=8x\n", "line 3:", "tt=8x"},
      {"layout puc 5.1 \"x\"\n lua_State tt=-1\n", "line 2:", "tt=-1"},
      {"layout puc 5.1 \"x\"\n lua_State tt=0x8\n", "line 2:", "tt=0x8"},
      {"layout puc 5.1 \"x\"\n lua_State tt=65535\n", "line 2:", "tt=65535"},
      {"layout puc 5.1 \"x\"\n lua_State tt=18446744073709551616\n", "line 2:", "tt=18446744073709551616"},
      {"layout puc 5.1 \"x\"\n lua_State cii=8\n", "line 2:", "lua_State.cii"},
      {"layout puc 5.1 \"x\"\n lua_State =8\n", "line 2:", "lua_State."},
      {"layout luajit 5.1 \"x\"\n Proto size=8\n", "line 2:", "Proto.size"},
      {"layout puc 5.1 \"x\"\n lua_State tt=8\nlayout", "\"x\"", "lua_State.l_G"}, /* not complete */
  };
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    size_t at = 0;
    layout_t layout;
    layout_error_t error;
    assert_false(parse(wrong[i].text, strlen(wrong[i].text), &at, &layout, &error));
    if (strstr(error.text, wrong[i].line) == NULL || strstr(error.text, wrong[i].word) == NULL)
      fail_msg("%s -> %s", wrong[i].text, error.text);
  }
}

static void the_line_is_counted_from_the_beginning_of_the_text(void **state) {
  (void)state;
  char text[2 * TEXT_BYTES], expected[32];
  size_t lines = 1, at = 0, len = layout_print(layout_known(0), text, TEXT_BYTES);
  for (size_t i = 0; i < len; i++) lines += text[i] == '\n';
  strcat(text, "layout puc 5.9 \"x\"\n");
  layout_t layout;
  layout_error_t error;
  assert_true(parse(text, strlen(text), &at, &layout, &error));
  assert_false(parse(text, strlen(text), &at, &layout, &error));
  snprintf(expected, sizeof expected, "line %zu:", lines);
  assert_non_null(strstr(error.text, expected));
}

static void cut_text_is_an_error_or_complete(void **state) {
  (void)state;
  char text[TEXT_BYTES];
  const layout_t *known;
  for (size_t i = 0; (known = layout_known(i)) != NULL; i++) {
    size_t len = layout_print(known, text, sizeof text);
    for (size_t cut = 0; cut < len; cut++) {
      size_t at = 0;
      layout_t layout;
      layout_error_t error;
      if (parse(text, cut, &at, &layout, &error))
        assert_null(layout_missing(&layout));
      else
        assert_true(cut == 0 || error.text[0] != '\0');
    }
  }
}

static void any_byte_anywhere_ends_in_words(void **state) {
  (void)state;
  static const char bytes[] = {'\0', '"', '=', '#', '\n', '\r', '\xff', '9', '.', ' '};
  char text[TEXT_BYTES];
  size_t len = layout_print(layout_known(0), text, sizeof text);
  for (size_t i = 0; i < len; i++)
    for (size_t b = 0; b < sizeof bytes; b++) {
      char old = text[i];
      text[i] = bytes[b];
      size_t at = 0;
      layout_t layout;
      layout_error_t error;
      bool done = parse(text, len, &at, &layout, &error);
      assert_true(done || error.text[0] != '\0');
      if (done) assert_null(layout_missing(&layout));
      assert_true(at <= len);
      text[i] = old;
    }
}

static void words_of_any_length_are_refused(void **state) {
  (void)state;
  static char text[200000];
  static const char *const begin[] = {"",
                                      "layout ",
                                      "layout puc ",
                                      "layout puc 5.1 \"x\"\n",
                                      "layout puc 5.1 \"x\"\n lua_State ",
                                      "layout puc 5.1 \"x\"\n lua_State tt="};
  for (size_t i = 0; i < sizeof begin / sizeof *begin; i++) {
    size_t len = strlen(begin[i]), at = 0;
    memset(text, '7', sizeof text);
    memcpy(text, begin[i], len);
    layout_t layout;
    layout_error_t error;
    assert_false(parse(text, sizeof text, &at, &layout, &error));
    assert_string_not_equal(error.text, "");
    /* and with an equals sign far away */
    text[sizeof text - 2] = '=';
    at = 0;
    assert_false(parse(text, sizeof text, &at, &layout, &error));
  }
}

static void a_long_name_is_cut(void **state) {
  (void)state;
  char text[TEXT_BYTES], body[TEXT_BYTES], name[300];
  memset(name, 'n', sizeof name - 1);
  name[sizeof name - 1] = '\0';
  layout_print(layout_known(0), body, sizeof body);
  snprintf(text, sizeof text, "layout puc 5.1 \"%s\"%s", name, strchr(body, '\n'));
  size_t at = 0;
  layout_t layout;
  layout_error_t error;
  assert_true(parse(text, strlen(text), &at, &layout, &error));
  assert_int_equal(strlen(layout.name), sizeof layout.name - 1);
}

static void set_takes_the_keys_of_its_family_only(void **state) {
  (void)state;
  layout_t layout = *layout_known(0);
  assert_int_equal(layout.family, LAYOUT_PUC);
  assert_true(layout_set(&layout, "lua_State.tt", 12, 77));
  assert_int_equal(layout.puc.state_tag, 77);
  assert_false(layout_set(&layout, "lua_State.gct", 13, 1));
  assert_false(layout_set(&layout, "lua_State.t", 11, 1));
  assert_true(layout_set(&layout, "lua_State.ci", 12, LAYOUT_ABSENT));
  assert_string_equal(layout_missing(&layout), "lua_State.ci");
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_known_layout_prints_and_parses_back),
    cmocka_unit_test(files_without_the_optional_fields_are_read),
    cmocka_unit_test(known_layouts_have_what_their_lua_has),
    cmocka_unit_test(optional_fields_where_they_cannot_be),
    cmocka_unit_test(every_block_of_the_files_is_known),
    cmocka_unit_test(print_is_cut_at_size_and_tells_the_whole_length),
    cmocka_unit_test(blocks_follow_each_other_among_comments),
    cmocka_unit_test(errors_name_the_line_and_the_word),
    cmocka_unit_test(the_line_is_counted_from_the_beginning_of_the_text),
    cmocka_unit_test(cut_text_is_an_error_or_complete),
    cmocka_unit_test(any_byte_anywhere_ends_in_words),
    cmocka_unit_test(words_of_any_length_are_refused),
    cmocka_unit_test(a_long_name_is_cut),
    cmocka_unit_test(set_takes_the_keys_of_its_family_only),
};
UNIT_MAIN(tests)
