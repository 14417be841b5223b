/* SPDX-License-Identifier: MIT */
/* Reading and writing layout data; see layout.h. No allocation, no I/O. */
#include "walk/layout.h"

#include <stdio.h>
#include <string.h>

typedef struct {
  const char *key;
  size_t offset; /* of the member in its family's struct */
  bool optional;
} field_t;

#define PUC_FIELD(member, key, optional) {key, offsetof(layout_puc_t, member), optional},
#define LUAJIT_FIELD(member, key, optional) {key, offsetof(layout_luajit_t, member), optional},
static const field_t puc_fields[] = {LAYOUT_PUC_FIELDS(PUC_FIELD)};
static const field_t luajit_fields[] = {LAYOUT_LUAJIT_FIELDS(LUAJIT_FIELD)};

static const field_t *fields_of(const layout_t *layout, size_t *count) {
  bool puc = layout->family == LAYOUT_PUC;
  *count = puc ? sizeof puc_fields / sizeof puc_fields[0] : sizeof luajit_fields / sizeof luajit_fields[0];
  return puc ? puc_fields : luajit_fields;
}

static uint16_t *value_of(layout_t *layout, const field_t *field) {
  char *base = layout->family == LAYOUT_PUC ? (char *)&layout->puc : (char *)&layout->luajit;
  return (uint16_t *)(void *)(base + field->offset); /* all members are uint16_t */
}

static uint16_t value(const layout_t *layout, const field_t *field) {
  layout_t copy = *layout;
  return *value_of(&copy, field);
}

bool layout_set(layout_t *layout, const char *key, size_t len, uint16_t number) {
  size_t count;
  const field_t *fields = fields_of(layout, &count);
  for (size_t i = 0; i < count; i++) {
    if (strlen(fields[i].key) != len || memcmp(fields[i].key, key, len) != 0) continue;
    *value_of(layout, &fields[i]) = number;
    return true;
  }
  return false;
}

const char *layout_missing(const layout_t *layout) {
  size_t count;
  const field_t *fields = fields_of(layout, &count);
  for (size_t i = 0; i < count; i++)
    if (!fields[i].optional && value(layout, &fields[i]) == LAYOUT_ABSENT) return fields[i].key;
  if (layout->family == LAYOUT_PUC && layout->puc.global_main == LAYOUT_ABSENT &&
      layout->puc.global_main_inside == LAYOUT_ABSENT)
    return "global_State.mainthread";
  if (layout->family != LAYOUT_PUC) return NULL;
  const layout_puc_t *l = &layout->puc;
  if (l->tag_lua == l->tag_c && l->closure_is_c == LAYOUT_ABSENT) return "Closure.isC";
  if (l->proto_anchors != LAYOUT_ABSENT && l->proto_anchor_count == LAYOUT_ABSENT)
    return "Proto.sizeabslineinfo";
  if (l->string_long_bytes != LAYOUT_ABSENT && l->string_short_length == LAYOUT_ABSENT)
    return "TString.shrlen";
  if ((l->status_finalizer != LAYOUT_ABSENT || l->status_tail != LAYOUT_ABSENT) &&
      l->ci_status == LAYOUT_ABSENT)
    return "CallInfo.callstatus";
  if (l->status_tail_else != LAYOUT_ABSENT && l->status_tail == LAYOUT_ABSENT) return "callstatus.tail";
  return NULL;
}

/* Walks copy a structure into a buffer and look at its fields there: all of them must end within what is copied. */
typedef struct {
  const char *key;
  uint16_t offset;
  uint32_t bytes, end;
} extent_t;

static const char *first_outside(const extent_t *extents, size_t count) {
  for (size_t i = 0; i < count; i++)
    if (extents[i].offset != LAYOUT_ABSENT && extents[i].offset + extents[i].bytes > extents[i].end)
      return extents[i].key;
  return NULL;
}

