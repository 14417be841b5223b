/* SPDX-License-Identifier: MIT */
/* The Lua module: require "luapulse". Ordinary C functions called from Lua; failures are Lua errors in words.
 */
#include <string.h>

#include "agent/binding.h"
#include "agent/label.h"
#include "agent/options.h"
#include "agent/region.h"
#include "agent/session.h"
#include "profile/mem.h"

/* -- options --------------------------------------------------------------------------------------------- */

static const char KNOWN[] =
    "cpu, heap, cpu_clock, cpu_hz, cpu_engine, layout, cpu_sample_mean_instr, cpu_max_samples_per_sec, "
    "heap_sample_mean_bytes, gc, "
    "max_memory_bytes, max_process_memory_bytes, seed, trace_events, trace_filter";

static int wrong(lua_State *L, const char *name, const char *expected) {
  lua_getfield(L, 1, name);
  const char *got = lua_type(L, -1) == LUA_TSTRING ? lua_pushfstring(L, "\"%s\"", lua_tostring(L, -1))
                    : lua_isnumber(L, -1)          ? lua_tostring(L, -1)
                                                   : luaL_typename(L, -1);
  return luaL_error(L, "luapulse: option %s must be %s, got %s", name, expected, got);
}

/* A mode: "sampling", "tracing", or off (nil, false). True when the feature is on. */
static bool read_mode(lua_State *L, const char *name, luapulse_collection_mode_t *mode) {
  lua_getfield(L, 1, name);
  const char *text = lua_type(L, -1) == LUA_TSTRING ? lua_tostring(L, -1) : NULL;
  bool off = lua_isnil(L, -1) || (lua_isboolean(L, -1) && !lua_toboolean(L, -1));
  lua_pop(L, 1);
  if (off) return false;
  if (text != NULL && strcmp(text, "sampling") == 0)
    *mode = LUAPULSE_COLLECTION_SAMPLING;
  else if (text != NULL && strcmp(text, "tracing") == 0)
    *mode = LUAPULSE_COLLECTION_TRACING;
  else
    wrong(L, name, "\"sampling\", \"tracing\" or false");
  return true;
}

/* One of three words; `otherwise` when the option is absent. */
static unsigned read_word(lua_State *L, const char *name, unsigned otherwise, const char *const words[3],
                          const char *expected) {
  unsigned value = otherwise;
  lua_getfield(L, 1, name);
  if (!lua_isnil(L, -1)) {
    const char *text = lua_type(L, -1) == LUA_TSTRING ? lua_tostring(L, -1) : "";
    for (value = 0; value < 3 && strcmp(text, words[value]) != 0;) value++;
    if (value == 3) wrong(L, name, expected);
  }
  lua_pop(L, 1);
  return value;
}

/* The name of the layout file stays on the stack. */
static void read_clock_and_engine(lua_State *L, luapulse_profile_options_t *o) {
  static const char *const clocks[] = {"cpu", "instructions", "wall"};
  static const char *const engines[] = {"auto", "walk", "interface"};
  o->cpu_clock = (luapulse_clock_t)read_word(L, "cpu_clock", o->cpu_clock, clocks,
                                             "\"cpu\", \"wall\" or \"instructions\"");
  o->cpu_engine = (luapulse_engine_t)read_word(L, "cpu_engine", o->cpu_engine, engines,
                                               "\"auto\", \"walk\" or \"interface\"");
  lua_getfield(L, 1, "layout"); /* stays on the stack: a metamethod may have made it for us alone */
  if (!lua_isnil(L, -1) && lua_type(L, -1) != LUA_TSTRING) wrong(L, "layout", "the name of a layout file");
  o->layout_file = lua_tostring(L, -1);
}

/* A whole number in the range, or the default when the option is absent. */
static double read_number(lua_State *L, const char *name, double otherwise, double least, double most,
                          const char *expected) {
  lua_getfield(L, 1, name);
  double value = otherwise;
  if (!lua_isnil(L, -1)) {
    value = lua_type(L, -1) == LUA_TNUMBER ? (double)lua_tonumber(L, -1) : -1;
    if (!(value >= least && value <= most) || value != (double)(int64_t)value) wrong(L, name, expected);
  }
  lua_pop(L, 1);
  return value;
}

