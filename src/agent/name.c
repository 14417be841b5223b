/* SPDX-License-Identifier: MIT */
/* Searching package.loaded, the globals and the metatables of C libraries for names; see name.h. */
#include "agent/name.h"

#include <string.h>

#include "agent/engine.h"
#include "agent/time.h"
#include "agent/walker.h"
#include "name/ffi_name.h"

enum {
  MAX_STEPS = 20000,   /* table entries looked at in one search: about 2 ms */
  MAX_COMPARED = 5000, /* modules that globals are compared with: a quarter of that */
  MAX_TABLES_DEEP = 3,
  MAX_NAME = 128,
  SHARE = 500 /* a search may cost 1/500 of the time */
};

/* What the name begins with. */
typedef enum { METATABLE, GLOBAL, MODULE } beginning_t;

typedef struct {
  vm_t *vm;
  lua_State *L;
  int steps, compared; /* left */
  beginning_t beginning;
  char name[MAX_NAME];
} search_t;

static bool is_identifier(const char *text, size_t len) {
  if (len == 0 || len >= MAX_NAME / 2) return false;
  for (size_t i = 0; i < len; i++) {
    unsigned char c = (unsigned char)text[i];
    if (c < 0x21 || c == 0x7f) return false;
  }
  return true;
}

/* Appends ".key" to the name, without the dot at its beginning and behind the colon of a metatable's name. Returns the new length, or 0
 * when there is no room. */
static size_t extend(search_t *s, size_t len, const char *key, size_t key_len) {
  size_t dot = len > 0 && s->beginning != METATABLE ? 1 : 0;
  if (len + dot + key_len >= MAX_NAME) return 0;
  if (dot) s->name[len] = '.';
  memcpy(s->name + len + dot, key, key_len);
  return len + dot + key_len;
}

/* With ffi.cdef, whose key this is, come those that are in no table. A built-in function's key is its number. */
static void offer_ffi(search_t *s, uint64_t key, size_t len) {
  if ((key & WALKED_BUILTIN) == 0 || len != strlen(FFI_NAME_OF_LAST) ||
      memcmp(s->name, FFI_NAME_OF_LAST, len) != 0)
    return;
  for (uint32_t less = 1; less <= FFI_NAMES; less++)
    walked_announce(s->vm, key - less, ffi_name(less), strlen(ffi_name(less)), NAME_LOADED);
}

/* The function on top gets the name if the cache knows it. What a module itself holds ranks highest, then what lies in it, then
 * globals, then metatables; and shorter names rank higher: "string.find" beats a global "find", "print" beats "_G.x.print". Names from
 * outside have the same order (src/attach/table_names.h). */
static void offer(search_t *s, size_t len, int deep) {
  uint32_t place = (uint32_t)s->beginning + (s->beginning == MODULE && deep == MAX_TABLES_DEEP - 1 ? 1 : 0);
  uint32_t rank = (uint32_t)(NAME_LOADED + place * MAX_NAME + (MAX_NAME - len));
  if (s->vm->global != 0) { /* walked: C functions are entered before they are seen */
    uint64_t key = walker_key_of(s->L);
    walked_entry_t *known = walked_find(s->vm, key);
    if (known != NULL)
      function_name(s->vm, known->function, s->name, len, rank);
    else if (lua_iscfunction(s->L, -1))
      walked_announce(s->vm, key, s->name, len, rank);
    if (lua_iscfunction(s->L, -1)) offer_ffi(s, key, len);
  }
  if (s->vm->global != 0 && !s->vm->engine->asks_lua) return;
  function_entry_t *entry = function_cached(s->vm, s->L);
  if (entry != NULL) function_name(s->vm, entry->function, s->name, len, rank);
}

