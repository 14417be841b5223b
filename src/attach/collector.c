/* SPDX-License-Identifier: MIT */
/* Finding the collector; see collector.h. */
#include "attach/collector.h"

#include <string.h>

#include "attach/call_graph.h"
#include "attach/elf_symbol.h"
#include "profile/mem.h"

enum {
  NEAR = 65536, /* bytes: functions of one source file lie together */
  FEWEST = 8    /* functions: with fewer, something else was found than the collector */
};

/* -- by symbols ------------------------------------------------------------------------------------------------------ */

/* Functions of lgc.c that are at work when memory is collected, of all versions. Not those that programs go through as they run (barriers,
 * new objects), nor those that call finalizers. A star stands for any end. */
static const char *const names[] = {
    "luaC_step",
    "luaC_fullgc",
    "luaC_forcestep",
    "luaC_runtilstate",
    "singlestep",
    "incstep",
    "genstep",
    "fullinc",
    "fullgen",
    "stepgenfull",
    "youngcollection",
    "restartcollection",
    "markroot",
    "marktmu",
    "markmt",
    "markbeingfnz",
    "markold",
    "markupval",
    "remarkupvals",
    "reallymarkobject",
    "propagate*",
    "traverse*",
    "convergeephemerons",
    "atomic",
    "atomic2gen",
    "atomic2major",
    "clearby*",
    "clearkeys",
    "clearvalues",
    "cleartable",
    "sweep*",
    "entersweep",
    "freeobj",
    "genlink",
    "correct*",
    "finishgencycle",
    "entergen",
    "enterinc",
    "separatetobefnz",
    "iscleared",
};

/* As far as the first dot: compilers add ends to names. */
static bool is_one(const char *name) {
  size_t len = strcspn(name, ".");
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
    size_t known = strlen(names[i]);
    bool any_end = names[i][known - 1] == '*';
    if (any_end ? len >= known - 1 && strncmp(name, names[i], known - 1) == 0
                : len == known && strncmp(name, names[i], len) == 0)
      return true;
  }
  return false;
}

typedef struct {
  collector_t *collector;
  uint64_t center; /* luaC_fullgc, which all versions have; 0: not found yet */
} finding_t;

static void find_center(void *context, const char *name, uint64_t start, uint64_t size) {
  finding_t *f = context;
  if (size > 0 && strcmp(name, "luaC_fullgc") == 0) f->center = start;
}

/* Programs have functions called "atomic" of their own: only those near by count. */
static void find_function(void *context, const char *name, uint64_t start, uint64_t size) {
  finding_t *f = context;
  collector_t *c = f->collector;
  uint64_t distance = start > f->center ? start - f->center : f->center - start;
  if (size == 0 || size > NEAR || distance > NEAR || c->count == COLLECTOR_RANGES || !is_one(name)) return;
  c->ranges[c->count++] = (walk_range_t){start, start + size};
}

static bool find_by_symbols(collector_t *c, const map_t *map, uint64_t known, pid_t pid) {
  finding_t finding = {c, 0};
  elf_functions(map, known, pid, find_center, &finding);
  if (finding.center != 0) elf_functions(map, known, pid, find_function, &finding);
  return finding.center != 0;
}

/* -- by calls --------------------------------------------------------------------------------------------------------- */

/* Functions of the interface that end with a look at the collector: what all of them call is luaC_step. */
static const char *const makers[] = {"lua_createtable", "lua_newthread", "lua_pushcclosure", "lua_concat"};
/* Others that go into it: lua_gc for what it is asked for, and these as parts of their own work. */
static const char *const users[] = {"lua_gc", "lua_close", "lua_newstate", "lua_setmetatable"};

enum { MAKERS = sizeof makers / sizeof makers[0], USERS = sizeof users / sizeof users[0] };

typedef struct {
  call_graph_t *graph;
  uint32_t entries[COLLECTOR_RANGES], entry_count; /* the program goes into the collector by them */
} finding_by_calls_t;

static bool is_entry(const finding_by_calls_t *f, uint32_t function) {
  for (uint32_t i = 0; i < f->entry_count; i++)
    if (f->entries[i] == function) return true;
  return false;
}

/* By how many of the first so many entries. */
static uint32_t callers_of(const finding_by_calls_t *f, uint32_t entry_count, uint32_t function) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < entry_count; i++) count += call_graph_calls(f->graph, f->entries[i], function);
  return count;
}

static bool find_step(finding_by_calls_t *f) {
  uint32_t functions[MAKERS];
  for (int m = 0; m < MAKERS; m++)
    if ((functions[m] = call_graph_exported(f->graph, makers[m])) == CALL_GRAPH_NONE) return false;
  for (uint32_t i = 0; i < call_graph_call_count(f->graph, functions[0]); i++) {
    uint32_t called = call_graph_called(f->graph, functions[0], i);
    int callers = 1;
    while (callers < MAKERS && call_graph_calls(f->graph, functions[callers], called)) callers++;
    if (callers < MAKERS || is_entry(f, called)) continue;
    if (f->entry_count == 1) return false; /* which of them is not known */
    f->entries[f->entry_count++] = called;
  }
  return f->entry_count == 1;
}