/* Nobody's lua_State, global_State and tables are larger; their sizes are not in layouts. */
enum {
  STATE_MOST = 1024,
  GLOBAL_MOST = 8192,
  TABLE_MOST = LAYOUT_TABLE_BYTES,
  NODE_MOST = LAYOUT_NODE_BYTES,
  LOCAL_MOST = LAYOUT_LOCAL_BYTES,
  FUNCTION_MOST = 128, /* of LuaJIT, up to its upvalues; and of an upvalue */
  VALUE = 16,
  STATUS_BITS = 32
};

/* The higher of two bits of which one may be absent; 0: both are. */
static uint32_t most_bit(uint16_t a, uint16_t b) {
  if (a == LAYOUT_ABSENT) a = 0;
  if (b == LAYOUT_ABSENT) b = 0;
  return a > b ? a : b;
}

static const char *outside_puc(const layout_puc_t *l) {
  uint32_t closure = (l->closure_proto > l->closure_code ? l->closure_proto : l->closure_code) + 8u;
  uint32_t string = l->string_bytes + (l->string_long_bytes != LAYOUT_ABSENT ? 8u : 0u);
  uint32_t status = 1u + most_bit(l->status_finalizer, l->status_tail) / 8;
  const extent_t extents[] = {
      {"lua_State.top", l->state_top, 8, STATE_MOST},
      {"lua_State.allowhook", l->state_allowhook, 1, STATE_MOST},
      {"lua_State.status", l->state_status, 1, STATE_MOST},
      {"global_State.strt.hash", l->global_strings, 8, GLOBAL_MOST},
      {"global_State.allgc", l->global_objects, 8, GLOBAL_MOST},
      {"global_State.currentwhite", l->global_white, 1, GLOBAL_MOST},
      {"global_State.gcstate", l->global_gc_state, 1, GLOBAL_MOST},
      {"global_State.gckind", l->global_gc_kind, 1, GLOBAL_MOST},
      {"global_State.gcstopem", l->global_gc_stop, 1, GLOBAL_MOST},
      {"global_State.tobefnz", l->global_waiting, 8, GLOBAL_MOST},
      {"lua_State.l_gt", l->state_globals, VALUE, STATE_MOST},
      {"global_State.l_registry", l->global_registry, VALUE, GLOBAL_MOST},
      {"CallInfo.tailcalls", l->ci_tail_calls, 4, l->ci_size},
      {"callstatus.fin", l->status_finalizer, 1, STATUS_BITS},
      {"callstatus.tail", l->status_tail, 1, STATUS_BITS},
      {"callstatus.tail_else", l->status_tail_else, 1, l->status_tail / 8u * 8 + 8}, /* in the same byte */
      {"CallInfo.base", l->ci_base, 8, l->ci_size},
      {"CallInfo.nextraargs", l->ci_extra, 4, l->ci_size},
      {"Proto.numparams", l->proto_parameters, 1, l->proto_size},
      {"Proto.maxstacksize", l->proto_registers, 1, l->proto_size},
      {"CallInfo.callstatus", l->ci_status, status, l->ci_size},
      {"Closure.tt", l->closure_tag, 1, closure},
      {"Closure.isC", l->closure_is_c, 1, closure},
      {"Proto.tt", l->proto_tag, 1, l->proto_size},
      {"Proto.source", l->proto_source, 8, l->proto_size},
      {"Proto.linedefined", l->proto_line, 4, l->proto_size},
      {"Proto.lastlinedefined", l->proto_last_line, 4, l->proto_size},
      {"Proto.code", l->proto_code, 8, l->proto_size},
      {"Proto.sizecode", l->proto_code_count, 4, l->proto_size},
      {"Proto.lineinfo", l->proto_lines, 8, l->proto_size},
      {"Proto.sizelineinfo", l->proto_line_count, 4, l->proto_size},
      {"Proto.abslineinfo", l->proto_anchors, 8, l->proto_size},
      {"Proto.sizeabslineinfo", l->proto_anchor_count, 4, l->proto_size},
      {"Proto.k", l->proto_constants, 8, l->proto_size},
      {"Proto.sizek", l->proto_constant_count, 4, l->proto_size},
      {"Proto.locvars", l->proto_locals, 8, l->proto_size},
      {"Proto.sizelocvars", l->proto_local_count, 4, l->proto_size},
      {"Proto.upvalues", l->proto_upvalues, 8, l->proto_size},
      {"Proto.sizeupvalues", l->proto_upvalue_count, 4, l->proto_size},
      {"LocVar.size", l->local_size, 0, LOCAL_MOST},
      {"LocVar.varname", l->local_name, 8, l->local_size},
      {"LocVar.startpc", l->local_start, 4, l->local_size},
      {"LocVar.endpc", l->local_end, 4, l->local_size},
      {"Upvaldesc.size", l->upvalue_size, 0, LOCAL_MOST},
      {"Upvaldesc.name", l->upvalue_name, 8, l->upvalue_size},
      {"TString.tt", l->string_tag, 1, string},
      {"TString.len", l->string_length, 8, string},
      {"TString.shrlen", l->string_short_length, 1, string},
      {"TString.long", l->string_long_bytes, 8, string},
      {"Table.lsizenode", l->table_log_nodes, 1, TABLE_MOST},
      {"Table.node", l->table_nodes, 8, TABLE_MOST},
      {"Table.array", l->table_array, 8, TABLE_MOST},
      {"Table.sizearray", l->table_array_count, 4, TABLE_MOST},
      {"Table.arraytags", l->table_array_tags, 1, TABLE_MOST},
      {"Table.metatable", l->table_metatable, 8, TABLE_MOST},
      {"Node.size", l->node_size, 0, NODE_MOST},
      {"Node.i_val", l->node_value, 8u + l->tag_bytes, l->node_size},
      {"Node.key_val", l->node_key, 8, l->node_size},
      {"Node.key_tt", l->node_key_tag, l->tag_bytes, l->node_size},
  };
  if (l->ci_size == 0) return "CallInfo.size"; /* a distance between records */
  if (l->node_size == 0) return "Node.size";
  return first_outside(extents, sizeof extents / sizeof extents[0]);
}

