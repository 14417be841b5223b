/* SPDX-License-Identifier: MIT */
/* Everything that differs between Lua 5.1, 5.2, 5.3, 5.4, 5.5 and LuaJIT (which speaks 5.1's interface),
 * behind one set of names. A test of LUA_VERSION_NUM anywhere else in the agent is a defect. */
#ifndef LUAPULSE_AGENT_LUA_VERSION_H
#define LUAPULSE_AGENT_LUA_VERSION_H

#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Registry entry of a static object's address. No allocation when reading. */
void lv_get_registry(lua_State *L, const void *key);
void lv_set_registry(lua_State *L, const void *key); /* pops the value */

/* Pushes the table of globals, for raw reads: a program may have forbidden to name undefined ones. */
void lv_push_globals(lua_State *L);
/* lua_checkstack that raises nothing on any version. */
bool lv_check_stack(lua_State *L, int size);

/* Bytes of a lua_State that may be looked at: no release of the version has a smaller one (LuaJIT is not asked).
 * Known for 64 bits alone. */
#if UINTPTR_MAX < UINT64_MAX
#define LV_STATE_BYTES 0
#elif LUA_VERSION_NUM == 501
#define LV_STATE_BYTES 184
#elif LUA_VERSION_NUM == 504
#define LV_STATE_BYTES 192
#else
#define LV_STATE_BYTES 208
#endif

size_t lv_rawlen(lua_State *L, int index);
int lv_absindex(lua_State *L, int index);
/* Has the userdata at the index, whose finalizer runs, finalized once more when it is collected again. False where Lua does not do
 * that: up to 5.2 and on LuaJIT. Takes no memory, raises nothing. */
bool lv_finalize_again(lua_State *L, int index);
void *lv_newuserdata(lua_State *L, size_t size);
void lv_setfuncs(lua_State *L, const luaL_Reg *functions); /* into the table on top */

/* Calls function(L) in protected mode with `context` as its light userdata argument; allocates nothing before
 * it is protected. Returns the status; nothing is left on the stack. */
int lv_protected_call(lua_State *L, lua_CFunction function, void *context);

/* The main thread, or NULL on 5.1, which cannot tell. Always alive. */
lua_State *lv_main_thread(lua_State *L);

/* lua_resume of all versions; *results is what lies on co's stack afterwards when the status is LUA_OK or
 * LUA_YIELD. */
int lv_resume(lua_State *co, lua_State *from, int arguments, int *results);
/* What coroutine.wrap does with a coroutine that failed: leaves the error value, as the version words it, on
 * L's top. */
void lv_wrap_error(lua_State *L, lua_State *co);

/* True when the event announces a tail call (5.2+), which replaces the caller's frame. */
static inline bool lv_is_tail_call(int event) {
  return event == 4 && LUA_VERSION_NUM > 501; /* LUA_HOOKTAILCALL */
}
/* … the return of one (5.1), which comes after that of its last callee. */
static inline bool lv_is_tail_return(int event) {
  return event == 4 && LUA_VERSION_NUM == 501; /* LUA_HOOKTAILRET */
}

/* Which call `ar` is of, as lua_getstack or a hook filled it in: the address of the call record (5.2+), else its number (5.1) or
 * its place on the stack (LuaJIT). */
static inline uint64_t lv_call_id(const lua_Debug *ar) {
  if (sizeof ar->i_ci == sizeof(void *)) return (uint64_t)(uintptr_t)ar->i_ci;
  return (uint64_t)(uintptr_t)ar->i_ci &
         0xffff; /* LuaJIT keeps the size of the frame above; 5.1 has at most 20000 calls */
}

/* 5.1: calls have numbers, from the first up. */
static inline bool lv_calls_are_numbered(void) {
  return LUA_VERSION_NUM == 501;
}

/* What a value's tag is, the same in all builds of a version of PUC Lua: so many bytes; C functions have one of their own, and those
 * without an object another one. */
static inline uint16_t lv_tag_bytes(void) {
  return LUA_VERSION_NUM >= 504 ? 1 : 4;
}
static inline bool lv_c_has_a_tag(void) {
  return LUA_VERSION_NUM >= 502;
}

/* The module for 5.1 serves LuaJIT, too. */
static inline bool lv_may_be_luajit(void) {
  return LUA_VERSION_NUM == 501;
}

/* The allocator is told what a new block is for. */
static inline bool lv_tells_types(void) {
  return LUA_VERSION_NUM >= 502;
}

/* Bytes of the first block that lua_newstate asks for. Makes no VM. */
size_t lv_vm_size(void);

/* There are collections that leave out what is old. */
static inline bool lv_collects_young(void) {
  return LUA_VERSION_NUM >= 504;
}

/* A string may keep the allocator it was made with, and is freed by it whatever the VM has by then: what luaL_Buffer makes does, from
 * 5.5 on. There the last block of a VM that is freed is its global_State. */
static inline bool lv_strings_keep_allocators(void) {
  return LUA_VERSION_NUM >= 505;
}

/* A fingerprint of the code of the Lua function on top, 0 when the version cannot give one without
 * allocating. */
uint32_t lv_code_fingerprint(lua_State *L);

#define LV_NAME_LENGTH 16
/* "Lua 5.4"; what the module was built for. */
extern const char lv_name[LV_NAME_LENGTH];

#ifndef LUA_LOADED_TABLE
#define LUA_LOADED_TABLE "_LOADED"
#endif

#endif
