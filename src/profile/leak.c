/* SPDX-License-Identifier: MIT */
/* Leaks; see leak.h. */
#include "profile/leak.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "profile/heap_types.h"
#include "profile/intern.h"
#include "profile/mem.h"
#include "profile/tree.h"

enum { NONE = UINT32_MAX, BANDS = 4, NEEDED = 3, EXPECTED = 3, TURNOVER = 8, FALL = 3, ENOUGH = 6 };

int64_t leak_class_age(unsigned class) {
  return class == 0 ? 0 : INT64_C(1) << (class - 1);
}

static unsigned class_of(int64_t cycles) {
  unsigned class = 0;
  for (; cycles > 0 && class < LEAK_CLASSES - 1; cycles >>= 1) class ++;
  return class;
}

/* -- judging --------------------------------------------------------------------------------------------- */

typedef struct {
  double bytes, samples, width; /* width in collections */
} band_t;

/* The greatest age of a class that the session has room for. */
static int64_t last_age(const leaks_t *l, unsigned class) {
  int64_t first = leak_class_age(class), last = class == 0 ? 0 : 2 * first - 1;
  return l->cycles_told && last > l->cycles ? l->cycles : last;
}

/* The bands of a site, the oldest first; returns how many there are. */
static size_t make_bands(const leaks_t *l, const leak_site_t *site, double mean, band_t band[BANDS]) {
  size_t count = site->oldest < BANDS ? site->oldest : BANDS;
  for (size_t i = 0; i < count; i++) band[i] = (band_t){0};
  for (unsigned class = site->oldest; class > 0; class --) {
    size_t at = site->oldest - class < BANDS ? site->oldest - class : BANDS - 1;
    band[at].width += (double)(last_age(l, class) - leak_class_age(class) + 1);
    if (site->bytes[class] <= 0) continue; /* of a difference, perhaps */
    double samples = (double)site->bytes[class] / mean;
    if (l->has_objects && samples > (double)site->objects[class]) samples = (double)site->objects[class];
    band[at].bytes += (double)site->bytes[class];
    band[at].samples += samples < 1 ? 1 : samples;
  }
  return count;
}

/* True when what is live is too young for all that was allocated. Where as much dies as is born, a share R of what was allocated in G
 * collections is live only if blocks live for R*G of them on average, and then those alive are half as old, or older. */
static bool outgrows(const leaks_t *l, const leak_site_t *site) {
  double ages = 0;
  for (unsigned class = 0; class <= site->oldest; class ++)
    ages += (double)site->bytes[class] * ((double)(leak_class_age(class) + last_age(l, class)) / 2 + 0.5);
  double age = ages / (double)site->live, share = (double)site->live / (double)site->allocated;
  return site->live > 0 && site->allocated > 0 && age < 0.4 * share * (double)l->cycles;
}

/* True when the oldest blocks are about as old as half the session. How old they are within their class is told by how full it is, at
 * the rate of the class below it, unless that is a growing one. */
static bool is_old(const leaks_t *l, const leak_site_t *site, int64_t min_cycles) {
  double least = (double)leak_class_age(site->oldest), age = (double)last_age(l, site->oldest);
  double below = site->oldest > 1 ? (double)site->bytes[site->oldest - 1] / (least / 2) : 0;
  double full = below > 0 ? (double)site->bytes[site->oldest] / below : age;
  if (!outgrows(l, site) && least + full < age) age = least + full;
  return least >= (double)min_cycles && 2 * age >= (double)l->cycles;
}