static const char *outside_luajit(const layout_luajit_t *l) {
  uint32_t function = l->function_pc + (uint32_t)l->pointer;
  uint32_t global =
      l->gg_jit > l->gg_global ? (uint32_t)(l->gg_jit - l->gg_global) : 0; /* what lies between */
  const extent_t extents[] = {
      {"lua_State.gct", l->state_tag, 1, l->state_size},
      {"lua_State.gct", l->state_tag, 1, function}, /* all objects keep their type there */
      {"lua_State.gct", l->state_tag, 1, l->proto_size},
      {"lua_State.gct", l->state_tag, 1, l->string_bytes},
      {"lua_State.glref", l->state_global, l->pointer, l->state_size},
      {"lua_State.base", l->state_base, 8, l->state_size},
      {"lua_State.maxstack", l->state_max, l->pointer, l->state_size},
      {"lua_State.stack", l->state_stack, l->pointer, l->state_size},
      {"lua_State.cframe", l->state_cframe, 8, l->state_size},
      {"global_State.hookmask", l->global_hookmask, 1, global},
      {"global_State.str.tab", l->global_strings, 8, global},
      {"lua_State.status", l->state_status, 1, l->state_size},
      {"global_State.gc.root", l->global_objects, l->pointer, global},
      {"global_State.gc.currentwhite", l->global_white, 1, global},
      {"global_State.gc.state", l->global_gc_state, 1, global},
      {"GCfunc.ffid", l->function_ffid, 1, function},
      {"GCproto.sizebc", l->proto_code_count, 4, l->proto_size},
      {"GCproto.chunkname", l->proto_source, l->pointer, l->proto_size},
      {"GCproto.firstline", l->proto_line, 4, l->proto_size},
      {"GCproto.numline", l->proto_line_count, 4, l->proto_size},
      {"GCproto.lineinfo", l->proto_lines, l->pointer, l->proto_size},
      {"GCproto.k", l->proto_constants, l->pointer, l->proto_size},
      {"GCproto.sizeuv", l->proto_upvalue_count, 1, l->proto_size},
      {"GCproto.uvinfo", l->proto_upvalues, l->pointer, l->proto_size},
      {"GCproto.varinfo", l->proto_locals, l->pointer, l->proto_size},
      {"GCproto.traces", l->proto_trace, 2, l->proto_size},
      {"GCfunc.env", l->function_globals, l->pointer, FUNCTION_MOST},
      {"GCfunc.uvptr", l->function_upvalues, 0, FUNCTION_MOST},
      {"GCupval.v", l->upvalue_value, l->pointer, FUNCTION_MOST},
      {"GCstr.len", l->string_length, 4, l->string_bytes},
      {"lua_State.env", l->state_globals, l->pointer, l->state_size},
      {"global_State.registrytv", l->global_registry, 8, global},
      {"GCtab.node", l->table_nodes, l->pointer, TABLE_MOST},
      {"GCtab.hmask", l->table_node_mask, 4, TABLE_MOST},
      {"GCtab.metatable", l->table_metatable, l->pointer, TABLE_MOST},
      {"Node.size", l->node_size, 0, NODE_MOST},
      {"Node.val", l->node_value, 8, l->node_size},
      {"Node.key", l->node_key, 8, l->node_size},
  };
  if (l->pointer != 4 && l->pointer != 8) return "ref.size";
  if (l->node_size == 0) return "Node.size";
  return first_outside(extents, sizeof extents / sizeof extents[0]);
}

