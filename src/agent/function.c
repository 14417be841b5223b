/* SPDX-License-Identifier: MIT */
/* Function metadata and its cache; see function.h. Runs in hooks: no allocation, bounded work. */
#include "agent/function.h"

#include <stdio.h>
#include <string.h>

#include "agent/call_site.h"
#include "agent/loader.h"
#include "agent/luajit.h"
#include "agent/region.h"
#include "agent/vm.h"
#include "profile/intern.h"

enum { CHECK_CODE_EVERY = 1000000000, MAX_NAME = 256, MAX_FILE = 4096 };

/* -- the cache ------------------------------------------------------------------------------------------- */

static const void *key_of(lua_State *L) {
  lua_CFunction c = lua_tocfunction(L, -1);
  return c != NULL ? (const void *)c : lua_topointer(L, -1);
}

static function_entry_t *set_of(vm_t *vm, const void *key) {
  return vm->scratch->functions.entries[hash_bytes(&key, sizeof key, 0) % FUNCTION_SETS];
}

static function_entry_t *find(vm_t *vm, const void *key) {
  function_entry_t *set = set_of(vm, key);
  for (int way = 0; way < FUNCTION_WAYS; way++)
    if (set[way].key == key) return &set[way];
  return NULL;
}

function_entry_t *function_cached(vm_t *vm, lua_State *L) {
  return find(vm, key_of(L));
}

/* The free or least seen entry of the set; survivors age, so that yesterday's hot function goes at last. */
static function_entry_t *claim(vm_t *vm, const void *key) {
  function_entry_t *set = set_of(vm, key), *victim = &set[0];
  for (int way = 0; way < FUNCTION_WAYS; way++) {
    if (set[way].key == NULL || set[way].sightings < victim->sightings) victim = &set[way];
    if (set[way].key == NULL) break;
  }
  for (int way = 0; way < FUNCTION_WAYS; way++) set[way].sightings -= set[way].sightings / 8;
  memset(victim, 0, sizeof *victim);
  return victim;
}

/* -- identity -------------------------------------------------------------------------------------------- */

static bool is_c(const lua_Debug *ar) {
  return ar->what != NULL && ar->what[0] == 'C';
}

static uint32_t code_of(vm_t *vm, lua_State *L, const lua_Debug *ar, const void *key) {
  if (is_c(ar)) return hash_bytes(&key, sizeof key, 0);
  return vm->luajit ? luajit_code_fingerprint(L) : lv_code_fingerprint(L);
}

static bool still_the_same(vm_t *vm, lua_State *L, const lua_Debug *ar, function_entry_t *entry) {
  if (is_c(ar)) return entry->source == NULL;
  if (entry->source != ar->source || entry->line != ar->linedefined ||
      entry->last_line != ar->lastlinedefined ||
      strncmp(entry->source_head, ar->source, sizeof entry->source_head) != 0)
    return false;
  if (vm->now - entry->checked < CHECK_CODE_EVERY) return true;
  entry->checked = vm->now;
  return entry->code == code_of(vm, L, ar, entry->key);
}

/* -- names ----------------------------------------------------------------------------------------------- */

void function_name(vm_t *vm, live_ref_t function, const char *name, size_t len, uint32_t rank) {
  if (rank <= live_name_rank(&vm->live, function))
    return; /* before the string is entered: it would stay unused */
  live_rename(&vm->live, function, live_string(&vm->live, name, len), rank);
}

/* What the caller calls it. 5.4 gives metamethods without their underscores. */
static void name_by_call_site(vm_t *vm, lua_State *L, lua_Debug *ar, int level, live_ref_t function) {
  ar->name = NULL;
  if (!lua_getinfo(L, "n", ar) || ar->name == NULL || ar->namewhat == NULL || ar->namewhat[0] == '\0') return;
  if (strcmp(ar->namewhat, "hook") == 0 || strcmp(ar->name, "?") == 0) return;
  if (vm->luajit && !call_site_confirms(L, level, ar->name)) return; /* elsewhere tail calls have no name */
  char name[MAX_NAME];
  bool bare = strcmp(ar->namewhat, "metamethod") == 0 && strncmp(ar->name, "__", 2) != 0;
  int len = snprintf(name, sizeof name, "%s%s", bare ? "__" : "", ar->name);
  if (len > 0) function_name(vm, function, name, strnlen(name, sizeof name), NAME_CALL_SITE);
}

