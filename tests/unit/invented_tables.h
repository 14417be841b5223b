/* SPDX-License-Identifier: MIT */
/* A VM that never was, by any layout: tables, strings and functions in an arena, for the tests of names. What is read outside of the arena
 * fails, and what is read past the end of something is for sanitizers to see. */
#ifndef LUAPULSE_TESTS_INVENTED_TABLES_H
#define LUAPULSE_TESTS_INVENTED_TABLES_H

#include <stdlib.h>
#include <string.h>

#include "attach/table.h"

enum { INVENTED_BYTES = 1 << 20, INVENTED_CODE = 0x400000 };
#define INVENTED_BASE ((uint64_t)1 << 20) /* references of 32 bits reach it */

typedef struct invented {
  walk_memory_t memory; /* first */
  const layout_t *layout;
  uint8_t *bytes;
  uint32_t used;
  uint64_t global, main, registry, globals, loaded;
  uint64_t reads;
  void (*on_forget)(struct invented *vm); /* the process runs on */
} invented_t;

static bool invented_read(walk_memory_t *memory, void *to, uint64_t from, uint32_t len, walk_trust_t trust) {
  invented_t *vm = (invented_t *)memory;
  (void)trust;
  vm->reads++;
  if (from < INVENTED_BASE || from - INVENTED_BASE > INVENTED_BYTES ||
      len > INVENTED_BYTES - (from - INVENTED_BASE))
    return false;
  memcpy(to, vm->bytes + (from - INVENTED_BASE), len);
  return true;
}

static void invented_forget(walk_memory_t *memory) {
  invented_t *vm = (invented_t *)memory;
  if (vm->on_forget != NULL) vm->on_forget(vm);
}

static inline void put(invented_t *vm, uint64_t at, uint64_t value, uint32_t size) {
  memcpy(vm->bytes + (at - INVENTED_BASE), &value, size);
}

static inline uint64_t room(invented_t *vm, uint32_t size) {
  uint64_t at = INVENTED_BASE + vm->used;
  vm->used += (size + 15) & ~15u;
  return at;
}

static inline bool is_jit(const invented_t *vm) {
  return vm->layout->family == LAYOUT_LUAJIT;
}

static inline uint64_t new_string(invented_t *vm, const char *text) {
  const layout_puc_t *l = &vm->layout->puc;
  const layout_luajit_t *j = &vm->layout->luajit;
  size_t len = strlen(text);
  uint64_t at = room(vm, 64 + (uint32_t)len);
  if (is_jit(vm)) {
    put(vm, at + j->state_tag, 4, 1);
    put(vm, at + j->string_length, len, 4);
    memcpy(vm->bytes + (at - INVENTED_BASE) + j->string_bytes, text, len);
    return at;
  }
  put(vm, at + l->string_tag, 4, 1);
  if (l->string_short_length != LAYOUT_ABSENT)
    put(vm, at + l->string_short_length, len, 1);
  else
    put(vm, at + l->string_length, len, 8);
  memcpy(vm->bytes + (at - INVENTED_BASE) + l->string_bytes, text, len);
  return at;
}

/* A value where it is kept: 16 bytes of PUC Lua, 8 of LuaJIT. */
static inline void put_value(invented_t *vm, uint64_t at, value_t value) {
  const layout_puc_t *l = &vm->layout->puc;
  static const uint8_t jit_types[] = {0, 4, 11, 8, 8};
  uint32_t collected = vm->layout->language > 51 ? 64 : 0;
  if (is_jit(vm)) {
    uint64_t type = ~(uint64_t)jit_types[value.kind];
    put(vm, at, vm->layout->luajit.pointer == 8 ? type << 47 | value.at : type << 32 | value.at, 8);
    return;
  }
  uint32_t tag = 0;
  if (value.kind == VALUE_STRING) tag = 4 | collected;
  if (value.kind == VALUE_TABLE) tag = 5 | collected;
  if (value.kind == VALUE_LIGHT_FUNCTION) tag = l->tag_light;
  if (value.kind == VALUE_FUNCTION) { /* as the closure says */
    bool is_c = l->closure_is_c != LAYOUT_ABSENT
                    ? vm->bytes[value.at - INVENTED_BASE + l->closure_is_c] != 0
                    : vm->bytes[value.at - INVENTED_BASE + l->closure_tag] == (l->tag_c & 63);
    tag = is_c ? l->tag_c : l->tag_lua;
  }
  put(vm, at, value.at, 8);
  put(vm, at + 8, tag, l->tag_bytes);
}