const char *layout_outside(const layout_t *layout) {
  return layout->family == LAYOUT_PUC ? outside_puc(&layout->puc) : outside_luajit(&layout->luajit);
}

/* -- reading --------------------------------------------------------------------------------------------- */

typedef struct {
  const char *at, *end;
  unsigned line;
  layout_error_t *error;
} parser_t;

static bool fail(parser_t *p, const char *what, const char *word, size_t len) {
  snprintf(p->error->text, sizeof p->error->text, "line %u: %s%s%.*s", p->line, what, len > 0 ? " " : "",
           (int)(len < 80 ? len : 80), word);
  return false;
}

/* The next word of the line, NULL with length 0 at its end. Words are separated by blanks; a quoted one may hold them. */
static const char *next_word(parser_t *p, size_t *len) {
  *len = 0;
  while (p->at < p->end && (*p->at == ' ' || *p->at == '\t' || *p->at == '\r')) p->at++;
  if (p->at == p->end || *p->at == '\n' || *p->at == '#') return NULL;
  const char *start = p->at;
  if (*start == '"') {
    for (p->at++; p->at < p->end && *p->at != '"' && *p->at != '\n';) p->at++;
    if (p->at < p->end && *p->at == '"') p->at++;
  } else {
    while (p->at < p->end && strchr(" \t\r\n#", *p->at) == NULL) p->at++;
  }
  *len = (size_t)(p->at - start);
  return start;
}

static void next_line(parser_t *p) {
  while (p->at < p->end && *p->at != '\n') p->at++;
  if (p->at < p->end) p->at++;
  p->line++;
}

static bool is_word(const char *word, size_t len, const char *text) {
  return word != NULL && strlen(text) == len && memcmp(word, text, len) == 0;
}

/* "layout puc 5.4 "name"", of which the first word is read. */
static bool parse_head(parser_t *p, layout_t *layout) {
  size_t len;
  const char *word = next_word(p, &len);
  memset(layout, 0xff, sizeof *layout); /* every field absent */
  if (is_word(word, len, "puc"))
    layout->family = LAYOUT_PUC;
  else if (is_word(word, len, "luajit"))
    layout->family = LAYOUT_LUAJIT;
  else
    return fail(p, "after `layout` comes puc or luajit, not", word != NULL ? word : "nothing",
                word ? len : 7);
  word = next_word(p, &len);
  if (word == NULL || len != 3 || word[0] != '5' || word[1] != '.' || word[2] < '1' || word[2] > '5')
    return fail(p, "the Lua version must be 5.1 to 5.5, not", word != NULL ? word : "nothing",
                word ? len : 7);
  layout->language = (uint8_t)(50 + word[2] - '0');
  word = next_word(p, &len);
  if (word == NULL || len < 3 || word[0] != '"' || word[len - 1] != '"')
    return fail(p, "a layout needs a name in quotes", "", 0);
  len = len - 2 < sizeof layout->name - 1 ? len - 2 : sizeof layout->name - 1;
  memcpy(layout->name, word + 1, len);
  layout->name[len] = '\0';
  return true;
}