/* The table on top: its functions, and the tables in it `deep` levels down. */
static void search_table(search_t *s, size_t len, int deep) {
  lua_State *L = s->L;
  if (!lua_checkstack(L, 4)) return; /* there is room: hooks have 20 slots, and this takes 2 a level */
  lua_pushnil(L);
  while (lua_next(L, -2)) {
    if (s->steps-- <= 0) {
      lua_pop(L, 2);
      return;
    }
    if (lua_type(L, -2) == LUA_TSTRING) { /* never convert a key: lua_next would lose its place */
      size_t key_len;
      const char *key = lua_tolstring(L, -2, &key_len);
      if (is_identifier(key, key_len)) {
        size_t longer = extend(s, len, key, key_len);
        if (longer > 0 && lua_isfunction(L, -1)) offer(s, longer, deep);
        bool self = strcmp(key, "_G") == 0 || strcmp(key, "loaded") == 0 || strcmp(key, "__index") == 0;
        if (longer > 0 && deep > 0 && !self && lua_istable(L, -1)) search_table(s, longer, deep - 1);
      }
    }
    lua_pop(L, 1);
  }
}

/* The table on top is a global, whose name is at the beginning of s->name: true when a module that is a part of it by name, as "vim.shared" is
 * of "vim", is the same table. It goes by its own name then, and ranks as a module. */
static bool is_filled_global(search_t *s, size_t len) {
  lua_State *L = s->L;
  bool found = false;
  lua_rawgeti(L, LUA_REGISTRYINDEX, s->vm->loaded_ref);
  lua_pushnil(L);
  while (lua_next(L, -2)) {
    size_t module_len;
    const char *module =
        lua_type(L, -2) == LUA_TSTRING ? lua_tolstring(L, -2, &module_len) : NULL; /* no number: see above */
    s->compared--;
    found |= module != NULL && module_len > len && module[len] == '.' && memcmp(module, s->name, len) == 0 &&
             lua_rawequal(L, -1, -4);
    lua_pop(L, 1);
  }
  lua_pop(L, 1);
  return found;
}

/* Those of the globals on top that modules fill. */
static void search_filled_globals(search_t *s) {
  lua_State *L = s->L;
  if (!lua_checkstack(L, 6)) return;
  lua_pushnil(L);
  while (lua_next(L, -2)) {
    if (s->steps-- <= 0 || s->compared <= 0) {
      lua_pop(L, 2);
      return;
    }
    size_t len;
    const char *key =
        lua_type(L, -2) == LUA_TSTRING && lua_istable(L, -1) ? lua_tolstring(L, -2, &len) : NULL;
    if (key != NULL && is_identifier(key, len) && extend(s, 0, key, len) > 0 && is_filled_global(s, len))
      search_table(s, len, MAX_TABLES_DEEP - 1);
    lua_pop(L, 1);
  }
}

static void search_loaded(search_t *s) {
  lua_State *L = s->L;
  lua_rawgeti(L, LUA_REGISTRYINDEX, s->vm->loaded_ref);
  if (!lua_istable(L, -1)) { /* a host that opened no libraries */
    lua_pop(L, 1);
    return;
  }
  lua_pushnil(L);
  while (lua_next(L, -2)) {
    if (lua_type(L, -2) == LUA_TSTRING && lua_istable(L, -1)) {
      size_t len;
      const char *module = lua_tolstring(L, -2, &len);
      bool globals = strcmp(module, "_G") == 0;
      s->beginning = globals ? GLOBAL : MODULE;
      size_t start = !globals && is_identifier(module, len) ? extend(s, 0, module, len) : 0;
      if (start > 0 || globals) search_table(s, start, MAX_TABLES_DEEP - 1);
      if (globals) {
        s->beginning = MODULE;
        search_filled_globals(s);
      }
    } else if (lua_type(L, -2) == LUA_TSTRING && lua_isfunction(L, -1)) { /* a module that is a function */
      size_t len;
      const char *module = lua_tolstring(L, -2, &len);
      s->beginning = MODULE;
      if (is_identifier(module, len) && extend(s, 0, module, len) > 0) offer(s, len, MAX_TABLES_DEEP - 1);
    }
    lua_pop(L, 1);
    if (s->steps <= 0) {
      lua_pop(L, 1);
      break;
    }
  }
  lua_pop(L, 1);
}

