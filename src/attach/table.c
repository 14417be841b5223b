/* SPDX-License-Identifier: MIT */
/* Reading tables; see table.h. Version differences are in the layout. */
#include "attach/table.h"

#include <string.h>

#include "walk/bytes.h"

enum {
  SLOT = 16,   /* of PUC Lua: a value and its tag */
  TAG = 8,     /* of a slot */
  GLOBALS = 2, /* LUA_RIDX_GLOBALS */
  FUNCTION_BYTES = 64,
  NUMBERED_MOST = 1 << 16 /* slots, and nodes, of a table whose numbers are looked at */
};

/* Types as lua.h numbers them: the lower half of a tag. The upper has the variant (0x30) and whether it is collected (0x40). */
enum { PUC_NUMBER = 3, PUC_STRING = 4, PUC_TABLE = 5, PUC_FUNCTION = 6, PUC_TYPE = 0x0f, PUC_VARIANT = 0x3f };

/* Types of LuaJIT's objects; values have the complement. */
enum { JIT_STRING = 4, JIT_FUNCTION = 8, JIT_TABLE = 11 };
enum { FF_LUA = 0, FF_C = 1 };

#define CODE_LOWEST ((uint64_t)65536)
#define WIDE_REFERENCE (((uint64_t)1 << 47) - 1) /* of a value of LuaJIT (GC64) */

static bool is_there(uint16_t field) {
  return field != LAYOUT_ABSENT;
}

bool table_is_known(const layout_t *layout) {
  if (layout->family == LAYOUT_LUAJIT) {
    const layout_luajit_t *l = &layout->luajit;
    return is_there(l->global_registry) && is_there(l->state_globals) && is_there(l->table_nodes) &&
           is_there(l->table_node_mask) && is_there(l->table_metatable) && is_there(l->node_size) &&
           is_there(l->node_value) && is_there(l->node_key);
  }
  const layout_puc_t *l = &layout->puc;
  return is_there(l->global_registry) && (is_there(l->state_globals) || layout->language > 51) &&
         is_there(l->table_log_nodes) && is_there(l->table_nodes) && is_there(l->table_array) &&
         is_there(l->table_array_count) && is_there(l->table_metatable) && is_there(l->node_size) &&
         is_there(l->node_value) && is_there(l->node_key) && is_there(l->node_key_tag);
}

/* -- values ------------------------------------------------------------------------------------------------------- */

static value_t puc_value(const layout_puc_t *l, uint64_t at, uint32_t tag) {
  value_t value = {VALUE_OTHER, at};
  if (tag > 0xff) return value;
  if ((tag & PUC_TYPE) == PUC_STRING)
    value.kind = VALUE_STRING;
  else if ((tag & PUC_VARIANT) == PUC_TABLE)
    value.kind = VALUE_TABLE;
  else if (tag == l->tag_lua || tag == l->tag_c)
    value.kind = VALUE_FUNCTION;
  else if (is_there(l->tag_light) && tag == l->tag_light)
    value.kind = VALUE_LIGHT_FUNCTION;
  return value;
}

static uint32_t puc_tag(const layout_puc_t *l, const uint8_t *bytes, uint32_t offset) {
  return l->tag_bytes == 1 ? bytes[offset] : bytes_u32(bytes, offset);
}

static value_t jit_value(const layout_luajit_t *l, uint64_t bits) {
  bool wide = l->pointer == 8;
  /* the complement of the type stands above the reference, in 17 bits or in 32 */
  uint64_t type = wide ? ~bits >> 47 : ~bits >> 32 & 0xffffffff;
  value_t value = {VALUE_OTHER, wide ? bits & WIDE_REFERENCE : bits & 0xffffffff};
  if (type == JIT_STRING) value.kind = VALUE_STRING;
  if (type == JIT_TABLE) value.kind = VALUE_TABLE;
  if (type == JIT_FUNCTION) value.kind = VALUE_FUNCTION;
  return value;
}

static value_t value_of(const layout_t *layout, const uint8_t *bytes, uint32_t offset) {
  if (layout->family == LAYOUT_LUAJIT) return jit_value(&layout->luajit, bytes_u64(bytes, offset));
  return puc_value(&layout->puc, bytes_u64(bytes, offset), puc_tag(&layout->puc, bytes, offset + TAG));
}

bool table_value(walk_t *walk, uint64_t at, value_t *value) {
  uint8_t bytes[SLOT];
  uint32_t size = walk->layout->family == LAYOUT_LUAJIT ? 8 : SLOT;
  if (!walk_read(walk->memory, bytes, at, size, WALK_GUESS)) return false;
  *value = value_of(walk->layout, bytes, 0);
  return true;
}

/* -- tables ------------------------------------------------------------------------------------------------------- */