/* "lua_State tt=8 l_G=24 …" */
static bool parse_fields(parser_t *p, layout_t *layout, const char *structure, size_t structure_len) {
  size_t len;
  for (const char *word; (word = next_word(p, &len)) != NULL;) {
    const char *equals = memchr(word, '=', len);
    char key[64];
    unsigned long number = 0;
    size_t digits = 0;
    if (equals == NULL) return fail(p, "expected field=number, not", word, len);
    for (const char *c = equals + 1; c < word + len && *c >= '0' && *c <= '9' && number < 65536;
         c++, digits++)
      number = number * 10 + (unsigned long)(*c - '0');
    if (digits == 0 || equals + 1 + digits != word + len || number >= LAYOUT_ABSENT)
      return fail(p, "not a number below 65535:", word, len);
    int made =
        snprintf(key, sizeof key, "%.*s.%.*s", (int)structure_len, structure, (int)(equals - word), word);
    if (made < 0 || (size_t)made >= sizeof key || !layout_set(layout, key, (size_t)made, (uint16_t)number))
      return fail(p, "no field is called", key, strnlen(key, sizeof key));
  }
  return true;
}

bool layout_parse(const char *text, size_t len, size_t *at, layout_t *layout, layout_error_t *error) {
  parser_t p = {text + *at, text + len, 1, error};
  bool inside = false;
  error->text[0] = '\0';
  for (const char *c = text; c < p.at; c++) p.line += *c == '\n';
  while (p.at < p.end) {
    const char *line = p.at;
    size_t word_len;
    const char *word = next_word(&p, &word_len);
    if (is_word(word, word_len, "layout")) {
      if (inside) {
        p.at = line;
        break;
      }
      inside = true;
      if (!parse_head(&p, layout)) return false;
    } else if (word != NULL) {
      if (!inside) return fail(&p, "expected `layout`, not", word, word_len);
      if (!parse_fields(&p, layout, word, word_len)) return false;
    }
    next_line(&p);
  }
  *at = (size_t)(p.at - text);
  if (!inside) return false;
  const char *missing = layout_missing(layout), *wrong = missing == NULL ? layout_outside(layout) : NULL;
  if (missing == NULL && wrong == NULL) return true;
  snprintf(error->text, sizeof error->text, "the layout \"%s\" %s %s%s", layout->name,
           missing != NULL ? "does not say" : "puts", missing != NULL ? missing : wrong,
           missing != NULL ? "" : " where it cannot be");
  return false;
}

/* -- writing ---------------------------------------------------------------------------------------------- */

size_t layout_print(const layout_t *layout, char *text, size_t size) {
  size_t count, used = 0;
  const field_t *fields = fields_of(layout, &count);
  const char *structure = "";
  size_t structure_len = 0;
#define PRINT(...)                                                                                     \
  do {                                                                                                 \
    int made = snprintf(used < size ? text + used : NULL, used < size ? size - used : 0, __VA_ARGS__); \
    used += made > 0 ? (size_t)made : 0;                                                               \
  } while (0)
  PRINT("layout %s 5.%d \"%s\"", layout->family == LAYOUT_PUC ? "puc" : "luajit", layout->language - 50,
        layout->name);
  for (size_t i = 0; i < count; i++) {
    uint16_t number = value(layout, &fields[i]);
    if (number == LAYOUT_ABSENT) continue;
    const char *dot = strchr(fields[i].key, '.');
    size_t len = (size_t)(dot - fields[i].key);
    if (len != structure_len || memcmp(structure, fields[i].key, len) != 0)
      PRINT("\n  %.*s", (int)len, fields[i].key);
    structure = fields[i].key;
    structure_len = len;
    PRINT(" %s=%u", dot + 1, (unsigned)number);
  }
  PRINT("\n");
#undef PRINT
  return used;
}
