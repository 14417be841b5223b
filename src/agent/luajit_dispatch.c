/* SPDX-License-Identifier: MIT */
/* Learning where LuaJIT's dispatch tables are, and which instruction is the next; see luajit_dispatch.h. Nothing is believed that was not
 * seen to change as lua_sethook must change it. */
#include "agent/luajit_dispatch.h"

#include <string.h>

#include "agent/trace_site.h"

enum {
  ENTRIES_MAX = 320, /* of both tables together; LuaJIT has 243 to 257 */
  OPCODES_MIN = 80,  /* with an entry in both; LuaJIT has 89 and more */
  RETURNS = 4,       /* opcodes that return */
  GLOBAL_MAX = 1024, /* bytes of a global_State; LuaJIT has 416 to 744 */
  FRAMES_MAX = 16    /* of C, one on top of the other, that are gone through */
};

/* -- learning ------------------------------------------------------------------------------------------------------- */

typedef struct {
  uint64_t entries[ENTRIES_MAX];
  uint8_t global[GLOBAL_MAX];
} picture_t;

typedef struct {
  const layout_luajit_t *l;
  uint64_t global;
  size_t entries, global_bytes;
} place_t;

/* Never called: no instruction runs while it is set. */
static void no_hook(lua_State *L, lua_Debug *ar) {
  (void)L;
  (void)ar;
}

static uint64_t table_of(const place_t *place) {
  return place->global - place->l->gg_global + place->l->gg_dispatch;
}

/* One allocation holds all of it, and the layout of this VM was checked. */
static void take_picture(const place_t *place, picture_t *picture) {
  memcpy(picture->entries, (const void *)(uintptr_t)table_of(place), place->entries * sizeof(uint64_t));
  memcpy(picture->global, (const void *)(uintptr_t)place->global, place->global_bytes);
}

/* The count hook fills the first so many entries with one address, and changes no other. */
static uint32_t count_opcodes(const place_t *place, const picture_t *without, const picture_t *counting) {
  uint32_t n = 0;
  while (n < place->entries && counting->entries[n] == counting->entries[0] &&
         without->entries[n] != counting->entries[0])
    n++;
  for (size_t i = n; i < place->entries; i++)
    if (counting->entries[i] != without->entries[i]) return 0;
  return n >= OPCODES_MIN && n <= place->entries / 2 && n < LUAJIT_DISPATCH_NONE ? n : 0;
}

/* The hook of returns has an address of its own in those that return, side by side; 0 when it does not look so. */
static uint64_t find_returning(uint32_t opcodes, const picture_t *without, const picture_t *calling,
                               uint64_t counting) {
  uint64_t found = 0;
  uint32_t first = 0, changed = 0;
  for (uint32_t i = 0; i < opcodes; i++) {
    if (calling->entries[i] == without->entries[i]) continue;
    if (changed++ == 0) {
      found = calling->entries[i];
      first = i;
    }
    if (calling->entries[i] != found || i - first >= RETURNS) return 0;
  }
  return changed == RETURNS && found != counting ? found : 0;
}

/* The byte that is the mask of hooks, as far as the interface shows it; 0 when there are several, or none. */
static uint32_t find_mask(const place_t *place, const picture_t *without, const picture_t *counting,
                          const picture_t *calling) {
  const uint8_t all = LUA_MASKCALL | LUA_MASKRET | LUA_MASKLINE | LUA_MASKCOUNT;
  uint32_t found = 0, candidates = 0;
  for (uint32_t i = 0; i < place->global_bytes; i++) {
    uint8_t none = without->global[i];
    if ((none & all) != 0 || counting->global[i] != (none | LUA_MASKCOUNT) ||
        calling->global[i] != (none | LUA_MASKCALL | LUA_MASKRET))
      continue;
    found = i;
    candidates++;
  }
  bool agrees = place->l->global_hookmask == LAYOUT_ABSENT || place->l->global_hookmask == found;
  return candidates == 1 && agrees ? found : 0;
}

/* A bit written there is one that the interface shows. */
static bool is_mask(uint8_t *mask, lua_State *L) {
  uint8_t before = *mask;
  *mask = before | LUA_MASKCOUNT;
  bool shown = lua_gethookmask(L) == LUA_MASKCOUNT;
  *mask = before;
  return shown && lua_gethookmask(L) == 0;
}

