/* SPDX-License-Identifier: MIT */
/* Named regions; see region.h. */
#include "agent/region.h"

#include <string.h>

enum { MAX_REGIONS = 1000, MAX_NAME = 200 };

static const char PREFIX[] = "[region ";

/* The region's own function: f is not called as a tail, or the name would be gone from the stack; select(1, …) hands on all
 * results. In Lua, so that f may yield on any version. */
static const char BODY[] = "local select = ... return function(f, ...) return select(1, f(...)) end";

/* Names are kept for good, so there may be only so many: the rest share one. */
static const char REGION[] =
    "local make, most = ...\n"
    "local made, count = {}, 0\n"
    "return function(name, f, ...)\n"
    "  local region = made[name]\n"
    "  if region == nil then\n"
    "    if type(name) ~= 'string' then error('luapulse: the name of a region must be a string, got a ' .. "
    "type(name), 2) end\n"
    "    if count >= most then name = 'other' end\n"
    "    region = made[name] or make(name)\n"
    "    if made[name] == nil then made[name], count = region, count + 1 end\n"
    "  end\n"
    "  return region(f, ...)\n"
    "end\n";

static int make(lua_State *L) {
  size_t len;
  const char *name = luaL_checklstring(L, 1, &len);
  if (len > MAX_NAME || strlen(name) != len || strpbrk(name, "\n\r") != NULL)
    return luaL_error(L, "luapulse: the name of a region has at most %d bytes and no line breaks", MAX_NAME);
  lua_pushfstring(L, "=%s%s]", PREFIX, name);
  if (luaL_loadbuffer(L, BODY, sizeof BODY - 1, lua_tostring(L, -1)) != 0) return lua_error(L);
  lua_pushvalue(L, lua_upvalueindex(1));
  lua_call(L, 1, 1);
  return 1;
}

void region_push(lua_State *L) {
  if (luaL_loadbuffer(L, REGION, sizeof REGION - 1, "=luapulse") != 0) lua_error(L);
  lua_getglobal(L, "select");
  lua_pushcclosure(L, make, 1);
  lua_pushinteger(L, MAX_REGIONS);
  lua_call(L, 2, 1);
}

bool region_is(const char *file, size_t len) {
  return len > sizeof PREFIX && memcmp(file, PREFIX, sizeof PREFIX - 1) == 0 && file[len - 1] == ']';
}