static bool open_puc(walk_t *walk, const uint8_t *head, table_t *table) {
  const layout_puc_t *l = &walk->layout->puc;
  if ((head[l->closure_tag] & PUC_VARIANT) != PUC_TABLE)
    return false; /* all objects keep their type in one place */
  if (head[l->table_log_nodes] > 24) return false;
  table->nodes = bytes_u64(head, l->table_nodes);
  table->node_count = (uint32_t)1 << head[l->table_log_nodes];
  table->array = bytes_u64(head, l->table_array);
  table->array_count = bytes_u32(head, l->table_array_count);
  table->metatable = bytes_u64(head, l->table_metatable);
  return true;
}

static bool open_luajit(walk_t *walk, const uint8_t *head, table_t *table) {
  const layout_luajit_t *l = &walk->layout->luajit;
  uint32_t mask = bytes_u32(head, l->table_node_mask);
  if (head[l->state_tag] != JIT_TABLE || mask >= TABLE_MOST_NODES || (mask & (mask + 1)) != 0) return false;
  table->nodes = bytes_ref(head, l->table_nodes, l->pointer);
  table->node_count = mask + 1;
  table->metatable = bytes_ref(head, l->table_metatable, l->pointer);
  return true;
}

static uint32_t most(uint32_t a, uint32_t b) {
  return a > b ? a : b;
}

static uint32_t head_bytes(const layout_t *layout) {
  if (layout->family == LAYOUT_LUAJIT) {
    const layout_luajit_t *l = &layout->luajit;
    uint32_t pointers = most(l->table_nodes, l->table_metatable) + (uint32_t)l->pointer;
    return most(pointers, most(l->table_node_mask + 4u, l->state_tag + 1u));
  }
  const layout_puc_t *l = &layout->puc;
  uint32_t pointers = most(most(l->table_nodes, l->table_array), l->table_metatable) + 8u;
  return most(pointers, most(l->table_array_count + 4u, most(l->table_log_nodes, l->closure_tag) + 1u));
}

bool table_open(walk_t *walk, uint64_t address, table_t *table) {
  uint8_t head[LAYOUT_TABLE_BYTES];
  uint32_t len = head_bytes(walk->layout);
  *table = (table_t){.address = address};
  if ((address & 7) != 0 || len > sizeof head || !walk_read(walk->memory, head, address, len, WALK_GUESS))
    return false;
  return walk->layout->family == LAYOUT_LUAJIT ? open_luajit(walk, head, table) : open_puc(walk, head, table);
}

static bool is_table(walk_t *walk, const value_t *value, uint64_t *at) {
  table_t table;
  *at = value->at;
  return value->kind == VALUE_TABLE && table_open(walk, value->at, &table);
}

bool table_registry(walk_t *walk, uint64_t global, uint64_t *at) {
  const layout_t *layout = walk->layout;
  value_t value;
  if (!table_is_known(layout)) return false;
  uint32_t offset =
      layout->family == LAYOUT_LUAJIT ? layout->luajit.global_registry : layout->puc.global_registry;
  return table_value(walk, global + offset, &value) && is_table(walk, &value, at);
}

/* 5.2 on: a slot of the registry. */
static bool globals_in_registry(walk_t *walk, uint64_t global, uint64_t *at) {
  const layout_puc_t *l = &walk->layout->puc;
  uint64_t registry;
  table_t table;
  uint8_t slot[SLOT] = {0};
  if (!table_registry(walk, global, &registry) || !table_open(walk, registry, &table)) return false;
  if (table.array_count < GLOBALS) return false;
  if (!is_there(l->table_array_tags)) {
    if (!walk_read(walk->memory, slot, table.array + (uint64_t)(GLOBALS - 1) * SLOT, SLOT, WALK_GUESS))
      return false;
  } else if (!walk_read(walk->memory, slot, table.array - (uint64_t)GLOBALS * 8, 8, WALK_GUESS) ||
             !walk_read(walk->memory, slot + TAG, table.array + l->table_array_tags + GLOBALS - 1, 1,
                        WALK_GUESS)) {
    return false;
  }
  value_t value = value_of(walk->layout, slot, 0);
  return is_table(walk, &value, at);
}

bool table_globals(walk_t *walk, uint64_t global, uint64_t *at) {
  const layout_t *layout = walk->layout;
  uint64_t main = walk_main_of(walk, global);
  value_t value;
  uint8_t bytes[8];
  if (!table_is_known(layout) || main == 0) return false;
  if (layout->family == LAYOUT_LUAJIT) {
    const layout_luajit_t *l = &layout->luajit;
    if (!walk_read(walk->memory, bytes, main + l->state_globals, l->pointer, WALK_GUESS)) return false;
    value = (value_t){VALUE_TABLE, bytes_ref(bytes, 0, l->pointer)};
    return is_table(walk, &value, at);
  }
  if (!is_there(layout->puc.state_globals)) return globals_in_registry(walk, global, at);
  return table_value(walk, main + layout->puc.state_globals, &value) && is_table(walk, &value, at);
}

