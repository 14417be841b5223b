/* SPDX-License-Identifier: MIT */
/* Keeping the host's hook; see host_hook.h. */
#include "agent/host_hook.h"

#include <string.h>

enum { PROBE_COUNT = 0x5eed1234 };

static void probe_hook(lua_State *L, lua_Debug *ar) {
  (void)L;
  (void)ar;
}

static int read_int(const lua_State *L, int offset) {
  int value;
  memcpy(&value, (const char *)L + offset, sizeof value);
  return value;
}

/* lua_sethook stores the count twice: the base, and the counter that runs down from it. After some
 * instructions have run the counter is the one of the two that changed. */
int host_hook_find_counter(lua_State *L) {
  lua_State *probe = lua_newthread(L);
  int found = 0, matches = 0;
  if (luaL_loadstring(probe, "local a = 0 for i = 1, 8 do a = a + i end") == 0) {
    lua_sethook(probe, probe_hook, LUA_MASKCOUNT, PROBE_COUNT);
    int candidates[4], count = 0;
    for (int offset = 0; offset + (int)sizeof(int) <= LV_STATE_BYTES && count < 4; offset += (int)sizeof(int))
      if (read_int(probe, offset) == PROBE_COUNT) candidates[count++] = offset;
    if (lua_pcall(probe, 0, 0, 0) == 0) {
      for (int i = 0; i < count; i++) {
        int now = read_int(probe, candidates[i]);
        if (now < PROBE_COUNT && now > PROBE_COUNT - 1000) {
          found = candidates[i];
          matches++;
        }
      }
    }
    lua_sethook(probe, NULL, 0, 0);
  }
  lua_pop(L, 1);
  return matches == 1 ? found : 0;
}

int host_hook_left(const lua_State *L, int counter_offset) {
  return read_int(L, counter_offset);
}

/* Written behind the interface's back: the offset was found by content, and the word is an int the VM only
 * counts down. */
void host_hook_set_left(lua_State *L, int counter_offset, int left) {
  memcpy((char *)L + counter_offset, &left, sizeof left);
}

host_hook_t host_hook_save(lua_State *L, int counter_offset) {
  host_hook_t host = {lua_gethook(L), lua_gethookmask(L), lua_gethookcount(L), 0};
  host.left = counter_offset != 0 ? read_int(L, counter_offset) : host.count;
  return host;
}

void host_hook_restore(lua_State *L, const host_hook_t *host, int counter_offset) {
  lua_sethook(L, host->function, host->mask, host->count);
  if (counter_offset != 0 && host->function != NULL && (host->mask & LUA_MASKCOUNT))
    host_hook_set_left(L, counter_offset, host->left);
}

int host_hook_mask_of(int event) {
  switch (event) {
    case LUA_HOOKRET:
      return LUA_MASKRET;
    case LUA_HOOKLINE:
      return LUA_MASKLINE;
    case LUA_HOOKCOUNT:
      return LUA_MASKCOUNT;
    case LUA_HOOKCALL:
      return LUA_MASKCALL;
    default: /* 5.1: a tail return; 5.2+: a tail call */
      return lv_is_tail_call(event) ? LUA_MASKCALL : LUA_MASKRET;
  }
}
