/* SPDX-License-Identifier: MIT */
/* Which function an event is about, and which call of it: read straight from the VM's memory where its layout is known (three
 * to five loads; in a hook everything is in order), else by asking Lua. */
#ifndef LUAPULSE_AGENT_TRACE_SITE_H
#define LUAPULSE_AGENT_TRACE_SITE_H

#include <string.h>

#include "agent/lua_version.h"
#include "agent/walked.h"
#include "walk/walk.h"

struct vm;

typedef enum { SITE_LUA, SITE_C, SITE_PSEUDO, SITE_KINDS } site_kind_t;

typedef struct {
  uint64_t
      id; /* of the call record: its address where records are a list, else its number or place on the stack */
  uint64_t previous; /* of the caller's, where records are a list */
  uint64_t
      key; /* prototype, address of a C function, number of a built-in; live function when Lua was asked */
  uint64_t check; /* differs when another function lies at the same address, as far as a glance tells */
  site_kind_t kind;
  walk_frame_t frame; /* for names; filled in by site_frame() */
} site_t;

typedef enum { SITE_BY_INTERFACE, SITE_BY_LIST, SITE_BY_ARRAY, SITE_BY_LUAJIT } site_reader_t;

site_reader_t site_reader(bool walkable, const layout_t *layout);
/* The function on top of L, which `ar` (as lua_getstack filled it in) is a call of. Leaves it there. */
void site_of_function(struct vm *vm, site_reader_t reader, const layout_t *layout, lua_State *L,
                      lua_Debug *ar, int level, site_t *site);
/* Which call `ar` is of. */
uint64_t site_call_id(site_reader_t reader, const layout_t *layout, lua_State *L, const lua_Debug *ar);
/* What lies below the first call of the coroutine. */
uint64_t site_base(site_reader_t reader, const layout_t *layout, lua_State *L);
/* Fills in what is needed to name the function. */
void site_frame(site_t *site);

/* Direct loads: a hook finds the running call, its function and prototype alive and whole. */
static inline uint64_t site_load64(uint64_t at) {
  uint64_t value;
  memcpy(&value, (const void *)(uintptr_t)at, sizeof value);
  return value;
}

static inline uint32_t site_load32(uint64_t at) {
  uint32_t value;
  memcpy(&value, (const void *)(uintptr_t)at, sizeof value);
  return value;
}

static inline uint8_t site_load8(uint64_t at) {
  return *(const uint8_t *)(uintptr_t)at;
}

static inline void site_set_proto(const layout_puc_t *l, uint64_t proto, site_t *site) {
  site->kind = SITE_LUA;
  site->key = proto;
  site->check = site_load64(proto + l->proto_code) ^ (uint64_t)site_load32(proto + l->proto_line) << 47;
}

static inline void site_set_c(uint64_t code, site_t *site) {
  site->kind = SITE_C;
  site->key = code;
  site->check = 0;
}

static inline void site_set_closure(const layout_puc_t *l, uint64_t closure, bool is_c, site_t *site) {
  if (is_c)
    site_set_c(site_load64(closure + l->closure_code), site);
  else
    site_set_proto(l, site_load64(closure + l->closure_proto), site);
}

/* As those of all builds of the version are. */
static inline bool site_slots_are_usual(const layout_puc_t *l) {
  return l->tag_bytes == lv_tag_bytes() && (l->tag_lua != l->tag_c) == lv_c_has_a_tag() &&
         (l->tag_light != LAYOUT_ABSENT) == lv_c_has_a_tag();
}

__attribute__((always_inline)) static inline void site_read_slot(const layout_puc_t *l, uint64_t slot,
                                                                 site_t *site) {
  uint64_t value = site_load64(slot);
  uint32_t tag = lv_tag_bytes() == 1 ? site_load8(slot + 8) : site_load32(slot + 8);
  if (!lv_c_has_a_tag())
    site_set_closure(l, value, site_load8(value + l->closure_is_c) != 0, site);
  else if (tag == l->tag_lua)
    site_set_closure(l, value, false, site);
  else if (tag == l->tag_light)
    site_set_c(value, site);
  else
    site_set_closure(l, value, true, site);
}

/* -- LuaJIT -------------------------------------------------------------------------------------------------------- */

/* With 8 bytes to a reference (GC64), or 4. */
static inline bool site_is_wide(const layout_luajit_t *l) {
  return l->pointer == 8;
}

static inline uint64_t site_load_ref(const layout_luajit_t *l, uint64_t at) {
  return site_is_wide(l) ? site_load64(at) : site_load32(at);
}

static inline bool site_luajit_is_lua(const layout_luajit_t *l, uint64_t function) {
  return site_load8(function + l->function_ffid) == 0;
}