/* -- entries ------------------------------------------------------------------------------------------------------ */

static bool read_node(walk_t *walk, const table_t *table, uint32_t index, value_t *key, value_t *value) {
  const layout_t *layout = walk->layout;
  uint8_t node[LAYOUT_NODE_BYTES];
  bool jit = layout->family == LAYOUT_LUAJIT;
  uint32_t size = jit ? layout->luajit.node_size : layout->puc.node_size;
  if (size > sizeof node ||
      !walk_read(walk->memory, node, table->nodes + (uint64_t)index * size, size, WALK_GUESS))
    return false;
  if (jit) {
    *value = value_of(layout, node, layout->luajit.node_value);
    *key = value_of(layout, node, layout->luajit.node_key);
    return true;
  }
  const layout_puc_t *l = &layout->puc;
  *value = value_of(layout, node, l->node_value);
  *key = puc_value(l, bytes_u64(node, l->node_key), puc_tag(l, node, l->node_key_tag));
  return true;
}

/* A word: what can stand in a name. The same holds for names from inside (src/agent/name.c). */
static bool read_key(walk_t *walk, table_entry_t *entry) {
  size_t len;
  if (entry->key.kind != VALUE_STRING || !walk_string(walk, entry->key.at, entry->text, TABLE_KEY, &len))
    return false;
  if (len == 0 || len >= TABLE_KEY) return false;
  for (size_t i = 0; i < len; i++)
    if ((unsigned char)entry->text[i] < 0x21 || entry->text[i] == 0x7f) return false;
  entry->text[len] = '\0';
  entry->len = (uint32_t)len;
  return true;
}

bool table_next(walk_t *walk, const table_t *table, uint32_t limit, uint32_t *node, table_entry_t *entry) {
  while (*node < table->node_count && *node < limit) {
    entry->node = (*node)++;
    if (!read_node(walk, table, entry->node, &entry->key, &entry->value)) return false;
    if (entry->value.kind != VALUE_OTHER && entry->value.kind != VALUE_STRING && read_key(walk, entry))
      return true;
  }
  return false;
}

bool table_get(walk_t *walk, uint64_t address, uint64_t key, uint32_t limit, value_t *value) {
  table_t table;
  value_t found;
  if (!table_open(walk, address, &table)) return false;
  for (uint32_t i = 0; i < table.node_count && i < limit; i++) {
    if (!read_node(walk, &table, i, &found, value)) return false;
    if (found.kind == VALUE_STRING && found.at == key) return true;
  }
  return false;
}

bool table_get_text(walk_t *walk, uint64_t address, const char *key, uint32_t limit, value_t *value) {
  table_t table;
  table_entry_t entry;
  uint32_t node = 0;
  if (!table_open(walk, address, &table)) return false;
  while (table_next(walk, &table, limit, &node, &entry)) {
    *value = entry.value;
    if (strcmp(entry.text, key) == 0) return true;
  }
  return false;
}

bool table_has(walk_t *walk, uint64_t address, const char *key, uint32_t limit) {
  value_t value;
  return table_get_text(walk, address, key, limit, &value);
}

bool table_confirms(walk_t *walk, const table_t *table, const table_entry_t *entry) {
  value_t key, value;
  return read_node(walk, table, entry->node, &key, &value) && key.kind == entry->key.kind &&
         key.at == entry->key.at && value.kind == entry->value.kind && value.at == entry->value.at;
}

/* Order does not count: entries of the nodes move to the array as a table grows. */
static void add_numbered(uint64_t number, const value_t *value, uint64_t *mark) {
  uint64_t mixed = (number * 0x9e3779b97f4a7c15u ^ value->at) * 0xbf58476d1ce4e5b9u;
  if (value->kind == VALUE_FUNCTION) *mark += mixed ^ mixed >> 31;
}

bool table_numbered(walk_t *walk, uint64_t address, uint64_t *mark) {
  const layout_puc_t *l = &walk->layout->puc;
  table_t table;
  uint8_t node[LAYOUT_NODE_BYTES];
  *mark = 0;
  if (walk->layout->family != LAYOUT_PUC || walk->layout->language != 51 ||
      !table_open(walk, address, &table) || table.array_count > NUMBERED_MOST ||
      table.node_count > NUMBERED_MOST || l->node_size > sizeof node)
    return false;
  for (uint32_t i = 0; i < table.array_count; i++) {
    value_t value;
    if (!table_value(walk, table.array + (uint64_t)i * SLOT, &value)) return false;
    add_numbered((uint64_t)i + 1, &value, mark);
  }
  for (uint32_t i = 0; i < table.node_count; i++) {
    double number;
    if (!walk_read(walk->memory, node, table.nodes + (uint64_t)i * l->node_size, l->node_size, WALK_GUESS))
      return false;
    value_t value = value_of(walk->layout, node, l->node_value);
    if (puc_tag(l, node, l->node_key_tag) != PUC_NUMBER) continue;
    memcpy(&number, node + l->node_key, sizeof number);
    if (number >= 1 && number <= UINT32_MAX) add_numbered((uint64_t)number, &value, mark);
  }
  return *mark != 0;
}

