/* SPDX-License-Identifier: MIT */
/* Finding the collector; see collector.h. */
#include "attach/collector.h"

#include <string.h>

#include "attach/elf_symbol.h"

enum { NEAR = 65536 /* bytes: functions of one source file lie together */ };

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

void collector_find(collector_t *c, const target_t *target, const runtimes_t *runtimes) {
  c->count = 0;
  c->by_state = false;
  for (size_t i = 0; i < runtimes->count; i++) {
    const runtime_t *runtime = &runtimes->runtimes[i];
    if (runtime->layout == NULL || runtime->layout->family != LAYOUT_PUC) continue;
    c->by_state |= runtime->layout->puc.global_gc_stop != LAYOUT_ABSENT;
    const map_t *map = maps_find(&target->maps, runtime->ident.at);
    finding_t finding = {c, 0};
    if (map == NULL || map->inode == 0) continue;
    elf_functions(map, runtime->ident.at, target->process.pid, find_center, &finding);
    if (finding.center != 0)
      elf_functions(map, runtime->ident.at, target->process.pid, find_function, &finding);
  }
}

bool collector_has(const collector_t *c, uint64_t pc) {
  for (size_t i = 0; i < c->count; i++)
    if (pc >= c->ranges[i].start && pc < c->ranges[i].end) return true;
  return false;
}
