/* SPDX-License-Identifier: MIT */
/* Differences between Lua versions; see lua_version.h. */
#include "agent/lua_version.h"

#include "profile/intern.h"

const char lv_name[LV_NAME_LENGTH] = LUA_VERSION;

/* -- registry and tables --------------------------------------------------------------------------------- */

#if LUA_VERSION_NUM >= 502

void lv_get_registry(lua_State *L, const void *key) {
  lua_rawgetp(L, LUA_REGISTRYINDEX, key);
}

void lv_set_registry(lua_State *L, const void *key) {
  lua_rawsetp(L, LUA_REGISTRYINDEX, key);
}

size_t lv_rawlen(lua_State *L, int index) {
  return (size_t)lua_rawlen(L, index);
}

int lv_absindex(lua_State *L, int index) {
  return lua_absindex(L, index);
}

void lv_setfuncs(lua_State *L, const luaL_Reg *functions) {
  luaL_setfuncs(L, functions, 0);
}

void lv_push_globals(lua_State *L) {
  lua_pushglobaltable(L);
}

bool lv_check_stack(lua_State *L, int size) {
  return lua_checkstack(L, size) != 0;
}

int lv_protected_call(lua_State *L, lua_CFunction function, void *context) {
  int top = lua_gettop(L);
  lua_pushcfunction(L, function);
  lua_pushlightuserdata(L, context);
  int status = lua_pcall(L, 1, 0, 0);
  lua_settop(L, top);
  return status;
}

lua_State *lv_main_thread(lua_State *L) {
  lua_rawgeti(L, LUA_REGISTRYINDEX, LUA_RIDX_MAINTHREAD);
  lua_State *thread = lua_tothread(L, -1);
  lua_pop(L, 1);
  return thread;
}

#else

void lv_get_registry(lua_State *L, const void *key) {
  lua_pushlightuserdata(L, (void *)key);
  lua_rawget(L, LUA_REGISTRYINDEX);
}

void lv_set_registry(lua_State *L, const void *key) {
  lua_pushlightuserdata(L, (void *)key);
  lua_insert(L, -2);
  lua_rawset(L, LUA_REGISTRYINDEX);
}

size_t lv_rawlen(lua_State *L, int index) {
  return lua_objlen(L, index);
}

int lv_absindex(lua_State *L, int index) {
  return index > 0 || index <= LUA_REGISTRYINDEX ? index : lua_gettop(L) + index + 1;
}

void lv_setfuncs(lua_State *L, const luaL_Reg *functions) {
  for (; functions->name != NULL; functions++) {
    lua_pushcfunction(L, functions->func);
    lua_setfield(L, -2, functions->name);
  }
}

void lv_push_globals(lua_State *L) {
  lua_pushvalue(L, LUA_GLOBALSINDEX);
}

static int grow_stack(lua_State *L) {
  luaL_checkstack(L, *(const int *)lua_touserdata(L, 1), "no room");
  return 0;
}

/* 5.1 raises a memory error when the stack cannot grow: it is made to grow under protection first. */
bool lv_check_stack(lua_State *L, int size) {
  int top = lua_gettop(L), need = size + LUA_MINSTACK; /* the protected function has used some itself */
  bool grown = lua_cpcall(L, grow_stack, &need) == 0;
  lua_settop(L, top);
  return grown && lua_checkstack(L, size) != 0;
}

int lv_protected_call(lua_State *L, lua_CFunction function, void *context) {
  int top = lua_gettop(L);
  int status =
      lua_cpcall(L, function, context); /* a C function is a heap object in 5.1: made under protection */
  lua_settop(L, top);
  return status;
}

lua_State *lv_main_thread(lua_State *L) {
  (void)L;
  return NULL;
}

#endif

bool lv_finalize_again(lua_State *L, int index) {
#if LUA_VERSION_NUM >= 503
  index = lv_absindex(L, index);
  lua_getmetatable(L, index);
  lua_setmetatable(L, index); /* which is what marks it */
  return true;
#else
  (void)L;
  (void)index;
  return false;
#endif
}