static leak_verdict_t judge_old(const leaks_t *l, const leak_site_t *site, double mean) {
  band_t band[BANDS];
  size_t count = make_bands(l, site, mean, band), filled = 0;
  double samples = 0, width = 0, bytes = 0;
  for (size_t i = 0; i < count; i++) {
    filled += band[i].bytes > 0;
    samples += band[i].samples;
    width += band[i].width;
    bytes += band[i].bytes;
  }
  double older = band[0].bytes + (count > 1 ? band[1].bytes : 0);
  leak_verdict_t otherwise = 2 * older >= bytes ? LEAK_KEPT : LEAK_RECENT;
  if (filled < (count < NEEDED ? count : NEEDED)) return otherwise;
  for (size_t i = 0; i < count; i++)
    if (band[i].bytes <= 0 && samples * band[i].width >= EXPECTED * width) return otherwise;
  if (count < BANDS || outgrows(l, site))
    return LEAK_GROWING; /* of three bands the third is what one collection left */
  double rate = band[2].bytes / band[2].width;
  double steps[2] = {TURNOVER, band[2].samples >= ENOUGH ? FALL : TURNOVER};
  for (size_t i = 0; i < 2; i++)
    if (band[i].bytes > 0 && band[i].bytes / band[i].width * steps[i] < rate) return otherwise;
  return LEAK_GROWING;
}

static void add_up(leaks_t *l, leak_site_t *site) {
  for (unsigned class = 0; class < LEAK_CLASSES; class ++) {
    site->live = tree_sum(site->live, site->bytes[class]);
    site->live_objects = tree_sum(site->live_objects, site->objects[class]);
    if (class == 0) continue;
    site->survived = tree_sum(site->survived, site->bytes[class]);
    if (site->bytes[class] > 0) site->oldest = class;
  }
  l->live = tree_sum(l->live, site->live);
  l->live_objects = tree_sum(l->live_objects, site->live_objects);
  l->survived = tree_sum(l->survived, site->survived);
}

static void judge(leaks_t *l, double mean, int64_t min_cycles) {
  for (size_t i = 0; i < l->count; i++) {
    leak_site_t *site = &l->sites[i];
    add_up(l, site);
    if (site->oldest == 0)
      site->verdict = LEAK_NEW;
    else if (!is_old(l, site, min_cycles))
      site->verdict = LEAK_RECENT;
    else
      site->verdict = judge_old(l, site, mean);
  }
}

static int compare_sites(const void *left, const void *right) {
  const leak_site_t *a = left, *b = right;
  if (a->verdict != b->verdict) return a->verdict < b->verdict ? -1 : 1;
  if (a->survived != b->survived) return a->survived > b->survived ? -1 : 1;
  if (a->live != b->live) return a->live > b->live ? -1 : 1;
  return (a->path > b->path) - (a->path < b->path);
}

/* -- sites ----------------------------------------------------------------------------------------------- */

typedef struct {
  leaks_t *leaks;
  leak_by_t by;
  uint32_t space, objects, alloc; /* types; the last two may be NONE */
  uint32_t *site_of_stack;        /* NONE when it has none yet */
  int64_t *survived;              /* by stack */
  unsigned *class_of_set;         /* by label set */
  intern_t *index;                /* of sites by line */
} finder_t;

static bool is_lua(const profile_t *p, uint32_t frame) {
  text_t file = profile_text(p, p->functions[p->frames[frame].function].file);
  return file.len > 0 && strcmp(file.data, "[C]") != 0 && strcmp(file.data, "=[C]") != 0;
}

/* The site that a stack would be, by itself. */
static leak_site_t site_at(const profile_t *p, uint32_t stack) {
  leak_site_t site = {.leaf = NONE, .lua = NONE, .path = stack};
  if (stack != 0) site.leaf = p->stacks[stack].frame;
  for (; stack != 0 && site.lua == NONE; stack = p->stacks[stack].parent)
    if (is_lua(p, p->stacks[stack].frame)) site.lua = p->stacks[stack].frame;
  return site;
}

/* A line by its names: code that was loaded again is the same line. */
typedef struct {
  uint32_t name, file, line[2];
} place_t;

static place_t place_of(const profile_t *p, uint32_t frame) {
  if (frame == NONE) return (place_t){NONE, NONE, {0, 0}};
  const profile_function_t *f = &p->functions[p->frames[frame].function];
  uint64_t line = (uint64_t)p->frames[frame].line;
  return (place_t){f->name, f->file, {(uint32_t)line, (uint32_t)(line >> 32)}};
}