static void refuse_unknown(lua_State *L) {
  lua_pushnil(L);
  while (lua_next(L, 1)) {
    if (lua_type(L, -2) != LUA_TSTRING)
      luaL_error(L, "luapulse: options are named; got a %s as a name (known: %s)", luaL_typename(L, -2),
                 KNOWN);
    size_t len;
    const char *name = lua_tolstring(L, -2, &len);
    const char *at = strlen(name) == len ? strstr(KNOWN, name) : NULL;
    bool known = false, one_word = len > 0 && strpbrk(name, ", ") == NULL; /* not a piece of the list */
    for (; at != NULL && one_word && !known; at = strstr(at + 1, name))
      known = (at == KNOWN || at[-1] == ' ') && (at[len] == ',' || at[len] == '\0');
    if (!known) luaL_error(L, "luapulse: unknown option \"%s\" (known: %s)", name, KNOWN);
    lua_pop(L, 1);
  }
}

/* trace_filter: a pattern or a list of them, as one text with a line for each. The text stays on the stack. */
static void read_filter(lua_State *L, luapulse_profile_options_t *o) {
  static const char expected[] = "a pattern or a list of patterns";
  lua_getfield(L, 1, "trace_filter");
  if (lua_isnil(L, -1)) {
    lua_pop(L, 1);
    return;
  }
  if (lua_type(L, -1) == LUA_TTABLE) {
    int list = lua_gettop(L);
    size_t count = lv_rawlen(L, list);
    lua_pushliteral(L, "");
    for (size_t i = 1; i <= count; i++) {
      lua_rawgeti(L, list, (int)i);
      if (lua_type(L, -1) != LUA_TSTRING) wrong(L, "trace_filter", expected);
      lua_pushliteral(L, "\n");
      lua_concat(L, 3);
    }
  } else if (lua_type(L, -1) != LUA_TSTRING) {
    wrong(L, "trace_filter", expected);
  }
  o->trace_filter = lua_tostring(L, -1);
}

/* gc: what inuse is of; nil or false: now, true: now, after a collection, or "completed". */
static void read_gc(lua_State *L, luapulse_profile_options_t *o) {
  lua_getfield(L, 1, "gc");
  const char *text = lua_type(L, -1) == LUA_TSTRING ? lua_tostring(L, -1) : NULL;
  if (lua_isboolean(L, -1))
    o->heap_gc = lua_toboolean(L, -1) ? LUAPULSE_GC_FORCED : LUAPULSE_GC_NOW;
  else if (text != NULL && strcmp(text, "completed") == 0)
    o->heap_gc = LUAPULSE_GC_COMPLETED;
  else if (!lua_isnil(L, -1))
    wrong(L, "gc", "true, false or \"completed\"");
  lua_pop(L, 1);
}

static void read_options(lua_State *L, luapulse_profile_options_t *o) {
  *o = options_default();
  if (lua_isnoneornil(L, 1)) return;
  luaL_checktype(L, 1, LUA_TTABLE);
  refuse_unknown(L);
  o->features = 0;
  lua_getfield(L, 1, "cpu");
  lua_getfield(L, 1, "heap");
  bool neither =
      !lua_toboolean(L, -1) && lua_isnil(L, -2); /* the heap is off, and nothing is said of the cpu */
  lua_pop(L, 2);
  if (read_mode(L, "cpu", &o->cpu_mode) || neither) o->features |= LUAPULSE_FEATURE_CPU;
  if (read_mode(L, "heap", &o->heap_mode)) o->features |= LUAPULSE_FEATURE_HEAP;
  read_clock_and_engine(L, o);
  o->cpu_hz = (unsigned)read_number(L, "cpu_hz", o->cpu_hz, 1, 10000, "a whole number from 1 to 10000");
  o->cpu_sample_mean_instr = (unsigned)read_number(L, "cpu_sample_mean_instr", o->cpu_sample_mean_instr, 1,
                                                   1e9, "a whole number from 1 to 1000000000");
  o->cpu_max_samples_per_sec =
      (unsigned)read_number(L, "cpu_max_samples_per_sec", o->cpu_max_samples_per_sec, 0, 1e9,
                            "a whole number from 0 (no limit) to 1000000000");
  o->heap_sample_mean_bytes = (size_t)read_number(
      L, "heap_sample_mean_bytes", (double)o->heap_sample_mean_bytes, 0, 1e15, "a whole number of bytes");
  read_gc(L, o);
  o->max_memory_bytes = (size_t)read_number(L, "max_memory_bytes", (double)o->max_memory_bytes,
                                            LIVE_MIN_BYTES, 1e15, "a whole number of bytes, at least 262144");
  o->max_process_memory_bytes =
      (size_t)read_number(L, "max_process_memory_bytes", (double)o->max_process_memory_bytes, LIVE_MIN_BYTES,
                          1e15, "a whole number of bytes, at least 262144");
  o->trace_events = (unsigned)read_number(L, "trace_events", 0, 0, 1e8, "a whole number of calls");
  read_filter(L, o);
  o->seed = (uint64_t)read_number(L, "seed", 0, 0, 9e15, "a whole number");
}