void *lv_newuserdata(lua_State *L, size_t size) {
#if LUA_VERSION_NUM >= 504
  return lua_newuserdatauv(L, size, 0);
#else
  return lua_newuserdata(L, size);
#endif
}

/* -- VMs --------------------------------------------------------------------------------------------------- */

static void *note_and_refuse(void *ud, void *block, size_t old_size, size_t size) {
  (void)block;
  (void)old_size;
  if (*(size_t *)ud == 0) *(size_t *)ud = size;
  return NULL;
}

size_t lv_vm_size(void) {
  size_t size = 0;
#if LUA_VERSION_NUM >= 505
  lua_newstate(note_and_refuse, &size, 1); /* the seed of its hashes */
#else
  lua_newstate(note_and_refuse, &size);
#endif
  return size;
}

/* -- coroutines ------------------------------------------------------------------------------------------ */

#if LUA_VERSION_NUM < 502
#pragma weak lua_setlevel /* LuaJIT, which loads the module of 5.1, does without */
#endif

int lv_resume(lua_State *co, lua_State *from, int arguments, int *results) {
#if LUA_VERSION_NUM >= 504
  return lua_resume(co, from, arguments, results);
#elif LUA_VERSION_NUM >= 502
  int status = lua_resume(co, from, arguments);
  *results = lua_gettop(co);
  return status;
#else
  if (lua_setlevel != NULL)
    lua_setlevel(from, co); /* how deep the C stack is: 5.1 leaves that to the caller */
  int status = lua_resume(co, arguments);
  *results = lua_gettop(co);
  return status;
#endif
}

void lv_wrap_error(lua_State *L, lua_State *co) {
  int status = lua_status(co);
#if LUA_VERSION_NUM >= 504
  /* 5.4 closes the pending to-be-closed variables of a coroutine that wrap runs; closing may change the error
   * value */
  if (status != LUA_OK && status != LUA_YIELD) {
#if LUA_VERSION_NUM >= 505 || (defined LUA_VERSION_RELEASE_NUM && LUA_VERSION_RELEASE_NUM >= 50406)
    status = lua_closethread(co, L);
#else
    status = lua_resetthread(co);
#endif
  }
#endif
  lua_xmove(co, L, 1);
  if (status != LUA_ERRMEM && lua_type(L, -1) == LUA_TSTRING) {
    luaL_where(L, 1);
    lua_insert(L, -2);
    lua_concat(L, 2);
  }
}

/* -- code ------------------------------------------------------------------------------------------------ */

#if LUA_VERSION_NUM < 505

enum {
  FINGERPRINT_BYTES = 64 * 1024
}; /* of a function's dump: enough to tell versions of it apart, at a bounded cost */

typedef struct {
  uint32_t hash;
  size_t bytes;
} fingerprint_t;

static int add_to_fingerprint(lua_State *L, const void *data, size_t len, void *context) {
  fingerprint_t *fingerprint = context;
  (void)L;
  fingerprint->hash = hash_bytes(data, len, fingerprint->hash);
  fingerprint->bytes += len;
  return fingerprint->bytes > FINGERPRINT_BYTES; /* non-zero: no more, please */
}

/* PUC's lua_dump up to 5.4 hands out the function's own arrays piece by piece and allocates nothing. */
uint32_t lv_code_fingerprint(lua_State *L) {
  fingerprint_t fingerprint = {1, 0};
#if LUA_VERSION_NUM >= 503
  lua_dump(L, add_to_fingerprint, &fingerprint, 1);
#else
  lua_dump(L, add_to_fingerprint, &fingerprint);
#endif
  return fingerprint.hash;
}

#else

uint32_t lv_code_fingerprint(lua_State *L) {
  (void)L; /* 5.5's lua_dump builds a table of the strings it has written: not in a hook */
  return 0;
}

#endif
