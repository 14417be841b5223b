/* SPDX-License-Identifier: MIT */
/* Types of heap profiles; see heap_types.h. */
#include "profile/heap_types.h"

#include <stdio.h>
#include <string.h>

#include "profile/mem.h"

static const struct {
  const char *freed, *alloc, *inuse;
} derived[] = {
    {"free_objects", "alloc_objects", "inuse_objects"},
    {"free_space", "alloc_space", "inuse_space"},
};
enum { DERIVED = sizeof derived / sizeof *derived };

static bool text_equals(text_t text, const char *wanted) {
  return text.len == strlen(wanted) && memcmp(text.data, wanted, text.len) == 0;
}

bool heap_is_type(const profile_t *p, size_t type) {
  static const char *const names[] = {"alloc_objects", "alloc_space", "inuse_objects", "inuse_space",
                                      "free_objects",  "free_space",  "peak_objects",  "peak_space"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (text_equals(profile_text(p, p->types[type].type), names[i])) return true;
  return false;
}

/* -- what was freed -------------------------------------------------------------------------------------- */

/* True when derived[i] is not there and can be. */
static bool can_derive(const profile_t *p, size_t i, uint32_t *alloc, uint32_t *inuse) {
  *alloc = profile_find_type(p, derived[i].alloc);
  *inuse = profile_find_type(p, derived[i].inuse);
  return *alloc != PROFILE_NONE && *inuse != PROFILE_NONE && p->types[*alloc].unit == p->types[*inuse].unit &&
         p->type_count < PROFILE_MAX_TYPES && profile_find_type(p, derived[i].freed) == PROFILE_NONE;
}

/* The label set without its age. */
static uint32_t without_age(profile_t *p, uint32_t set) {
  profile_label_set_t span = p->label_sets[set];
  profile_label_t *labels = mem_alloc((span.count + 1) * sizeof *labels);
  size_t count = 0;
  if (labels == NULL) {
    p->failed = true;
    return 0;
  }
  for (size_t i = 0; i < span.count; i++)
    if (!text_equals(profile_text(p, p->labels[span.first + i].key), HEAP_SURVIVED))
      labels[count++] = p->labels[span.first + i];
  uint32_t without = profile_label_set(p, labels, count);
  mem_free(labels);
  return without;
}

/* What is live at any age is taken off where the allocation was counted: off one sample, so that none is negative. */
static void add_freed(profile_t *p, uint32_t alloc, uint32_t inuse, size_t freed) {
  size_t sets = p->label_set_count, samples = p->sample_count; /* new ones have nothing to give */
  uint32_t *ageless = mem_alloc(sets * sizeof *ageless);
  if (ageless == NULL) p->failed = true;
  for (size_t i = 0; i < sets && !p->failed; i++) ageless[i] = without_age(p, (uint32_t)i);
  for (size_t i = 0; i < samples && !p->failed; i++) {
    const profile_sample_t *sample = &p->samples[i];
    int64_t values[PROFILE_MAX_TYPES] = {0};
    values[freed] = (int64_t)((uint64_t)sample->values[alloc] - (uint64_t)sample->values[inuse]);
    profile_add(p, sample->stack, ageless[sample->labels], values);
  }
  mem_free(ageless);
}

uint32_t heap_find_type(profile_t *p, const char *name) {
  uint32_t found = profile_find_type(p, name), alloc, inuse;
  for (size_t i = 0; i < DERIVED && found == PROFILE_NONE; i++) {
    if (strcmp(name, derived[i].freed) != 0 || !can_derive(p, i, &alloc, &inuse)) continue;
    size_t freed = profile_add_type(p, name, profile_text(p, p->types[alloc].unit).data);
    add_freed(p, alloc, inuse, freed);
    found = (uint32_t)freed;
  }
  return found;
}

void heap_type_names(const profile_t *p, char names[HEAP_NAMES_BYTES]) {
  size_t used = 0;
  uint32_t alloc, inuse;
  names[0] = '\0';
  for (size_t i = 0; i < p->type_count + DERIVED && used < HEAP_NAMES_BYTES; i++) {
    if (i >= p->type_count && !can_derive(p, i - p->type_count, &alloc, &inuse)) continue;
    const char *name =
        i < p->type_count ? profile_text(p, p->types[i].type).data : derived[i - p->type_count].freed;
    used += (size_t)snprintf(names + used, HEAP_NAMES_BYTES - used, "%s%s", used == 0 ? "" : ", ", name);
  }
}

/* -- ages and comments ----------------------------------------------------------------------------------- */

int64_t heap_cycles_survived(const profile_t *p, uint32_t label_set) {
  profile_label_set_t span = p->label_sets[label_set];
  for (size_t i = 0; i < span.count; i++) {
    const profile_label_t *label = &p->labels[span.first + i];
    if (label->str == 0 && label->num > 0 && text_equals(profile_text(p, label->key), HEAP_SURVIVED))
      return label->num;
  }
  return 0;
}

bool heap_parse_comment(text_t comment, text_t *key, int64_t *number) {
  static const char prefix[] = "heap_";
  size_t at = sizeof prefix - 1;
  int64_t sum = 0;
  if (comment.len < at || memcmp(comment.data, prefix, at) != 0) return false;
  while (at < comment.len &&
         (comment.data[at] == '_' || (comment.data[at] >= 'a' && comment.data[at] <= 'z')))
    at++;
  *key = (text_t){comment.data, at};
  if (comment.len < at + 3 || comment.data[at] != ':' || comment.data[at + 1] != ' ') return false;
  for (at += 2; at < comment.len; at++) {
    int digit = comment.data[at] - '0';
    if (digit < 0 || digit > 9 || sum > (INT64_MAX - digit) / 10) return false;
    sum = sum * 10 + digit;
  }
  *number = sum;
  return true;
}

bool heap_told(const profile_t *p, const char *key, int64_t *number) {
  for (size_t i = 0; i < p->comment_count; i++) {
    text_t found;
    int64_t told;
    if (!heap_parse_comment(profile_text(p, p->comments[i]), &found, &told) || !text_equals(found, key))
      continue;
    *number = told;
    return true;
  }
  return false;
}
