/* SPDX-License-Identifier: MIT */
/* The profile object of the Lua module: profile:write(), :top(), :folded(), :samples(), :stats(). */
#include <stdio.h>
#include <string.h>

#include "agent/binding.h"
#include "format/format.h"
#include "format/text.h"
#include "luapulse.h"
#include "profile/mem.h"
#include "profile/summary.h"
#include "profile/trace_values.h"

static const char TYPE[] = "luapulse.profile";

static profile_t *check_profile(lua_State *L) {
  profile_t **slot = luaL_checkudata(L, 1, TYPE);
  if (*slot == NULL) luaL_error(L, "luapulse: this profile is empty: the call that made it failed");
  return *slot;
}

static void push_text(lua_State *L, const profile_t *p, uint32_t string) {
  text_t text = profile_text(p, string);
  lua_pushlstring(L, text.data, text.len);
}

static void set_string(lua_State *L, const profile_t *p, const char *field, uint32_t string) {
  push_text(L, p, string);
  lua_setfield(L, -2, field);
}

static void set_number(lua_State *L, const char *field, int64_t value) {
  lua_pushinteger(L, (lua_Integer)value);
  lua_setfield(L, -2, field);
}

/* -- write, folded --------------------------------------------------------------------------------------- */

static int profile_write(lua_State *L) {
  luapulse_error_t error = {{0}};
  const char *path = luaL_checkstring(L, 2);
  if (luapulse_profile_write(check_profile(L), path, luaL_optstring(L, 3, NULL), &error) != 0)
    return luaL_error(L, "luapulse: %s", error.text);
  return 0;
}

/* Heap memory at work while Lua values are made of it. */
typedef struct {
  summary_t *summary;
  uint32_t *ranking;
  sink_t *sink;
} work_t;

static void free_work(work_t *work) {
  summary_free(work->summary);
  mem_free(work->ranking);
  if (work->sink != NULL) sink_close(work->sink, NULL);
  *work = (work_t){0};
}

static int collect_work(lua_State *L) {
  free_work(lua_touserdata(L, 1));
  return 0;
}

/* Freed by the collector should making a value raise a memory error. */
static work_t *push_work(lua_State *L) {
  work_t *work = lv_newuserdata(L, sizeof *work);
  *work = (work_t){0};
  lua_newtable(L);
  lua_pushcfunction(L, collect_work);
  lua_setfield(L, -2, "__gc");
  lua_setmetatable(L, -2);
  return work;
}

/* Pushes what the sink holds. */
static void push_sink(lua_State *L, const work_t *work) {
  size_t len = 0;
  const char *text = work->sink != NULL ? sink_memory(work->sink, &len) : NULL;
  if (text == NULL) luaL_error(L, "luapulse: out of memory");
  lua_pushlstring(L, text, len);
}

static int profile_folded(lua_State *L) {
  profile_t *p = check_profile(L);
  work_t *work = push_work(L);
  work->sink = sink_to_memory();
  if (work->sink != NULL) folded_write(p, work->sink);
  push_sink(L, work);
  free_work(work);
  return 1;
}

/* -- top ------------------------------------------------------------------------------------------------- */

static int top_tostring(lua_State *L) {
  lua_getfield(L, 1, "text");
  return 1;
}

static void push_rows(lua_State *L, const summary_t *summary, const uint32_t *ranking, size_t count) {
  lua_newtable(L);
  for (size_t i = 0; i < count; i++) {
    const summary_row_t *row = &summary->rows[ranking[i]];
    double total = summary->total != 0 ? (double)summary->total : 1;
    lua_newtable(L);
    set_string(L, summary->profile, "name", row->name);
    set_string(L, summary->profile, "file", row->file);
    set_number(L, "line", row->line);
    set_number(L, "flat", row->flat);
    set_number(L, "cum", row->cum);
    lua_pushnumber(L, (lua_Number)(100.0 * (double)row->flat / total));
    lua_setfield(L, -2, "flat_percent");
    lua_pushnumber(L, (lua_Number)(100.0 * (double)row->cum / total));
    lua_setfield(L, -2, "cum_percent");
    lua_rawseti(L, -2, (int)i + 1);
  }
}

static int profile_top(lua_State *L) {
  profile_t *p = check_profile(L);
  lua_Integer wanted = luaL_optinteger(L, 2, 10);
  size_t rows = wanted < 0 ? 0 : (size_t)wanted, count = 0;
  work_t *work = push_work(L);
  work->summary = summary_new(p, p->default_type, SUMMARY_FUNCTIONS);
  work->ranking = work->summary != NULL ? summary_ranking(work->summary, &count) : NULL;
  if (work->ranking == NULL) return luaL_error(L, "luapulse: out of memory");
  push_rows(L, work->summary, work->ranking, count < rows || rows == 0 ? count : rows);

  text_options_t options = {
      .view = TEXT_TOP, .by = SUMMARY_FUNCTIONS, .type = p->default_type, .rows = rows, .width = 100};
  work->sink = sink_to_memory();
  if (work->sink != NULL) text_report(p, &options, work->sink, NULL);
  push_sink(L, work);
  free_work(work);
  lua_setfield(L, -2, "text");
  luaL_newmetatable(L, "luapulse.top");
  lua_pushcfunction(L, top_tostring); /* also when it was there: memory may have run out as it was made */
  lua_setfield(L, -2, "__tostring");
  lua_setmetatable(L, -2);
  return 1;
}

/* -- samples, stats -------------------------------------------------------------------------------------- */