static inline void site_set_luajit_lua(const layout_luajit_t *l, uint64_t function, site_t *site) {
  uint64_t proto = site_load_ref(l, function + l->function_pc) - l->proto_size;
  uint64_t source = site_load_ref(l, proto + l->proto_source);
  site->kind = SITE_LUA;
  site->key = proto;
  site->check = source ^ site_load64(proto + l->proto_line); /* and how many lines, which stands beside it */
}

static inline void site_set_luajit_c(const layout_luajit_t *l, uint64_t function, site_t *site) {
  uint8_t ffid = site_load8(function + l->function_ffid);
  site_set_c(ffid == 1 ? site_load64(function + l->function_code) : (WALKED_BUILTIN | ffid), site);
}

static inline void site_set_luajit(const layout_luajit_t *l, uint64_t function, site_t *site) {
  if (site_luajit_is_lua(l, function))
    site_set_luajit_lua(l, function, site);
  else
    site_set_luajit_c(l, function, site);
}

/* The link of a frame, below its base: the instruction to return to in a function of Lua, or the distance to the base below, with the
 * kind of frame in the lowest bits. */
static inline uint64_t site_luajit_link(const layout_luajit_t *l, uint64_t base) {
  return site_is_wide(l) ? site_load64(base - 8) : site_load32(base - 4);
}

static inline bool site_luajit_is_pc(uint64_t link) {
  return (link & 3) == 0;
}

/* A metamethod's: the instruction that called it goes on after it. */
static inline bool site_luajit_is_continued(uint64_t link) {
  return (link & 7) == 2;
}

/* Of a function with variable arguments, copied upwards. */
static inline bool site_luajit_is_copy(uint64_t link) {
  return (link & 7) == 3;
}

static inline uint64_t site_luajit_distance(uint64_t link) {
  return link & ~(uint64_t)7; /* in bytes */
}

enum { SITE_LUAJIT_SLOT = 8 };

/* LuaJIT announces a function with variable arguments before it copies its frame upwards, and from then on means the copy: both
 * are the one call, and go by the place of the first. */
static inline uint64_t site_luajit_original(uint64_t link, uint64_t id) {
  if (!site_luajit_is_copy(link)) return id;
  uint64_t distance = site_luajit_distance(link) / SITE_LUAJIT_SLOT;
  return distance < id ? id - distance : id;
}

static inline uint64_t site_luajit_call_id(const layout_luajit_t *l, lua_State *L, uint64_t id) {
  uint64_t stack = site_load_ref(l, (uint64_t)(uintptr_t)L + l->state_stack);
  return site_luajit_original(site_luajit_link(l, stack + (id + 1) * SITE_LUAJIT_SLOT), id);
}

/* The place of the frame below the one with this link, which may be a copy. An instruction that calls names the slot it calls in. */
static inline uint64_t site_luajit_below(const layout_luajit_t *l, uint64_t link, uint64_t id) {
  if (!site_luajit_is_pc(link)) return id - site_luajit_distance(link) / SITE_LUAJIT_SLOT;
  uint64_t slot = site_load8(link - 3); /* of the instruction before: its second byte */
  return id - slot - (site_is_wide(l) ? 2 : 1);
}

static inline uint64_t site_luajit_base(const layout_luajit_t *l, lua_State *L) {
  return site_load64((uint64_t)(uintptr_t)L + l->state_base);
}

/* The function of the call with this base. */
static inline uint64_t site_luajit_function(const layout_luajit_t *l, uint64_t base) {
  const uint64_t address = ((uint64_t)1 << 47) - 1;
  return site_is_wide(l) ? site_load64(base - 16) & address : site_load32(base - 8);
}

/* -- any ------------------------------------------------------------------------------------------------------------- */

void site_read_other(struct vm *vm, site_reader_t reader, const layout_t *layout, lua_State *L, lua_Debug *ar,
                     bool function_too, site_t *site);

/* The call that the hook `ar` is in; its function only when that is wanted too. */
static inline void site_read(struct vm *vm, site_reader_t reader, const layout_t *layout, lua_State *L,
                             lua_Debug *ar, bool function_too, site_t *site) {
  if (reader != SITE_BY_LIST) {
    site_read_other(vm, reader, layout, L, ar, function_too, site);
    return;
  }
  uint64_t ci = site_load64((uint64_t)(uintptr_t)L + layout->puc.state_ci);
  site->id = ci;
  if (!function_too) return;
  site->previous = site_load64(ci + layout->puc.ci_previous);
  site_read_slot(&layout->puc, site_load64(ci + layout->puc.ci_func), site);
}

/* The global_State of L. */
static inline uint64_t site_global(const layout_t *layout, lua_State *L) {
  uint64_t global = 0;
  if (layout->family == LAYOUT_PUC)
    memcpy(&global, (const char *)L + layout->puc.state_global, sizeof global);
  else
    memcpy(&global, (const char *)L + layout->luajit.state_global, layout->luajit.pointer);
  return global;
}

#endif
