/* SPDX-License-Identifier: MIT */
/* Following coroutines; see coroutine.h. Whatever is out of the ordinary (a dead coroutine, a wrong argument)
 * is left to the original function, so that its errors stay word for word. */
#include "agent/coroutine.h"

#include <string.h>

#include "agent/engine.h"
#include "agent/library.h"

/* Upvalues of the replacements: 1 the VM's userdata, 2 the original; of a wrapped coroutine: 1 the VM, 2 the
 * coroutine, 3 the original resume. */
enum { UP_VM = 1, UP_ORIGINAL = 2, UP_COROUTINE = 2, UP_RESUME = 3 };

static vm_t *upvalue_vm(lua_State *L) {
  return lua_touserdata(L, lua_upvalueindex(UP_VM));
}

/* The original function (in front of its arguments) refused argument 1; its error is on top. The message names
 * the function and the place of the call as seen from there: it is made again from here. */
static int raise_again(lua_State *L) {
  static const char start[] = "bad argument #1 to '";
  const char *message = lua_type(L, -1) == LUA_TSTRING ? lua_tostring(L, -1) : "";
  const char *reason = strstr(message, "' (");
  size_t len = strlen(message);
  if (len == 0 || strncmp(message, start, sizeof start - 1) != 0 || reason == NULL || message[len - 1] != ')')
    return lua_error(L);
  reason += 3;
  lua_pushlstring(L, reason, len - (size_t)(reason - message) - 1);
  return luaL_argerror(L, 1, lua_tostring(L, -1));
}

static int call_original(lua_State *L) {
  lua_pushvalue(L, lua_upvalueindex(UP_ORIGINAL));
  lua_insert(L, 1);
  if (lua_pcall(L, lua_gettop(L) - 1, LUA_MULTRET, 0) != 0) return raise_again(L);
  return lua_gettop(L);
}

static bool can_run(lua_State *L, lua_State *co, int arguments) {
  lua_Debug ar;
  if (co == NULL || co == L) return false;
  int status = lua_status(co);
  bool fresh = status == 0 && lua_gettop(co) > 0 && !lua_getstack(co, 0, &ar);
  return (fresh || status == LUA_YIELD) && lua_checkstack(co, arguments);
}

/* Moves the arguments over and runs co. It cannot fail by a jump: errors come back as a status. */
static int run(vm_t *vm, lua_State *L, lua_State *co, int arguments, int *results) {
  lua_xmove(L, co, arguments);
  if (!vm->following) return lv_resume(co, L, arguments, results); /* kept from an earlier session */
  lua_State *outer = vm->running;
  resume_link_t link = {L, vm->links};
  if (vm->active && vm->engine->entering != NULL) vm->engine->entering(vm, co);
  vm->links = &link;
  vm->running = co;
  int status = lv_resume(co, L, arguments, results);
  vm->running = outer;
  vm->links = link.outer;
  if (vm->active && vm->engine->leaving != NULL) vm->engine->leaving(vm, co);
  return status;
}

/* coroutine.resume */
static int tracked_resume(lua_State *L) {
  lua_State *co = lua_tothread(L, 1);
  int arguments = lua_gettop(L) - 1, results;
  if (!can_run(L, co, arguments)) return call_original(L);
  int status = run(upvalue_vm(L), L, co, arguments, &results);
  if (status != 0 && status != LUA_YIELD) {
    lua_pushboolean(L, 0);
    lua_xmove(co, L, 1);
    return 2;
  }
  if (!lua_checkstack(L, results + 1)) {
    lua_pop(co, results);
    lua_pushboolean(L, 0);
    lua_pushliteral(L, "too many results to resume");
    return 2;
  }
  lua_pushboolean(L, 1);
  lua_xmove(co, L, results);
  return results + 1;
}

