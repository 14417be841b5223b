/* SPDX-License-Identifier: MIT */
/* Functions of walked frames; see walked.h. Runs in signal handlers: no allocation, no stdio, bounded work. */
#include "agent/walked.h"

#include <string.h>

#include "agent/function.h"
#include "agent/region.h"
#include "agent/symbol.h"
#include "agent/vm.h"
#include "name/definition.h"
#include "name/place.h"
#include "profile/intern.h"

enum {
  CHECK_CODE_EVERY = 1000000000, /* ns */
  MAX_NAME = PLACE_NAME,
  FINGERPRINT_BYTES = 4096
};

#define COLLECTOR_KEY (WALKED_BUILTIN | (uint64_t)1 << 32)

/* -- the cache ------------------------------------------------------------------------------------------- */

uint64_t walked_key(const walk_frame_t *frame) {
  switch (frame->kind) {
    case WALK_LUA:
      return frame->proto;
    case WALK_C:
      return frame->code;
    case WALK_COLLECTOR:
      return COLLECTOR_KEY;
    default:
      return WALKED_BUILTIN | frame->ffid;
  }
}

static walked_entry_t *set_of(vm_t *vm, uint64_t key) {
  return vm->scratch->walked.entries[(key >> 3) * 0x9e3779b97f4a7c15u >> 55];
}

walked_entry_t *walked_find(vm_t *vm, uint64_t key) {
  walked_entry_t *set = set_of(vm, key);
  for (int way = 0; way < WALKED_WAYS; way++)
    if (set[way].key == key) return &set[way];
  return NULL;
}

/* The free or least seen entry of the set; survivors age, so that yesterday's hot function goes at last. */
static walked_entry_t *claim(vm_t *vm, uint64_t key) {
  walked_entry_t *set = set_of(vm, key), *victim = &set[0];
  for (int way = 0; way < WALKED_WAYS; way++) {
    if (set[way].key == 0 || set[way].sightings < victim->sightings) victim = &set[way];
    if (set[way].key == 0) break;
  }
  for (int way = 0; way < WALKED_WAYS; way++) set[way].sightings -= set[way].sightings / 8;
  memset(victim, 0, sizeof *victim);
  return victim;
}

/* -- identity -------------------------------------------------------------------------------------------- */

/* LuaJIT rewrites instructions in place: there only sizes count. */
static uint32_t fingerprint(vm_t *vm, walk_t *walk, const walk_proto_t *proto) {
  uint64_t size = proto->code_end - proto->code;
  uint32_t hash = hash_bytes(&size, sizeof size, 1);
  if (vm->luajit) return hash_bytes(&proto->line_count, sizeof proto->line_count, hash);
  uint8_t bytes[256];
  for (uint64_t at = 0; at < size && at < FINGERPRINT_BYTES; at += sizeof bytes) {
    uint32_t len = size - at < sizeof bytes ? (uint32_t)(size - at) : (uint32_t)sizeof bytes;
    if (!walk_read(walk->memory, bytes, proto->code + at, len, WALK_LIVE)) break;
    hash = hash_bytes(bytes, len, hash);
  }
  return hash;
}

static bool is_same(vm_t *vm, walk_t *walk, const walk_proto_t *proto, walked_entry_t *entry) {
  if (entry->source != proto->source || entry->line != proto->line || entry->last_line != proto->last_line ||
      entry->code != proto->code || entry->code_end != proto->code_end)
    return false;
  if (vm->now - entry->checked < CHECK_CODE_EVERY) return true;
  entry->checked = vm->now;
  return entry->fingerprint == fingerprint(vm, walk, proto);
}

bool walked_still(vm_t *vm, walk_t *walk, const walk_frame_t *frame) {
  if (frame->kind != WALK_LUA) return true;
  walked_entry_t *entry = walked_find(vm, frame->proto);
  walk_proto_t proto;
  return entry != NULL && walk_proto(walk, frame->proto, WALK_LIVE, &proto) &&
         is_same(vm, walk, &proto, entry);
}

/* -- first sight ------------------------------------------------------------------------------------------ */

static live_ref_t enter_function(vm_t *vm, live_function_t *function, place_t name, place_t file,
                                 uint32_t rank) {
  function->name = live_string(&vm->live, name.bytes, name.len);
  function->file = live_string(&vm->live, file.bytes, file.len);
  if (function->name == 0 || function->file == 0) return 0;
  live_ref_t ref = live_function(&vm->live, function);
  if (ref != 0 && rank > 0) live_rename(&vm->live, ref, function->name, rank);
  return ref;
}