static bool same_place(const profile_t *p, uint32_t a, uint32_t b) {
  place_t x = place_of(p, a), y = place_of(p, b);
  return memcmp(&x, &y, sizeof x) == 0;
}

static bool site_equal(const void *owner, const void *wanted, uint32_t position) {
  const leaks_t *l = owner;
  const leak_site_t *have = &l->sites[position], *want = wanted;
  return same_place(l->profile, have->leaf, want->leaf) && same_place(l->profile, have->lua, want->lua);
}

/* The number of the site, made when it is new; NONE when memory is out. */
static uint32_t find_site(finder_t *f, uint32_t stack) {
  leaks_t *l = f->leaks;
  leak_site_t site = site_at(l->profile, stack);
  uint32_t hash = 0;
  if (f->by == LEAK_BY_LINE) {
    place_t places[2] = {place_of(l->profile, site.leaf), place_of(l->profile, site.lua)};
    hash = hash_bytes(places, sizeof places, 11);
    uint32_t found = intern_find(f->index, hash, site_equal, l, &site);
    if (found != NONE) return found;
  }
  uint32_t at = (uint32_t)l->count;
  if (!mem_reserve((void **)&l->sites, &l->room, l->count + 1, sizeof *l->sites)) return NONE;
  if (f->by == LEAK_BY_LINE && !intern_add(f->index, hash, at)) return NONE;
  l->sites[l->count++] = site;
  return at;
}

static bool add_sample(finder_t *f, const profile_sample_t *sample) {
  leaks_t *l = f->leaks;
  int64_t bytes = sample->values[f->space], allocated = f->alloc != NONE ? sample->values[f->alloc] : 0;
  if (bytes == 0 && allocated == 0) return true;
  uint32_t *at = &f->site_of_stack[sample->stack];
  if (*at == NONE) *at = find_site(f, sample->stack);
  if (*at == NONE) return false;
  leak_site_t *site = &l->sites[*at];
  unsigned class = f->class_of_set[sample->labels];
  site->allocated = tree_sum(site->allocated, allocated);
  site->bytes[class] = tree_sum(site->bytes[class], bytes);
  if (l->has_objects) site->objects[class] = tree_sum(site->objects[class], sample->values[f->objects]);
  if (class > 0) f->survived[sample->stack] = tree_sum(f->survived[sample->stack], bytes);
  return true;
}

static void choose_paths(finder_t *f, size_t stacks) {
  for (size_t i = 0; i < stacks; i++) {
    if (f->site_of_stack[i] == NONE) continue;
    leak_site_t *site = &f->leaks->sites[f->site_of_stack[i]];
    if (f->survived[i] > f->survived[site->path]) site->path = (uint32_t)i;
  }
}

/* Where nothing is live there is nothing to tell of. */
static void drop_dead(leaks_t *l) {
  static const int64_t none[LEAK_CLASSES];
  size_t kept = 0;
  for (size_t i = 0; i < l->count; i++)
    if (memcmp(l->sites[i].bytes, none, sizeof none) != 0) l->sites[kept++] = l->sites[i];
  l->count = kept;
}

static bool add_samples(finder_t *f, const profile_t *p) {
  f->site_of_stack = mem_alloc(p->stack_count * sizeof *f->site_of_stack);
  f->survived = mem_alloc(p->stack_count * sizeof *f->survived);
  f->index = intern_new();
  if (f->site_of_stack == NULL || f->survived == NULL || f->index == NULL) return false;
  for (size_t i = 0; i < p->stack_count; i++) f->site_of_stack[i] = NONE;
  for (size_t i = 0; i < p->sample_count; i++)
    if (!add_sample(f, &p->samples[i])) return false;
  choose_paths(f, p->stack_count);
  drop_dead(f->leaks);
  return true;
}

/* -- the whole ------------------------------------------------------------------------------------------- */