/* -- functions ---------------------------------------------------------------------------------------------------- */

static bool is_code(uint64_t code) {
  return code >= CODE_LOWEST && code < WALK_HIGHEST;
}

static bool set_proto(walk_t *walk, uint64_t address, walk_frame_t *frame) {
  walk_proto_t proto;
  if (!walk_proto(walk, address, WALK_GUESS, &proto)) return false;
  frame->kind = WALK_LUA;
  frame->proto = address;
  frame->mark = walk_mark(walk, &proto);
  return true;
}

static bool puc_closure(walk_t *walk, uint64_t at, walk_frame_t *frame) {
  const layout_puc_t *l = &walk->layout->puc;
  uint8_t bytes[FUNCTION_BYTES];
  uint32_t len = most(l->closure_proto, l->closure_code) + 8u;
  if (len > sizeof bytes || !walk_read(walk->memory, bytes, at, len, WALK_GUESS)) return false;
  uint8_t type = bytes[l->closure_tag];
  if ((type & PUC_TYPE) != PUC_FUNCTION) return false;
  /* the closure's own tag is that of the value, without the bit of what is collected */
  bool is_c = is_there(l->closure_is_c) ? bytes[l->closure_is_c] != 0
                                        : (type & PUC_VARIANT) == (l->tag_c & PUC_VARIANT);
  if (!is_c) return set_proto(walk, bytes_u64(bytes, l->closure_proto), frame);
  frame->code = bytes_u64(bytes, l->closure_code);
  return is_code(frame->code);
}

static bool jit_function(walk_t *walk, uint64_t at, walk_frame_t *frame) {
  const layout_luajit_t *l = &walk->layout->luajit;
  uint8_t bytes[FUNCTION_BYTES];
  uint32_t len = l->function_pc + (uint32_t)l->pointer;
  if (len > sizeof bytes || !walk_read(walk->memory, bytes, at, len, WALK_GUESS)) return false;
  if (bytes[l->state_tag] != JIT_FUNCTION) return false;
  uint8_t ffid = bytes[l->function_ffid];
  if (ffid == FF_LUA)
    return set_proto(walk, bytes_ref(bytes, l->function_pc, l->pointer) - l->proto_size, frame);
  frame->kind = ffid == FF_C ? WALK_C : WALK_BUILTIN;
  frame->ffid = ffid;
  return walk_read(walk->memory, &frame->code, at + l->function_code, 8, WALK_GUESS) &&
         (frame->kind == WALK_BUILTIN || is_code(frame->code));
}

bool table_function(walk_t *walk, const value_t *value, walk_frame_t *frame) {
  *frame = (walk_frame_t){.kind = WALK_C};
  if (value->kind == VALUE_LIGHT_FUNCTION) {
    frame->code = value->at;
    return is_code(frame->code);
  }
  if (value->kind != VALUE_FUNCTION || (value->at & 7) != 0) return false;
  frame->function = value->at;
  return walk->layout->family == LAYOUT_LUAJIT ? jit_function(walk, value->at, frame)
                                               : puc_closure(walk, value->at, frame);
}

bool table_wraps_coroutine(walk_t *walk, uint64_t function) {
  const layout_puc_t *l = &walk->layout->puc;
  uint8_t bytes[FUNCTION_BYTES + SLOT];
  walk_frame_t frame = {.kind = WALK_C};
  if (walk->layout->family != LAYOUT_PUC || (function & 7) != 0 || !puc_closure(walk, function, &frame) ||
      frame.kind != WALK_C)
    return false;
  /* the count of upvalues follows the mark, and isC where there is one; the upvalues follow the code */
  uint32_t count = l->closure_tag + (is_there(l->closure_is_c) ? 3u : 2u), upvalue = l->closure_code + 8u;
  if (upvalue + SLOT > sizeof bytes || count >= upvalue ||
      !walk_read(walk->memory, bytes, function, upvalue + SLOT, WALK_GUESS))
    return false;
  return bytes[count] == 1 && (puc_tag(l, bytes, upvalue + TAG) & PUC_VARIANT) == l->tag_thread;
}