live_ref_t walked_parser(vm_t *vm, walk_t *walk, uint64_t source) {
  static const char begin[] = "[parser: ";
  char *text = vm->scratch->walked.text, name[MAX_NAME], chunk[PLACE_CHUNK];
  size_t len = 0, used = sizeof begin - 1;
  if (!walk_string(walk, source, text, WALKED_TEXT, &len)) len = 0;
  place_t file = place_file(text, len < WALKED_TEXT ? len : WALKED_TEXT, chunk);
  size_t shown = file.len < MAX_NAME - sizeof begin - 1 ? file.len : MAX_NAME - sizeof begin - 1;
  memcpy(name, begin, used);
  memcpy(name + used, file.bytes + (file.len - shown), shown); /* the end of a long path says more */
  name[used + shown] = ']';
  live_function_t function = {.name = live_string(&vm->live, name, used + shown + 1), .kind = LIVE_PSEUDO};
  return function.name != 0 ? live_function(&vm->live, &function) : 0;
}

static live_ref_t enter_lua(vm_t *vm, walk_t *walk, const walk_proto_t *proto, uint32_t code) {
  char *text = vm->scratch->walked.text, name[MAX_NAME], chunk[PLACE_CHUNK];
  static const char main_chunk[] = "main chunk";
  size_t len = 0;
  if (!walk_string(walk, proto->source, text, WALKED_TEXT, &len)) len = 0;
  if (len > WALKED_TEXT) len = WALKED_TEXT;
  place_t file = place_file(text, len, chunk), called = {name, 0};
  uint32_t rank = NAME_PLACE;
  if (len > 0 && text[0] != '@' && text[0] != '=') {
    called.len = proto->line > 0 ? definition_name(text, len, (uint32_t)proto->line, name, sizeof name) : 0;
    if (called.len > 0) rank = NAME_DEFINITION;
  }
  if (proto->line == 0) {
    called = (place_t){main_chunk, sizeof main_chunk - 1};
    rank = NAME_FINAL;
  } else if (region_is(file.bytes, file.len)) {
    called = file;
    rank = NAME_FINAL;
  } else if (called.len == 0) {
    called.len = place_name(file, proto->line, name);
  }
  live_function_t function = {
      .line = proto->line, .last_line = proto->last_line, .code = code, .kind = LIVE_LUA};
  return enter_function(vm, &function, called, file, rank);
}

static live_ref_t enter_c(vm_t *vm, uint64_t key, place_t name, uint32_t rank) {
  static const char file[] = "[C]";
  live_function_t function = {.code = hash_bytes(&key, sizeof key, 0), .kind = LIVE_C};
  return enter_function(vm, &function, name, (place_t){file, sizeof file - 1}, rank);
}

void walked_announce(vm_t *vm, uint64_t key, const char *name, size_t len, uint32_t rank) {
  walked_entry_t *entry = walked_find(vm, key);
  if (entry != NULL) {
    function_name(vm, entry->function, name, len, rank);
    return;
  }
  char copy[MAX_NAME];
  if (len > sizeof copy) return;
  memcpy(copy, name, len);
  live_ref_t ref = enter_c(vm, key, (place_t){copy, len}, rank);
  if (ref == 0) return;
  *claim(vm, key) = (walked_entry_t){.key = key, .function = ref, .sightings = 1};
}

static walked_entry_t *enter(vm_t *vm, walk_t *walk, const walk_frame_t *frame, const walk_proto_t *proto) {
  walked_entry_t made = {.key = walked_key(frame), .checked = vm->now};
  if (frame->kind == WALK_LUA) {
    made.source = proto->source;
    made.code = proto->code;
    made.code_end = proto->code_end;
    made.line = proto->line;
    made.last_line = proto->last_line;
    made.fingerprint = fingerprint(vm, walk, proto);
    made.function = enter_lua(vm, walk, proto, made.fingerprint);
  } else {
    char name[MAX_NAME];
    made.function =
        enter_c(vm, made.key, (place_t){name, symbol_name(frame->code, name, sizeof name)}, NAME_PLACE);
  }
  if (made.function == 0) return NULL;
  walked_entry_t *entry = claim(vm, made.key);
  *entry = made;
  vm->names_wanted = true;
  return entry;
}

live_ref_t walked_function(vm_t *vm, walk_t *walk, const walk_frame_t *frame, int32_t *line) {
  *line = 0;
  if (frame->kind == WALK_COLLECTOR) return vm->collector_function;
  walked_entry_t *entry = walked_find(vm, walked_key(frame));
  walk_proto_t proto;
  if (frame->kind == WALK_LUA) {
    if (!walk_proto(walk, frame->proto, WALK_LIVE, &proto)) return 0;
    *line = frame->pc != 0 ? walk_line(walk, &proto, frame->pc) : 0;
    if (*line == 0) *line = proto.line;
    if (entry != NULL && !is_same(vm, walk, &proto, entry)) {
      entry->key = 0; /* the address was reused: what stood there is another function now */
      entry = NULL;
    }
  }
  if (entry == NULL) entry = enter(vm, walk, frame, &proto);
  if (entry == NULL) return 0;
  entry->sightings++;
  return entry->function;
}