/* -- functions ------------------------------------------------------------------------------------------- */

static int raise_failure(lua_State *L, const failure_t *failure) {
  return luaL_error(L, "luapulse: %s", failure->text);
}

static int pulse_start(lua_State *L) {
  luapulse_profile_options_t options;
  failure_t failure = {{0}};
  session_region_t own = {0};
  read_options(L, &options);
  if (!session_start(L, &options, own, &failure)) return raise_failure(L, &failure);
  return 0;
}

/* Of stop and snapshot: { gc = … }. True when there is one, with what it says in *gc. */
static bool read_gc_argument(lua_State *L, luapulse_gc_t *gc) {
  if (lua_isnoneornil(L, 1)) return false;
  luaL_checktype(L, 1, LUA_TTABLE);
  lua_pushnil(L);
  while (lua_next(L, 1)) {
    bool known = lua_type(L, -2) == LUA_TSTRING && strcmp(lua_tostring(L, -2), "gc") == 0;
    if (!known) luaL_error(L, "luapulse: the only option here is gc");
    lua_pop(L, 1);
  }
  luapulse_profile_options_t options = options_default();
  read_gc(L, &options);
  *gc = options.heap_gc;
  lua_getfield(L, 1, "gc");
  bool said = !lua_isnil(L, -1);
  lua_pop(L, 1);
  return said;
}

static int pulse_stop(lua_State *L) {
  failure_t failure = {{0}};
  luapulse_gc_t gc;
  bool asked = read_gc_argument(L, &gc);
  profile_t **slot = binding_push_profile(L); /* first, because it may raise: the session is still on then */
  if (asked && !session_heap_gc(L, &gc, &failure)) return raise_failure(L, &failure);
  *slot = session_stop(L, &failure);
  return *slot != NULL ? 1 : raise_failure(L, &failure);
}

static int pulse_snapshot(lua_State *L) {
  failure_t failure = {{0}};
  luapulse_gc_t gc;
  bool asked = read_gc_argument(L, &gc);
  profile_t **slot = binding_push_profile(L);
  if (asked && !session_heap_gc(L, &gc, &failure)) return raise_failure(L, &failure);
  *slot = session_snapshot(L, &failure);
  if (asked) session_heap_gc(L, &gc, NULL); /* it was for this one */
  return *slot != NULL ? 1 : raise_failure(L, &failure);
}

static int pulse_pause(lua_State *L) {
  failure_t failure = {{0}};
  return session_pause(L, true, &failure) ? 0 : raise_failure(L, &failure);
}

static int pulse_resume(lua_State *L) {
  failure_t failure = {{0}};
  return session_pause(L, false, &failure) ? 0 : raise_failure(L, &failure);
}

static int pulse_heap_rate(lua_State *L) {
  failure_t failure = {{0}};
  double mean = (double)luaL_checknumber(L, 1);
  if (!(mean >= 0 && mean <= 1e15) || mean != (double)(int64_t)mean)
    return luaL_argerror(L, 1, "a whole number of bytes expected");
  return session_heap_rate(L, (size_t)mean, &failure) ? 0 : raise_failure(L, &failure);
}