/* Those that `caller` calls and, of them, at least `fewest` of the first so many entries, if they call something that one of these calls, too: they
 * are other ways to the same work. */
static void add_entries(finding_by_calls_t *f, uint32_t caller, uint32_t entry_count, uint32_t fewest) {
  for (uint32_t i = 0; i < call_graph_call_count(f->graph, caller); i++) {
    uint32_t called = call_graph_called(f->graph, caller, i);
    bool shares = false;
    for (uint32_t k = 0; k < call_graph_call_count(f->graph, called) && !shares; k++)
      shares = callers_of(f, entry_count, call_graph_called(f->graph, called, k)) > 0;
    if (shares && callers_of(f, entry_count, called) >= fewest && !is_entry(f, called) &&
        f->entry_count < COLLECTOR_RANGES)
      f->entries[f->entry_count++] = called;
  }
}

/* luaC_fullgc and the like are called by lua_gc, or by luaC_step. What several entries call, singlestep for one, the program may come to by
 * functions that call nothing else of the collector. */
static bool find_entries(finding_by_calls_t *f) {
  uint32_t lua_gc = call_graph_exported(f->graph, "lua_gc");
  if (lua_gc == CALL_GRAPH_NONE || !find_step(f)) return false;
  add_entries(f, lua_gc, 1, 0);
  add_entries(f, f->entries[0], 1, 1);
  uint32_t first = f->entry_count;
  for (uint32_t i = 0; i < first; i++) add_entries(f, f->entries[i], first, 2);
  return true;
}

/* What the entries lead to, and nothing else does, is the collector. */
static void take_between(const finding_by_calls_t *f, bool *inside, bool *others, bool *stops, collector_t *c,
                         uint64_t bias) {
  uint32_t count = call_graph_count(f->graph);
  for (uint32_t i = 0; i < f->entry_count; i++) inside[f->entries[i]] = stops[f->entries[i]] = true;
  for (int u = 0; u < USERS; u++) {
    uint32_t user = call_graph_exported(f->graph, users[u]);
    if (user != CALL_GRAPH_NONE) stops[user] = true;
  }
  for (uint32_t i = 0; i < count; i++) others[i] = call_graph_is_taken(f->graph, i) && !stops[i];
  if (!call_graph_follow(f->graph, others, stops) || !call_graph_follow(f->graph, inside, NULL)) return;
  size_t before = c->count;
  for (uint32_t i = 0; i < count && c->count < COLLECTOR_RANGES; i++) {
    walk_range_t range = call_graph_range(f->graph, i);
    if (inside[i] && !others[i] && (!stops[i] || is_entry(f, i)))
      c->ranges[c->count++] = (walk_range_t){range.start + bias, range.end + bias};
  }
  if (c->count - before < FEWEST) c->count = before;
}

static void find_by_calls(void *context, const elf_file_t *file, uint64_t bias) {
  if (file->len > CALL_GRAPH_FILE) return;
  finding_by_calls_t finding = {.graph = call_graph_read(file->elf)};
  if (finding.graph == NULL) return;
  size_t count = call_graph_count(finding.graph);
  bool *sets = find_entries(&finding) ? mem_alloc(3 * count) : NULL;
  if (sets != NULL) take_between(&finding, sets, sets + count, sets + 2 * count, context, bias);
  mem_free(sets);
  call_graph_free(finding.graph);
}

/* -- both ------------------------------------------------------------------------------------------------------------- */

void collector_find(collector_t *c, const target_t *target, const runtimes_t *runtimes) {
  c->count = 0;
  c->by_state = false;
  for (size_t i = 0; i < runtimes->count; i++) {
    const runtime_t *runtime = &runtimes->runtimes[i];
    if (runtime->layout == NULL || runtime->layout->family != LAYOUT_PUC) continue;
    c->by_state |= runtime->layout->puc.global_gc_stop != LAYOUT_ABSENT;
    const map_t *map = maps_find(&target->maps, runtime->ident.at);
    if (map == NULL || map->inode == 0) continue;
    if (!find_by_symbols(c, map, runtime->ident.at, target->process.pid))
      elf_file(map, runtime->ident.at, target->process.pid, find_by_calls, c);
  }
}

bool collector_has(const collector_t *c, uint64_t pc) {
  for (size_t i = 0; i < c->count; i++)
    if (pc >= c->ranges[i].start && pc < c->ranges[i].end) return true;
  return false;
}