/* The metatable on top, of this name: its functions, and those of the table that its objects are indexed by. */
static void search_metatable(search_t *s, const char *name, size_t len) {
  lua_State *L = s->L;
  if (strcmp(name, "FILE*") == 0) {
    name = "file";
    len = strlen(name);
  }
  if (!is_identifier(name, len)) return;
  memcpy(s->name, name, len);
  s->name[len++] = ':';
  search_table(s, len, 0);
  lua_pushnil(L);
  while (lua_next(L, -2)) { /* not by its key, which would have to be pushed: that may run the collector */
    bool methods = lua_type(L, -2) == LUA_TSTRING && strcmp(lua_tostring(L, -2), "__index") == 0;
    if (methods && lua_istable(L, -1) && !lua_rawequal(L, -1, -3)) search_table(s, len, 0);
    lua_pop(L, 1);
    if (s->steps-- > 0)
      continue; /* it need not be a metatable: a host may keep anything there, of any size */
    lua_pop(L, 1);
    break;
  }
}

/* What luaL_newmetatable() made, by the names that C libraries gave; Lua's own tables begin with a line. */
static void search_registry(search_t *s) {
  lua_State *L = s->L;
  s->beginning = METATABLE;
  lua_pushvalue(L, LUA_REGISTRYINDEX);
  lua_pushnil(L);
  while (lua_next(L, -2)) {
    size_t len;
    const char *name =
        lua_type(L, -2) == LUA_TSTRING && lua_istable(L, -1) ? lua_tolstring(L, -2, &len) : NULL;
    if (name != NULL && name[0] != '_') search_metatable(s, name, len);
    lua_pop(L, 1);
    if (s->steps-- > 0) continue;
    lua_pop(L, 1);
    break;
  }
  lua_pop(L, 1);
}

/* Pushes the standard function, or nothing and false: a program may have put one of its own in its place. */
static bool push_standard(search_t *s, const char *module, const char *function) {
  lua_State *L = s->L;
  lua_rawgeti(L, LUA_REGISTRYINDEX, s->vm->loaded_ref);
  for (int i = 0; i < 2 && lua_istable(L, -1); i++) {
    lua_pushstring(L, i == 0 ? module : function);
    lua_rawget(L, -2);
    lua_remove(L, -2);
  }
  if (lua_iscfunction(L, -1)) return true;
  lua_pop(L, 1);
  return false;
}

/* The function is called with the arguments above it; what it returns goes by its name. */
static void offer_result(search_t *s, int arguments, const char *name) {
  if (lua_pcall(s->L, arguments, 1, 0) == 0 && lua_iscfunction(s->L, -1))
    walked_announce(s->vm, walker_key_of(s->L), name, strlen(name), NAME_LOADED);
  lua_pop(s->L, 1);
}

static int announce_protected(lua_State *L) {
  search_t s = {.vm = lua_touserdata(L, 1), .L = L};
  if (push_standard(&s, "coroutine", "wrap")) {
    if (luaL_loadbuffer(L, "", 0, "=luapulse") == 0) /* it is not run; 5.1 wants a function written in Lua */
      offer_result(&s, 1, "coroutine.wrap");
    else
      lua_pop(L, 2);
  }
  if (push_standard(&s, "string", "gmatch")) {
    lua_pushliteral(L, "");
    lua_pushliteral(L, "");
    offer_result(&s, 2, "string.gmatch");
  }
  if (push_standard(&s, "_G", "ipairs")) {
    lua_newtable(L);
    offer_result(&s, 1, "ipairs");
  }
  return 0;
}

void name_announce_hidden(vm_t *vm, lua_State *host) {
  if (vm->luajit && lua_gethook(host) != NULL) return; /* it would see the calls */
  lua_State *L = lua_newthread(host);
  if (!vm->luajit) lua_sethook(L, NULL, 0, 0);
  /* on the coroutine nothing else protects: 5.1 ends the process when one that does not run is out of memory */
  int status = lv_protected_call(L, announce_protected, vm);
  lua_pop(host, 1);
  if (status == 0) return;
  lua_pushnil(host);
  lua_error(host);
}

void name_search(vm_t *vm, lua_State *L) {
  if (!vm->names_wanted || vm->now < vm->names_due) return;
  uint64_t start = time_monotonic();
  search_t search = {.vm = vm, .L = L, .steps = MAX_STEPS, .compared = MAX_COMPARED};
  search_loaded(&search);
  search_registry(&search);
  uint64_t end = time_monotonic();
  vm->names_due = end + (end - start) * SHARE;
  vm->names_wanted = false;
}
