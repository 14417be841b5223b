/* SPDX-License-Identifier: MIT */
/* Which function an event is about; see trace_site.h. */
#include "agent/trace_site.h"

#include "agent/function.h"
#include "agent/vm.h"

site_reader_t site_reader(bool walkable, const layout_t *layout) {
  if (!walkable) return SITE_BY_INTERFACE;
  if (layout->family == LAYOUT_LUAJIT) return SITE_BY_LUAJIT;
  if (!site_slots_are_usual(&layout->puc)) return SITE_BY_INTERFACE;
  return layout->puc.ci_previous != LAYOUT_ABSENT ? SITE_BY_LIST : SITE_BY_ARRAY;
}

/* -- functions ---------------------------------------------------------------------------------------------------- */

uint64_t site_call_id(site_reader_t reader, const layout_t *layout, lua_State *L, const lua_Debug *ar) {
  uint64_t id = lv_call_id(ar);
  return reader == SITE_BY_LUAJIT && id != 0 ? site_luajit_call_id(&layout->luajit, L, id) : id;
}

/* -- calls -------------------------------------------------------------------------------------------------------- */

static void read_by_interface(struct vm *vm, lua_State *L, lua_Debug *ar, int level, site_t *site) {
  lua_Debug caller;
  site->id = lv_call_id(ar);
  site->previous = lua_getstack(L, level + 1, &caller) ? lv_call_id(&caller) : 0;
  site->kind = SITE_C;
  site->key = site->check = 0;
  if (!lua_getinfo(L, "Sf", ar)) return;
  if (lua_isfunction(L, -1)) {
    site->kind = lua_iscfunction(L, -1) ? SITE_C : SITE_LUA;
    site->key = function_of_frame(vm, L, ar, level);
  }
  lua_pop(L, 1);
}

/* The caller of the running call, whose place on the stack is `id`. */
static uint64_t previous_of_luajit(const layout_luajit_t *l, lua_State *L, uint64_t base, uint64_t id) {
  uint64_t link = site_luajit_link(l, base), original = site_luajit_original(link, id);
  if (original != id) link = site_luajit_link(l, base - (id - original) * SITE_LUAJIT_SLOT);
  return site_luajit_call_id(l, L, site_luajit_below(l, link, original));
}

void site_read_other(struct vm *vm, site_reader_t reader, const layout_t *layout, lua_State *L, lua_Debug *ar,
                     bool function_too, site_t *site) {
  uint64_t state = (uint64_t)(uintptr_t)L;
  if (reader == SITE_BY_INTERFACE) {
    read_by_interface(vm, L, ar, 0, site);
    return;
  }
  site->id = site_call_id(reader, layout, L, ar);
  site->previous = site->id - 1;
  if (reader == SITE_BY_LUAJIT) {
    const layout_luajit_t *l = &layout->luajit;
    uint64_t base = site_luajit_base(l, L);
    site->previous = previous_of_luajit(l, L, base, lv_call_id(ar));
    if (function_too) site_set_luajit(l, site_luajit_function(l, base), site);
    return;
  }
  if (!function_too) return;
  if (reader == SITE_BY_ARRAY) {
    site_read_slot(&layout->puc, site_load64(site_load64(state + layout->puc.state_ci) + layout->puc.ci_func),
                   site);
  }
}

void site_of_function(struct vm *vm, site_reader_t reader, const layout_t *layout, lua_State *L,
                      lua_Debug *ar, int level, site_t *site) {
  uint64_t object = (uint64_t)(uintptr_t)lua_topointer(L, -1);
  lua_CFunction c = lua_tocfunction(L, -1);
  *site = (site_t){.id = site_call_id(reader, layout, L, ar), .kind = c != NULL ? SITE_C : SITE_LUA};
  switch (reader) {
    case SITE_BY_LIST:
    case SITE_BY_ARRAY:
      if (c != NULL)
        site_set_c((uint64_t)(uintptr_t)c, site);
      else
        site_set_proto(&layout->puc, site_load64(object + layout->puc.closure_proto), site);
      break;
    case SITE_BY_LUAJIT:
      site_set_luajit(&layout->luajit, object, site);
      break;
    case SITE_BY_INTERFACE:
      if (lua_getinfo(L, "S", ar)) site->key = function_of_frame(vm, L, ar, level);
      break;
  }
}

uint64_t site_base(site_reader_t reader, const layout_t *layout, lua_State *L) {
  return reader == SITE_BY_LIST ? (uint64_t)(uintptr_t)L + layout->puc.state_base_ci : 0;
}

void site_frame(site_t *site) {
  site->frame = (walk_frame_t){.kind = WALK_C, .code = site->key};
  if (site->kind == SITE_LUA)
    site->frame = (walk_frame_t){.kind = WALK_LUA, .proto = site->key};
  else if (site->key & WALKED_BUILTIN)
    site->frame = (walk_frame_t){.kind = WALK_BUILTIN, .ffid = (uint16_t)(site->key & 0xff)};
}