/* What coroutine.wrap returned. */
static int tracked_wrapped(lua_State *L) {
  lua_State *co = lua_tothread(L, lua_upvalueindex(UP_COROUTINE));
  int arguments = lua_gettop(L), results;
  if (!can_run(L, co, arguments)) { /* the original resume says why not; its message is the error */
    lua_settop(L, 0);
    lua_pushvalue(L, lua_upvalueindex(UP_RESUME));
    lua_pushvalue(L, lua_upvalueindex(UP_COROUTINE));
    lua_call(L, 1, 2);
    luaL_where(L, 1);
    lua_insert(L, -2);
    lua_concat(L, 2);
    return lua_error(L);
  }
  int status = run(upvalue_vm(L), L, co, arguments, &results);
  if (status != 0 && status != LUA_YIELD) {
    lv_wrap_error(L, co);
    return lua_error(L);
  }
  if (!lua_checkstack(L, results)) {
    lua_pop(co, results);
    return luaL_error(L, "too many results to resume");
  }
  lua_xmove(co, L, results);
  return results;
}

/* coroutine.create */
static int tracked_create(lua_State *L) {
  vm_t *vm = upvalue_vm(L);
  int results = call_original(L);
  lua_State *co = lua_tothread(L, -1);
  if (co != NULL && vm->active && vm->engine->created != NULL) vm->engine->created(vm, co);
  return results;
}

/* coroutine.wrap; upvalue 3: the replaced create, 4: the original resume */
static int tracked_wrap(lua_State *L) {
  lua_pushvalue(L, lua_upvalueindex(UP_VM));
  lua_insert(L, 1);
  lua_pushvalue(L, lua_upvalueindex(3));
  lua_insert(L, 2);
  if (lua_pcall(L, lua_gettop(L) - 2, 1, 0) != 0) return raise_again(L);
  lua_pushvalue(L, lua_upvalueindex(4));
  lua_pushcclosure(L, tracked_wrapped, 3);
  return 1;
}

/* -- putting them in and taking them out ----------------------------------------------------------------- */

static const struct {
  const char *name;
  lua_CFunction function;
} replacements[] = {{"create", tracked_create}, {"resume", tracked_resume}, {"wrap", tracked_wrap}};

enum { REPLACEMENTS = sizeof replacements / sizeof replacements[0] };

/* The library on top has three C functions that are not ours yet. */
static bool is_plain(lua_State *L) {
  bool plain = true;
  for (int i = 0; i < REPLACEMENTS; i++) {
    lua_getfield(L, -1, replacements[i].name);
    lua_CFunction function = lua_tocfunction(L, -1);
    plain = plain && function != NULL && function != replacements[i].function;
    lua_pop(L, 1);
  }
  return plain;
}

void coroutine_watch(lua_State *L) {
  if (!library_push(L, LUA_COLIBNAME)) return;
  if (is_plain(L)) { /* a host with a scheduler of its own in their place keeps it */
    int library = lua_gettop(L);
    vm_push(L);
    lua_getfield(L, library, "create");
    lua_getfield(L, library, "resume");
    lua_getfield(L, library, "wrap");
    int vm = library + 1, create = library + 2, resume = library + 3, wrap = library + 4;

    lua_pushvalue(L, vm);
    lua_pushvalue(L, create);
    lua_pushcclosure(L, tracked_create, 2);
    lua_pushvalue(L, vm);
    lua_pushvalue(L, resume);
    lua_pushcclosure(L, tracked_resume, 2);
    lua_pushvalue(L, vm);
    lua_pushvalue(L, wrap);
    lua_pushvalue(L, -4); /* the new create */
    lua_pushvalue(L, resume);
    lua_pushcclosure(L, tracked_wrap, 4);

    /* all made: nothing below can fail half-way, the fields exist */
    lua_setfield(L, library, "wrap");
    lua_setfield(L, library, "resume");
    lua_setfield(L, library, "create");
    lua_settop(L, library);
  }
  lua_pop(L, 1);
}

void coroutine_unwatch(lua_State *L) {
  if (!library_push(L, LUA_COLIBNAME)) return;
  for (int i = 0; i < REPLACEMENTS; i++) {
    lua_getfield(L, -1, replacements[i].name);
    if (lua_tocfunction(L, -1) == replacements[i].function && lua_getupvalue(L, -1, UP_ORIGINAL) != NULL)
      lua_setfield(L, -3, replacements[i].name);
    lua_pop(L, 1);
  }
  lua_pop(L, 1);
}
