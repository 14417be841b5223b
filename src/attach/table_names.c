/* SPDX-License-Identifier: MIT */
/* Keeping names; see table_names.h. */
#include "attach/table_names.h"

#include <stdio.h>
#include <string.h>

#include "name/ffi_name.h"
#include "profile/mem.h"

#define BUILTIN_KEY ((uint64_t)1 << 63)

enum { FIRST_ROOM = 1024, TEXTS_MOST = 3 << 18 };

static uint64_t key_of(const walk_frame_t *frame) {
  switch (frame->kind) {
    case WALK_LUA:
      return frame->proto;
    case WALK_C:
      return frame->code;
    case WALK_BUILTIN:
      return BUILTIN_KEY | frame->ffid;
    default:
      return 0;
  }
}

bool name_is_better(name_class_t class, const char *name, size_t len, name_class_t than_class,
                    const char *than, size_t than_len) {
  if (class != than_class) return class < than_class;
  if (len != than_len || len == 0) return len < than_len;
  return memcmp(name, than, len) < 0;
}

/* The slot of a key, or the free one it belongs into. */
static table_name_t *slot_of(table_name_t *slots, size_t room, uint64_t key) {
  size_t at = (key >> 2) * 0x9e3779b97f4a7c15u >> 32 & (room - 1);
  while (slots[at].key != 0 && slots[at].key != key) at = (at + 1) & (room - 1);
  return &slots[at];
}

static bool make_room(table_names_t *n) {
  if (n->room > 0 && n->count < n->room / 2) return true;
  size_t room = n->room > 0 ? 2 * n->room : FIRST_ROOM;
  table_name_t *slots = mem_alloc(room * sizeof *slots);
  if (slots == NULL) return false;
  for (size_t i = 0; i < n->room; i++)
    if (n->slots[i].key != 0) *slot_of(slots, room, n->slots[i].key) = n->slots[i];
  mem_free(n->slots);
  n->slots = slots;
  n->room = room;
  return true;
}

void table_names_free(table_names_t *n) {
  mem_free(n->slots);
  mem_free(n->texts);
  memset(n, 0, sizeof *n);
}

/* In the place of the old text where it fits: programs that are looked at for days get better names now and then. */
static bool set_text(table_names_t *n, table_name_t *slot, const char *name, size_t len) {
  if (slot->key == 0 || len > slot->len) {
    if (!mem_reserve((void **)&n->texts, &n->text_room, n->text_bytes + len + 1, 1)) return false;
    slot->text = (uint32_t)n->text_bytes;
    n->text_bytes += len + 1;
  }
  if (n->texts == NULL) return false; /* never: who has a key has a text */
  memcpy(n->texts + slot->text, name, len);
  n->texts[slot->text + len] = '\0';
  slot->len = (uint8_t)len;
  return true;
}

bool table_names_add(table_names_t *n, const walk_frame_t *frame, name_class_t class, const char *name,
                     size_t len) {
  uint64_t key = key_of(frame);
  if (key == 0 || len >= NAME_BYTES) return true;
  if (!make_room(n)) return false;
  table_name_t *slot = slot_of(n->slots, n->room, key);
  bool known = slot->key != 0 && slot->mark == frame->mark; /* else free, or the address was used again */
  if (known && !name_is_better(class, name, len, (name_class_t)slot->class, n->texts + slot->text, slot->len))
    return true;
  if ((slot->key == 0 && n->count == NAMES_MOST) || n->text_bytes >= TEXTS_MOST) return true;
  if (!set_text(n, slot, name, len)) return false;
  n->count += slot->key == 0;
  slot->key = key;
  slot->mark = frame->mark;
  slot->class = (uint8_t) class;
  return true;
}

const char *table_names_find(const table_names_t *n, const walk_frame_t *frame) {
  uint64_t key = key_of(frame);
  if (key == 0 || n->count == 0) return NULL;
  const table_name_t *slot = slot_of(n->slots, n->room, key);
  if (slot->key == 0 || (frame->kind == WALK_LUA && slot->mark != frame->mark)) return NULL;
  return n->texts + slot->text;
}

static void add_hidden(table_names_t *n, uint16_t ffid, const char *name) {
  walk_frame_t hidden = {.kind = WALK_BUILTIN, .ffid = ffid};
  if (table_names_find(n, &hidden) == NULL) table_names_add(n, &hidden, NAME_INHERITED, name, strlen(name));
}

/* In every release the number of the function that is returned is the one before that of the function that returns it. */
static void add_returned(table_names_t *n, uint16_t ffid, const char *name) {
  static const char *const makers[] = {"ipairs", "coroutine.wrap", "string.gmatch"};
  for (size_t i = 0; i < sizeof makers / sizeof makers[0]; i++)
    if (strcmp(name, makers[i]) == 0) add_hidden(n, ffid - 1, name);
}

static void add_ffi(table_names_t *n, uint16_t ffid, const char *name) {
  if (strcmp(name, FFI_NAME_OF_LAST) != 0) return;
  for (uint16_t less = 1; less <= FFI_NAMES && less < ffid; less++)
    add_hidden(n, (uint16_t)(ffid - less), ffi_name(less));
}

void table_names_add_hidden(table_names_t *n) {
  for (uint16_t ffid = 2; ffid < 256; ffid++) {
    walk_frame_t frame = {.kind = WALK_BUILTIN, .ffid = ffid};
    char name[NAME_BYTES];
    const char *held = table_names_find(n, &frame);
    if (held == NULL) continue;
    snprintf(name, sizeof name, "%s", held); /* what is added may move it */
    add_returned(n, ffid, name);
    add_ffi(n, ffid, name);
  }
}