static void push_stack(lua_State *L, const profile_t *p, uint32_t stack) {
  lua_newtable(L);
  for (int at = 1; stack != 0; stack = p->stacks[stack].parent, at++) { /* leaf first, as pprof has it */
    const profile_frame_t *frame = &p->frames[p->stacks[stack].frame];
    const profile_function_t *function = &p->functions[frame->function];
    lua_newtable(L);
    set_string(L, p, "name", function->name);
    set_string(L, p, "file", function->file);
    set_number(L, "line", frame->line);
    set_number(L, "defined", function->start_line);
    lua_rawseti(L, -2, at);
  }
}

static void push_labels(lua_State *L, const profile_t *p, uint32_t set) {
  lua_newtable(L);
  for (uint32_t i = 0; i < p->label_sets[set].count; i++) {
    const profile_label_t *label = &p->labels[p->label_sets[set].first + i];
    push_text(L, p, label->key);
    if (label->str != 0)
      push_text(L, p, label->str);
    else
      lua_pushinteger(L, (lua_Integer)label->num);
    lua_rawset(L, -3);
  }
}

static int profile_samples(lua_State *L) {
  profile_t *p = check_profile(L);
  lua_newtable(L);
  for (size_t i = 0; i < p->sample_count; i++) {
    const profile_sample_t *sample = &p->samples[i];
    lua_newtable(L);
    push_stack(L, p, sample->stack);
    lua_setfield(L, -2, "stack");
    push_labels(L, p, sample->labels);
    lua_setfield(L, -2, "labels");
    for (size_t t = 0; t < p->type_count; t++)
      set_number(L, profile_text(p, p->types[t].type).data, sample->values[t]);
    lua_rawseti(L, -2, (int)i + 1);
  }
  return 1;
}

/* What was counted of the whole stands in the profile as comments, "heap_gc_cycles: 12". */
static void set_totals(lua_State *L, const profile_t *p) {
  for (size_t i = 0; i < p->comment_count; i++) {
    const char *text = profile_text(p, p->comments[i]).data;
    char name[64], end;
    unsigned long long value;
    if (sscanf(text, "%63[a-z_]: %llu%c", name, &value, &end) == 2) set_number(L, name, (int64_t)value);
  }
}

static int profile_stats(lua_State *L) {
  profile_t *p = check_profile(L);
  lua_newtable(L);
  bool traced = trace_is(p);
  for (size_t t = 0; t < p->type_count; t++) {
    int64_t total = 0;
    if (traced && t < TRACE_VALUES && t != TRACE_CALLS && t != TRACE_EXCLUSIVE && t != TRACE_EXCLUSIVE_RAW)
      continue; /* no sums */
    for (size_t i = 0; i < p->sample_count; i++) total += p->samples[i].values[t];
    const char *type = profile_text(p, p->types[t].type).data;
    const char *field = strcmp(type, "samples") == 0           ? "cpu_inclusive_samples_total"
                        : strcmp(type, "cpu") == 0             ? "cpu_inclusive_ns_total"
                        : strcmp(type, "vm_instructions") == 0 ? "cpu_inclusive_instructions_total"
                                                               : type;
    set_number(L, field, total);
  }
  set_totals(L, p);
  set_number(L, "stacks", (int64_t)p->sample_count);
  set_number(L, "functions", (int64_t)p->function_count);
  set_number(L, "duration_ns", p->duration_nanos);
  set_number(L, "period", p->period);
  for (int reason = 0; reason < LOSS_COUNT; reason++)
    set_number(L, loss_name((loss_t)reason), (int64_t)p->losses[reason]);
  lua_newtable(L);
  for (size_t i = 0; i < p->comment_count; i++) {
    push_text(L, p, p->comments[i]);
    lua_rawseti(L, -2, (int)i + 1);
  }
  lua_setfield(L, -2, "comments");
  return 1;
}

/* -- the object ------------------------------------------------------------------------------------------ */

static int profile_gc(lua_State *L) {
  profile_t **slot = luaL_checkudata(L, 1, TYPE);
  profile_free(*slot);
  *slot = NULL;
  return 0;
}

static int profile_tostring(lua_State *L) {
  profile_t **slot = luaL_checkudata(L, 1, TYPE);
  lua_pushfstring(L, "luapulse profile: %d stacks", *slot != NULL ? (int)(*slot)->sample_count : 0);
  return 1;
}

static const luaL_Reg methods[] = {
    {"write", profile_write},     {"folded", profile_folded}, {"top", profile_top},
    {"samples", profile_samples}, {"stats", profile_stats},   {NULL, NULL},
};

void binding_register_profile(lua_State *L) {
  luaL_newmetatable(L, TYPE);
  lua_getfield(L, -1, "__index"); /* the last to be set: one left half-made by a memory error is made again */
  bool whole = !lua_isnil(L, -1);
  lua_pop(L, 1);
  if (!whole) {
    lua_pushcfunction(L, profile_gc);
    lua_setfield(L, -2, "__gc");
    lua_pushcfunction(L, profile_tostring);
    lua_setfield(L, -2, "__tostring");
    lua_newtable(L);
    lv_setfuncs(L, methods);
    lua_setfield(L, -2, "__index");
  }
  lua_pop(L, 1);
}

profile_t **binding_push_profile(lua_State *L) {
  profile_t **slot = lv_newuserdata(L, sizeof *slot);
  *slot = NULL;
  binding_register_profile(L); /* for a host that uses the C interface and then hands a profile to Lua */
  luaL_getmetatable(L, TYPE);
  lua_setmetatable(L, -2);
  return slot;
}