void luajit_dispatch_learn(luajit_dispatch_t *d, const layout_luajit_t *l, lua_State *L, uint64_t global) {
  *d = (luajit_dispatch_t){.armed = LUAJIT_DISPATCH_NONE};
  place_t place = {.l = l, .global = global};
  if (l->gg_code <= l->gg_dispatch || l->gg_jit <= l->gg_global) return;
  place.entries = (size_t)(l->gg_code - l->gg_dispatch) / sizeof(uint64_t);
  place.global_bytes = (size_t)(l->gg_jit - l->gg_global);
  if (place.entries > ENTRIES_MAX || place.global_bytes > GLOBAL_MAX || table_of(&place) % 8 != 0) return;
  picture_t without, counting, calling, after;
  take_picture(&place, &without);
  lua_sethook(L, no_hook, LUA_MASKCOUNT, 1);
  take_picture(&place, &counting);
  lua_sethook(L, no_hook, LUA_MASKCALL | LUA_MASKRET, 1);
  take_picture(&place, &calling);
  lua_sethook(L, NULL, 0, 0);
  take_picture(&place, &after);
  uint32_t opcodes = count_opcodes(&place, &without, &counting);
  if (opcodes == 0) return;
  size_t usual = place.entries - opcodes; /* the second table is the last */
  uint64_t returning = find_returning(opcodes, &without, &calling, counting.entries[0]);
  uint32_t mask = find_mask(&place, &without, &counting, &calling);
  if (returning == 0 || mask == 0 || memcmp(without.entries, after.entries, place.entries * 8) != 0 ||
      memcmp(without.entries, without.entries + usual, opcodes * sizeof(uint64_t)) != 0 ||
      memcmp(without.entries + usual, calling.entries + usual, opcodes * sizeof(uint64_t)) != 0)
    return;
  d->mask = (uint8_t *)(uintptr_t)(global + mask);
  if (!is_mask(d->mask, L)) return;
  d->now = (uint64_t *)(uintptr_t)table_of(&place);
  d->usual = d->now + usual;
  d->counting = counting.entries[0];
  d->returning = returning;
  d->opcodes = opcodes;
}

/* -- arming ---------------------------------------------------------------------------------------------------------- */

bool luajit_dispatch_arm_other(luajit_dispatch_t *d, uint32_t opcode) {
  if (d->now[opcode] == d->returning || opcode == d->armed) return true;
  if (d->now[opcode] != d->usual[opcode])
    return false; /* a hook for all instructions, or LuaJIT is recording */
  if (d->now[d->armed] == d->counting) d->now[d->armed] = d->usual[d->armed];
  d->now[opcode] = d->counting; /* the mask has the bit already */
  d->armed = opcode;
  return true;
}

void luajit_dispatch_release(luajit_dispatch_t *d) {
  uint32_t opcode = d->armed;
  if (opcode == LUAJIT_DISPATCH_NONE || d->opcodes == 0) return;
  d->armed = LUAJIT_DISPATCH_NONE;
  /* all of the table is like that: it is not ours, and LuaJIT will rewrite it */
  if (d->now[opcode] == d->counting && d->now[opcode == 0] != d->counting) d->now[opcode] = d->usual[opcode];
}

/* -- the next instruction ---------------------------------------------------------------------------------------------- */

/* The link of a frame is the instruction to return to, or the distance to the frame below and what kind of frame it is. Functions of C
 * that were called by pcall or by other ones return to those, which in the end return to Lua. Not gone through: what runs as a
 * metamethod, after which the interrupted instruction has to be completed first, and what C code of the VM calls while a function of
 * Lua runs, as the handler of an error. */
uint64_t luajit_dispatch_next(const layout_luajit_t *l, lua_State *L) {
  uint64_t state = (uint64_t)(uintptr_t)L, base = site_luajit_base(l, L);
  uint64_t bottom = site_load_ref(l, state + l->state_stack) + (site_is_wide(l) ? 16 : 8);
  for (int i = 0; i < FRAMES_MAX && base > bottom; i++) {
    uint64_t link = site_luajit_link(l, base);
    if (site_luajit_is_pc(link)) return link;
    uint64_t distance = site_luajit_distance(link);
    if (site_luajit_is_continued(link) || distance == 0 || distance > base - bottom) return 0;
    base -= distance;
    bool from_c = !site_luajit_is_copy(link);
    if (base > bottom && from_c && site_luajit_is_lua(l, site_luajit_function(l, base))) return 0;
  }
  return 0;
}