static inline value_t new_table(invented_t *vm, uint32_t log_nodes) {
  const layout_puc_t *l = &vm->layout->puc;
  const layout_luajit_t *j = &vm->layout->luajit;
  uint32_t count = 1u << log_nodes;
  uint64_t at = room(vm, LAYOUT_TABLE_BYTES),
           nodes = room(vm, count * (is_jit(vm) ? j->node_size : l->node_size));
  if (is_jit(vm)) {
    put(vm, at + j->state_tag, 11, 1);
    put(vm, at + j->table_nodes, nodes, j->pointer);
    put(vm, at + j->table_node_mask, count - 1, 4);
    memset(vm->bytes + (nodes - INVENTED_BASE), 0xff, count * j->node_size); /* nil */
  } else {
    put(vm, at + l->closure_tag, 5, 1);
    put(vm, at + l->table_nodes, nodes, 8);
    put(vm, at + l->table_log_nodes, log_nodes, 1);
  }
  return (value_t){VALUE_TABLE, at};
}

static inline uint64_t node_at(invented_t *vm, value_t table, uint32_t index) {
  const layout_puc_t *l = &vm->layout->puc;
  const layout_luajit_t *j = &vm->layout->luajit;
  uint64_t nodes = 0;
  const uint8_t *head = vm->bytes + (table.at - INVENTED_BASE);
  memcpy(&nodes, head + (is_jit(vm) ? j->table_nodes : l->table_nodes), is_jit(vm) ? j->pointer : 8u);
  return nodes + (uint64_t)index * (is_jit(vm) ? j->node_size : l->node_size);
}

static inline void set(invented_t *vm, value_t table, uint32_t index, const char *key, value_t value) {
  const layout_puc_t *l = &vm->layout->puc;
  const layout_luajit_t *j = &vm->layout->luajit;
  uint64_t node = node_at(vm, table, index), string = new_string(vm, key);
  if (is_jit(vm)) {
    put_value(vm, node + j->node_value, value);
    put_value(vm, node + j->node_key, (value_t){VALUE_STRING, string});
    return;
  }
  put_value(vm, node + l->node_value, value);
  put(vm, node + l->node_key, string, 8);
  put(vm, node + l->node_key_tag, vm->layout->language > 51 ? 68 : 4, l->tag_bytes);
}

static inline void set_metatable(invented_t *vm, value_t table, value_t metatable) {
  if (is_jit(vm))
    put(vm, table.at + vm->layout->luajit.table_metatable, metatable.at, vm->layout->luajit.pointer);
  else
    put(vm, table.at + vm->layout->puc.table_metatable, metatable.at, 8);
}

/* A C function; of LuaJIT with ffid above 1 a built-in. */
static inline value_t new_c_function(invented_t *vm, uint64_t code, uint8_t ffid) {
  const layout_puc_t *l = &vm->layout->puc;
  const layout_luajit_t *j = &vm->layout->luajit;
  uint64_t at = room(vm, 64);
  if (is_jit(vm)) {
    put(vm, at + j->state_tag, 8, 1);
    put(vm, at + j->function_ffid, ffid, 1);
    put(vm, at + j->function_code, code, 8);
  } else {
    put(vm, at + l->closure_tag, l->closure_is_c != LAYOUT_ABSENT ? 6 : l->tag_c & 63, 1);
    if (l->closure_is_c != LAYOUT_ABSENT) put(vm, at + l->closure_is_c, 1, 1);
    put(vm, at + l->closure_code, code, 8);
  }
  return (value_t){VALUE_FUNCTION, at};
}