static size_t place_name(const lua_Debug *ar, const void *key, const char *file, size_t file_len,
                         char *name) {
  int len;
  if (is_c(ar)) {
    Dl_info info; /* hooks run in ordinary context, so the loader's lock is no danger */
    bool found = loader_find(key, &info);
    if (found && info.dli_sname != NULL) {
      len = snprintf(name, MAX_NAME, "%s", info.dli_sname);
    } else if (found && info.dli_fname != NULL) {
      const char *slash = strrchr(info.dli_fname, '/');
      len = snprintf(name, MAX_NAME, "%s+0x%zx", slash ? slash + 1 : info.dli_fname,
                     (size_t)((const char *)key - (const char *)info.dli_fbase));
    } else {
      len = snprintf(name, MAX_NAME, "C function %p", key);
    }
  } else {
    size_t shown = file_len > MAX_NAME - 16 ? MAX_NAME - 16 : file_len; /* the end of a long path says more */
    len = snprintf(name, MAX_NAME, "%.*s:%d", (int)shown, file + (file_len - shown), ar->linedefined);
  }
  return len < 0 ? 0 : strnlen(name, MAX_NAME);
}

static size_t file_of(const lua_Debug *ar, const char **file) {
  if (is_c(ar))
    *file = "[C]";
  else if (ar->source[0] == '@' || ar->source[0] == '=')
    *file = ar->source + 1;
  else
    *file = ar->short_src; /* a chunk from a string: its first line */
  return strnlen(*file, MAX_FILE);
}

/* -- first sight ----------------------------------------------------------------------------------------- */

static function_entry_t *enter(vm_t *vm, lua_State *L, lua_Debug *ar, const void *key) {
  char name[MAX_NAME];
  const char *file;
  size_t file_len = file_of(ar, &file);
  bool main_chunk = ar->what != NULL && strcmp(ar->what, "main") == 0;
  bool region = !is_c(ar) && !main_chunk && region_is(file, file_len) && file_len < sizeof name;
  size_t name_len = main_chunk ? (size_t)snprintf(name, sizeof name, "main chunk")
                    : region   ? (size_t)snprintf(name, sizeof name, "%s", file)
                               : place_name(ar, key, file, file_len, name);
  live_function_t function = {
      .name = live_string(&vm->live, name, name_len),
      .file = live_string(&vm->live, file, file_len),
      .line = is_c(ar) || ar->linedefined < 0 ? 0 : ar->linedefined,
      .last_line = is_c(ar) ? 0 : ar->lastlinedefined,
      .code = code_of(vm, L, ar, key),
      .kind = is_c(ar) ? LIVE_C : LIVE_LUA,
  };
  live_ref_t ref = function.name == 0 || function.file == 0 ? 0 : live_function(&vm->live, &function);
  if (ref == 0) return NULL;
  if (main_chunk || region) live_rename(&vm->live, ref, function.name, NAME_FINAL);
  function_entry_t *entry = claim(vm, key);
  *entry = (function_entry_t){.key = key,
                              .source = is_c(ar) ? NULL : ar->source,
                              .line = ar->linedefined,
                              .last_line = ar->lastlinedefined,
                              .code = function.code,
                              .function = ref,
                              .checked = vm->now};
  if (!is_c(ar)) memcpy(entry->source_head, ar->source, strnlen(ar->source, sizeof entry->source_head));
  return entry;
}

live_ref_t function_of_frame(vm_t *vm, lua_State *L, lua_Debug *ar, int level) {
  const void *key = key_of(L);
  function_entry_t *entry = find(vm, key);
  if (entry != NULL && !still_the_same(vm, L, ar, entry)) {
    entry->key = NULL; /* the address was reused: what stood there is another function now */
    entry = NULL;
  }
  if (entry == NULL) entry = enter(vm, L, ar, key);
  if (entry == NULL) return 0;
  entry->sightings++;
  /* a name is looked for at the 1st, 2nd, 4th, 8th … sighting: modules are filled in after their functions
   * first run */
  uint32_t rank = live_name_rank(&vm->live, entry->function);
  if (rank < NAME_LOADED && (entry->sightings & (entry->sightings - 1)) == 0) {
    if (rank == NAME_PLACE) name_by_call_site(vm, L, ar, level, entry->function);
    vm->names_wanted = true;
  }
  return entry->function;
}