/* What a sample is worth: the mean gap between samples in bytes, or the least that one has when nobody tells. */
static double mean_of(const profile_t *p, uint32_t space) {
  int64_t told = 0, least = INT64_MAX;
  if (strcmp(profile_text(p, p->period_type.type).data, "space") == 0 && p->period > 0)
    return (double)p->period;
  if (heap_told(p, HEAP_MEAN, &told) && told > 0) return (double)told;
  for (size_t i = 0; i < p->sample_count; i++)
    if (p->samples[i].values[space] > 0 && p->samples[i].values[space] < least)
      least = p->samples[i].values[space];
  return (double)least;
}

static bool find_ages(finder_t *f, const profile_t *p) {
  f->class_of_set = mem_alloc(p->label_set_count * sizeof *f->class_of_set);
  if (f->class_of_set == NULL) return false;
  for (size_t i = 0; i < p->label_set_count; i++)
    f->class_of_set[i] = class_of(heap_cycles_survived(p, (uint32_t)i));
  f->leaks->classes = 1;
  for (size_t i = 0; i < p->sample_count; i++) {
    unsigned class = f->class_of_set[p->samples[i].labels];
    if (p->samples[i].values[f->space] != 0 && class >= f->leaks->classes) f->leaks->classes = class + 1;
  }
  return true;
}

/* How old the session is, and whether that is enough. */
static bool check_age(leaks_t *l, int64_t min_cycles, failure_t *failure) {
  int64_t seen = leak_class_age(l->classes - 1);
  l->cycles_told = heap_told(l->profile, HEAP_CYCLES, &l->cycles);
  if (!l->cycles_told && l->classes == 1)
    return failure_set(failure, "no sample has the label " HEAP_SURVIVED ", and no comment tells " HEAP_CYCLES
                                ": it does not tell which live blocks survived collections");
  if (seen > l->cycles) {
    l->cycles = seen;
    l->cycles_told = false;
  }
  if (l->cycles_told && l->cycles < min_cycles)
    return failure_set(failure,
                       "it saw %" PRId64
                       " collection%s while profiling, too few to tell what survives: %" PRId64 " are needed",
                       l->cycles, l->cycles == 1 ? "" : "s", min_cycles);
  if (class_of(l->cycles) + 1 > l->classes) l->classes = class_of(l->cycles) + 1;
  return true;
}

static bool fill(leaks_t *l, finder_t *f, int64_t min_cycles, failure_t *failure) {
  const profile_t *p = l->profile;
  f->space = profile_find_type(p, "inuse_space");
  f->objects = profile_find_type(p, "inuse_objects");
  f->alloc = profile_find_type(p, "alloc_space");
  l->has_objects = f->objects != PROFILE_NONE;
  if (f->space == PROFILE_NONE) {
    char names[HEAP_NAMES_BYTES];
    heap_type_names(p, names);
    return failure_set(failure, "it has no sample type inuse_space, so it is no heap profile; it has: %s",
                       names);
  }
  if (!find_ages(f, p)) return failure_set(failure, "out of memory");
  if (!check_age(l, min_cycles, failure)) return false;
  if (!add_samples(f, p)) return failure_set(failure, "out of memory");
  double mean = mean_of(p, f->space);
  judge(l, mean, min_cycles);
  if (l->count > 0) qsort(l->sites, l->count, sizeof *l->sites, compare_sites);
  return true;
}

leaks_t *leak_find(const profile_t *p, leak_by_t by, int64_t min_cycles, failure_t *failure) {
  leaks_t *l = mem_alloc(sizeof *l);
  finder_t f = {.leaks = l, .by = by};
  if (l == NULL) {
    failure_set(failure, "out of memory");
    return NULL;
  }
  l->profile = p;
  bool done = fill(l, &f, min_cycles, failure);
  mem_free(f.site_of_stack);
  mem_free(f.survived);
  mem_free(f.class_of_set);
  intern_free(f.index);
  if (done) return l;
  leak_free(l);
  return NULL;
}

void leak_free(leaks_t *leaks) {
  if (leaks == NULL) return;
  mem_free(leaks->sites);
  mem_free(leaks);
}