static inline value_t new_lua_function(invented_t *vm, uint64_t *proto, uint32_t line) {
  const layout_puc_t *l = &vm->layout->puc;
  const layout_luajit_t *j = &vm->layout->luajit;
  uint64_t at = room(vm, 64);
  *proto = room(vm, 256);
  if (is_jit(vm)) {
    put(vm, at + j->state_tag, 8, 1);
    put(vm, at + j->function_pc, *proto + j->proto_size, j->pointer);
    put(vm, *proto + j->state_tag, 7, 1);
    put(vm, *proto + j->proto_code_count, 3, 4);
    put(vm, *proto + j->proto_line, line, 4);
  } else {
    put(vm, at + l->closure_tag, 6, 1);
    put(vm, at + l->closure_proto, *proto, 8);
    put(vm, *proto + l->proto_tag, l->tag_proto, 1);
    put(vm, *proto + l->proto_code_count, 3, 4);
    put(vm, *proto + l->proto_line, line, 4);
  }
  return (value_t){VALUE_FUNCTION, at};
}

/* 5.2 on: the globals stand in the second slot of the registry. */
static inline void put_globals_into_registry(invented_t *vm) {
  const layout_puc_t *l = &vm->layout->puc;
  uint64_t array = room(vm, 64) + 32;
  put(vm, vm->registry + l->table_array, array, 8);
  put(vm, vm->registry + l->table_array_count, 2, 4);
  if (l->table_array_tags == LAYOUT_ABSENT) {
    put_value(vm, array + 16, (value_t){VALUE_TABLE, vm->globals});
    return;
  }
  put(vm, array - 16, vm->globals, 8);
  put(vm, array + l->table_array_tags + 1, 69, 1);
}

/* With a registry of 4 nodes, whose first is _LOADED, package.loaded of 8 and globals of 8 nodes. */
static inline void invent(invented_t *vm, const layout_t *layout) {
  const layout_puc_t *l = &layout->puc;
  const layout_luajit_t *j = &layout->luajit;
  *vm = (invented_t){.memory = {.read = invented_read, .forget = invented_forget}, .layout = layout};
  vm->bytes = calloc(1, INVENTED_BYTES);
  vm->global = room(vm, 8192);
  vm->main = is_jit(vm) || l->global_main_inside == LAYOUT_ABSENT ? room(vm, 1024)
                                                                  : vm->global + l->global_main_inside;
  value_t registry = new_table(vm, 2), globals = new_table(vm, 3), loaded = new_table(vm, 3);
  vm->registry = registry.at;
  vm->globals = globals.at;
  vm->loaded = loaded.at;
  set(vm, registry, 0, "_LOADED", loaded);
  put_value(vm, vm->global + (is_jit(vm) ? j->global_registry : l->global_registry), registry);
  if (is_jit(vm)) {
    put(vm, vm->global + j->global_main, vm->main, j->pointer);
    put(vm, vm->main + j->state_globals, vm->globals, j->pointer);
    return;
  }
  if (l->global_main_inside == LAYOUT_ABSENT) put(vm, vm->global + l->global_main, vm->main, 8);
  if (layout->language > 51)
    put_globals_into_registry(vm);
  else
    put_value(vm, vm->main + l->state_globals, globals);
}

static inline value_t in_registry(const invented_t *vm) {
  return (value_t){VALUE_TABLE, vm->registry};
}
static inline value_t in_globals(const invented_t *vm) {
  return (value_t){VALUE_TABLE, vm->globals};
}
static inline value_t in_loaded(const invented_t *vm) {
  return (value_t){VALUE_TABLE, vm->loaded};
}

#endif
