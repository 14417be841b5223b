/* SPDX-License-Identifier: MIT */
/* Labels of coroutines; see label.h.
 *
 * The truth is a table of Lua with weak keys. For signal handlers, which cannot ask Lua, a copy by address is kept beside
 * it; an address counts only while the coroutine there has the same first function, and entries of collected coroutines
 * are thrown out as labels are set. */
#include "agent/label.h"

#include <string.h>

#include "agent/walker.h"

/* -- the copy --------------------------------------------------------------------------------------------------- */

static raw_label_t *raw_slot(vm_t *vm, uint64_t state) {
  raw_label_t *slots = vm->scratch->raw_labels;
  size_t at = (size_t)((state >> 4) * 0x9e3779b97f4a7c15u >> 52) % RAW_LABELS;
  while (slots[at].state != 0 && slots[at].state != state)
    at = (at + 1) % RAW_LABELS; /* never full: see below */
  return &slots[at];
}

static void raw_put(vm_t *vm, lua_State *L, live_ref_t labels) {
  raw_label_t *slot = raw_slot(vm, (uint64_t)(uintptr_t)L);
  if (slot->state == 0) vm->raw_label_count++;
  *slot = (raw_label_t){(uint64_t)(uintptr_t)L, walker_body_of(L), labels};
}

/* Makes the copy anew: what Lua has collected since is gone. False when there are too many coroutines for it. */
static bool raw_renew(vm_t *vm, lua_State *L) {
  memset(vm->scratch->raw_labels, 0, sizeof vm->scratch->raw_labels);
  vm->raw_label_count = vm->raw_labels_set = 0;
  lua_pushnil(L);
  while (lua_next(L, -2)) {
    lua_State *co = lua_tothread(L, -2);
    if (co != NULL && vm->raw_label_count < RAW_LABELS / 2) raw_put(vm, co, (live_ref_t)lua_tointeger(L, -1));
    lua_pop(L, 1);
  }
  return vm->raw_label_count < RAW_LABELS / 2;
}

/* The table of labels is on top of L. */
static bool raw_set(vm_t *vm, lua_State *L, live_ref_t labels) {
  bool room = true;
  vm_keep_out(vm);
  if (++vm->raw_labels_set > 64 + vm->raw_label_count) room = raw_renew(vm, L);
  if (vm->raw_label_count >= RAW_LABELS / 2) room = raw_renew(vm, L);
  if (room) raw_put(vm, L, labels);
  vm_let_in(vm);
  return room;
}

/* -- setting and getting ---------------------------------------------------------------------------------------- */

bool label_set(vm_t *vm, lua_State *L, const char *text, size_t len, failure_t *failure) {
  live_ref_t set = 0;
  bool room = true;
  if (len > 0) {
    vm_keep_out(vm);
    set = live_string(&vm->live, text, len);
    vm_let_in(vm);
    if (set == 0)
      return failure_set(failure, "no room for new labels: the profile tables are full (max_memory_bytes)");
  }
  lua_rawgeti(L, LUA_REGISTRYINDEX, vm->labels_ref);
  lua_pushthread(L);
  if (set != 0)
    lua_pushinteger(L, (lua_Integer)set);
  else
    lua_pushnil(L);
  lua_rawset(L, -3);
  if (vm->global != 0 && (set != 0 || vm->has_labels)) room = raw_set(vm, L, set);
  lua_pop(L, 1);
  if (set != 0) vm->has_labels = true;
  return room || failure_set(failure, "more than %d coroutines have labels at once", RAW_LABELS / 2);
}

live_ref_t label_get(vm_t *vm, lua_State *L) {
  if (!vm->has_labels) return 0;
  lua_rawgeti(L, LUA_REGISTRYINDEX, vm->labels_ref);
  lua_pushthread(L);
  lua_rawget(L, -2);
  live_ref_t set = (live_ref_t)lua_tointeger(L, -1);
  lua_pop(L, 2);
  return set;
}

/* -- in a signal handler ------------------------------------------------------------------------------------------ */

static live_ref_t own_labels(vm_t *vm, walk_t *walk) {
  if (!vm->has_labels) return 0;
  const walk_state_t *state = &walk->states[0];
  const raw_label_t *slot = raw_slot(vm, state->state);
  if (slot->state == 0 || slot->labels == 0) return 0;
  return state->state == vm->main_state || slot->body == walk_body(walk, state) ? slot->labels : 0;
}

static size_t add_pair(char *text, size_t len, const char *key, const char *value) {
  size_t key_size = strlen(key) + 1, value_size = strlen(value) + 1;
  memcpy(text + len, key, key_size);
  memcpy(text + len + key_size, value, value_size);
  return len + key_size + value_size;
}

static const char *decimal(uint32_t number, char digits[12]) {
  char *at = digits + 11;
  *at = '\0';
  do *--at = (char)('0' + number % 10);
  while ((number /= 10) != 0);
  return at;
}

static live_ref_t make_set(vm_t *vm, const label_set_t *set) {
  static const char *const vmstates[] = {"", "interpreter", "trace", "c", "gc", "compiler", "exit"};
  static const char *const states[] = {"", "running", "waiting"};
  static const char *const types[] = {"",         "string", "table",     "function",
                                      "userdata", "thread", "prototype", "upvalue"};
  char *text = vm->scratch->walked.text, digits[12];
  size_t len = 0;
  if (set->own != 0) {
    text_t own = live_text(&vm->live, set->own);
    if (own.len > WALKED_TEXT - 128) return set->own; /* longer than anybody reads */
    memcpy(text, own.data, own.len);
    len = own.len;
  }
  if (set->vmstate != 0) len = add_pair(text, len, "vmstate", vmstates[set->vmstate]);
  if (set->trace != 0) len = add_pair(text, len, "trace", decimal(set->trace, digits));
  if (set->state != 0) len = add_pair(text, len, "state", states[set->state]);
  if (set->type != 0) len = add_pair(text, len, "type", types[set->type]);
  return live_string(&vm->live, text, len);
}

live_ref_t label_of_walk(vm_t *vm, walk_t *walk, label_state_t state, label_type_t type) {
  label_set_t wanted = {.own = own_labels(vm, walk), .vmstate = walk->vmstate, .state = state, .type = type};
  if (walk->vmstate == WALK_VM_TRACE) wanted.trace = walk->trace;
  if (wanted.vmstate == 0 && wanted.state == 0 && wanted.type == 0) return wanted.own;
  uint32_t hash =
      wanted.own * 31u + wanted.vmstate * 7u + wanted.trace * 13u + wanted.state + wanted.type * 5u;
  label_set_t *slot = &vm->scratch->label_sets[hash % LABEL_SETS];
  if (slot->whole != 0 && slot->own == wanted.own && slot->vmstate == wanted.vmstate &&
      slot->trace == wanted.trace && slot->state == wanted.state && slot->type == wanted.type)
    return slot->whole;
  wanted.whole = make_set(vm, &wanted);
  if (wanted.whole != 0) *slot = wanted;
  return wanted.whole;
}