static int pulse_status(lua_State *L) {
  luapulse_status_t s;
  session_status(L, &s);
  lua_newtable(L);
  lua_pushboolean(L, s.running);
  lua_setfield(L, -2, "running");
  if (!s.running) return 1;
  lua_pushboolean(L, s.paused);
  lua_setfield(L, -2, "paused");
  lua_pushstring(L, s.engine);
  lua_setfield(L, -2, "engine");
  lua_pushstring(L, s.source);
  lua_setfield(L, -2, "source");
  lua_pushstring(L, s.note);
  lua_setfield(L, -2, "note");
  lua_newtable(L);
  for (unsigned i = 0; luapulse_reason_name(i) != NULL; i++) {
    lua_pushinteger(L, (lua_Integer)s.rejects[i]);
    if (s.rejects[i] > 0)
      lua_setfield(L, -2, luapulse_reason_name(i));
    else
      lua_pop(L, 1);
  }
  lua_setfield(L, -2, "rejects");
  const struct {
    const char *name;
    uint64_t value;
  } numbers[] = {
      {"samples", s.samples},           {"overflow", s.lost_overflow},
      {"truncated", s.lost_truncated},  {"unattributed", s.lost_unattributed},
      {"dropped", s.lost_dropped},      {"rate_limited", s.lost_rate_limited},
      {"memory_bytes", s.memory_bytes}, {"rate", s.rate},
      {"cost_ns", s.cost_ns},
  };
  for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
    lua_pushinteger(L, (lua_Integer)numbers[i].value);
    lua_setfield(L, -2, numbers[i].name);
  }
  return 1;
}

/* A label's key or value: a string without NUL (that ends it), or a number or boolean as text. Pushes it. */
static const char *label_text(lua_State *L, int index, size_t *len) {
  index = lv_absindex(L, index);
  if (lua_isboolean(L, index))
    lua_pushstring(L, lua_toboolean(L, index) ? "true" : "false");
  else
    lua_pushvalue(L, index);
  const char *text = lua_tolstring(L, -1, len); /* converts the copy: lua_next needs the key as it is */
  if (text == NULL) {
    luaL_error(L, "luapulse: labels are strings, numbers or booleans, got a %s", luaL_typename(L, index));
  } else if (strlen(text) != *len) {
    luaL_error(L, "luapulse: a label holds a NUL byte");
  }
  return text;
}

static int pulse_labels(lua_State *L) {
  failure_t failure = {{0}};
  luaL_Buffer buffer;
  int count = 0;
  if (!lua_isnoneornil(L, 1)) luaL_checktype(L, 1, LUA_TTABLE);
  lua_settop(L, 1);
  lua_newtable(L); /* 2: the texts, in order */
  if (lua_istable(L, 1)) {
    lua_pushnil(L);
    while (lua_next(L, 1)) {
      size_t len;
      if (count == 2 * LABEL_MAX_COUNT) return luaL_error(L, "luapulse: at most %d labels", LABEL_MAX_COUNT);
      label_text(L, -2, &len);
      lua_rawseti(L, 2, ++count);
      label_text(L, -1, &len);
      lua_rawseti(L, 2, ++count);
      lua_pop(L, 1);
    }
  }
  luaL_buffinit(L, &buffer);
  for (int i = 1; i <= count; i++) {
    lua_rawgeti(L, 2, i);
    luaL_addvalue(&buffer);
    luaL_addchar(&buffer, '\0');
  }
  luaL_pushresult(&buffer);
  size_t len;
  const char *text = lua_tolstring(L, -1, &len);
  return session_label(L, text, len, &failure) ? 0 : raise_failure(L, &failure);
}

static const luaL_Reg functions[] = {
    {"start", pulse_start},   {"stop", pulse_stop},           {"snapshot", pulse_snapshot},
    {"pause", pulse_pause},   {"resume", pulse_resume},       {"status", pulse_status},
    {"labels", pulse_labels}, {"heap_rate", pulse_heap_rate}, {NULL, NULL},
};

int luaopen_luapulse(lua_State *L) {
  vm_get(L); /* now, so that it is there to refuse a start by a finalizer while the VM closes */
  binding_register_profile(L);
  lua_newtable(L);
  lv_setfuncs(L, functions);
  region_push(L);
  lua_setfield(L, -2, "region");
  lua_pushliteral(L, LUAPULSE_VERSION);
  lua_setfield(L, -2, "version");
  return 1;
}
