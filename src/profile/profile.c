/* SPDX-License-Identifier: MIT */
/* The profile: interned arrays and their indexes; see profile.h. */
#include "profile/profile.h"

#include <string.h>

#include "profile/intern.h"
#include "profile/mem.h"
#include "profile/trace_values.h"

enum { STRING_COST = 17, /* of an allocation */ INDEX_COST = 16 /* of an entry, half of them free */ };

static uint32_t fail(profile_t *p) {
  p->failed = true;
  return PROFILE_NONE;
}

/* One more element for an interned array: reserves room, enters the index. False marks the profile failed, unless it is frozen. */
static bool make_room(profile_t *p, void **array, size_t *room, size_t count, size_t size, intern_t *index,
                      uint32_t hash) {
  if (p->frozen) return false;
  if (count < PROFILE_NONE && mem_reserve(array, room, count + 1, size) &&
      intern_add(index, hash, (uint32_t)count))
    return true;
  p->failed = true;
  return false;
}

#define MAKE_ROOM(p, what, hash)                                                                   \
  make_room(p, (void **)&(p)->what##s, &(p)->what##_room, (p)->what##_count, sizeof *(p)->what##s, \
            (p)->what##_index, hash)

/* -- strings ------------------------------------------------------------------------------------------------
 */

static bool string_equal(const void *owner, const void *wanted, uint32_t position) {
  const text_t *have = &((const profile_t *)owner)->strings[position];
  const text_t *want = wanted;
  return have->len == want->len && memcmp(have->data, want->data, want->len) == 0;
}

uint32_t profile_string(profile_t *p, const char *data, size_t len) {
  if (p->failed) return PROFILE_NONE;
  text_t wanted = {data, len};
  uint32_t hash = hash_bytes(data, len, 0);
  uint32_t found = intern_find(p->string_index, hash, string_equal, p, &wanted);
  if (found != PROFILE_NONE) return found;
  char *copy = len < SIZE_MAX ? mem_alloc(len + 1) : NULL;
  if (copy == NULL) return fail(p);
  memcpy(copy, data, len);
  if (!MAKE_ROOM(p, string, hash)) {
    mem_free(copy);
    return PROFILE_NONE;
  }
  p->strings[p->string_count] = (text_t){copy, len};
  p->string_bytes += len + STRING_COST;
  return (uint32_t)p->string_count++;
}

uint32_t profile_cstring(profile_t *p, const char *text) {
  return profile_string(p, text, strlen(text));
}

text_t profile_text(const profile_t *p, uint32_t string) {
  return string < p->string_count ? p->strings[string] : (text_t){"", 0};
}

/* -- functions, frames, stacks --------------------------------------------------------------------------- */

static bool function_equal(const void *owner, const void *wanted, uint32_t position) {
  const profile_function_t *have = &((const profile_t *)owner)->functions[position];
  const profile_function_t *want = wanted;
  return have->name == want->name && have->system_name == want->system_name && have->file == want->file &&
         have->start_line == want->start_line;
}

uint32_t profile_function(profile_t *p, profile_function_t function) {
  if (p->failed) return PROFILE_NONE;
  uint32_t key[5] = {function.name, function.system_name, function.file, (uint32_t)function.start_line,
                     (uint32_t)(function.start_line >> 32)};
  uint32_t hash = hash_bytes(key, sizeof key, 1);
  uint32_t found = intern_find(p->function_index, hash, function_equal, p, &function);
  if (found != PROFILE_NONE) return found;
  if (!MAKE_ROOM(p, function, hash)) return PROFILE_NONE;
  p->functions[p->function_count] = function;
  return (uint32_t)p->function_count++;
}

static bool frame_equal(const void *owner, const void *wanted, uint32_t position) {
  const profile_frame_t *have = &((const profile_t *)owner)->frames[position];
  const profile_frame_t *want = wanted;
  return have->function == want->function && have->line == want->line;
}

uint32_t profile_frame(profile_t *p, uint32_t function, int64_t line) {
  if (p->failed) return PROFILE_NONE;
  profile_frame_t wanted = {function, line};
  uint32_t key[3] = {function, (uint32_t)line, (uint32_t)(line >> 32)};
  uint32_t hash = hash_bytes(key, sizeof key, 2);
  uint32_t found = intern_find(p->frame_index, hash, frame_equal, p, &wanted);
  if (found != PROFILE_NONE) return found;
  if (!MAKE_ROOM(p, frame, hash)) return PROFILE_NONE;
  p->frames[p->frame_count] = wanted;
  return (uint32_t)p->frame_count++;
}

static bool stack_equal(const void *owner, const void *wanted, uint32_t position) {
  const profile_stack_t *have = &((const profile_t *)owner)->stacks[position];
  const profile_stack_t *want = wanted;
  return have->parent == want->parent && have->frame == want->frame;
}

uint32_t profile_stack(profile_t *p, uint32_t parent, uint32_t frame) {
  if (p->failed) return PROFILE_NONE;
  profile_stack_t wanted = {parent, frame};
  uint32_t hash = hash_bytes(&wanted, sizeof wanted, 3);
  uint32_t found = intern_find(p->stack_index, hash, stack_equal, p, &wanted);
  if (found != PROFILE_NONE) return found;
  if (!MAKE_ROOM(p, stack, hash)) return PROFILE_NONE;
  p->stacks[p->stack_count] = wanted;
  return (uint32_t)p->stack_count++;
}

/* -- labels and samples ---------------------------------------------------------------------------------- */

typedef struct {
  const profile_label_t *labels;
  size_t count;
} label_span_t;

static bool label_equal(const profile_label_t *a, const profile_label_t *b) {
  return a->key == b->key && a->str == b->str && a->num == b->num && a->num_unit == b->num_unit;
}

static bool label_set_equal(const void *owner, const void *wanted, uint32_t position) {
  const profile_t *p = owner;
  const label_span_t *want = wanted;
  const profile_label_set_t *have = &p->label_sets[position];
  if (have->count != want->count) return false;
  for (size_t i = 0; i < want->count; i++)
    if (!label_equal(&p->labels[have->first + i], &want->labels[i])) return false;
  return true;
}

static uint32_t hash_labels(const profile_label_t *labels, size_t count) {
  uint32_t hash = 4;
  for (size_t i = 0; i < count; i++) {
    uint32_t key[5] = {labels[i].key, labels[i].str, (uint32_t)labels[i].num, (uint32_t)(labels[i].num >> 32),
                       labels[i].num_unit};
    hash = hash_bytes(key, sizeof key, hash);
  }
  return hash;
}

uint32_t profile_label_set(profile_t *p, const profile_label_t *labels, size_t count) {
  if (p->failed) return PROFILE_NONE;
  if (!mem_reserve((void **)&p->labels, &p->label_room, p->label_count + count + 1, sizeof *p->labels))
    return fail(p);
  profile_label_t *sorted = p->labels + p->label_count; /* past the end: kept only if the set is new */
  for (size_t i = 0; i < count; i++) {
    size_t at = i; /* insertion sort: sets are small */
    for (; at > 0 && sorted[at - 1].key > labels[i].key; at--) sorted[at] = sorted[at - 1];
    sorted[at] = labels[i];
  }
  label_span_t wanted = {sorted, count};
  uint32_t hash = hash_labels(sorted, count);
  uint32_t found = intern_find(p->label_set_index, hash, label_set_equal, p, &wanted);
  if (found != PROFILE_NONE) return found;
  if (!MAKE_ROOM(p, label_set, hash)) return PROFILE_NONE;
  p->label_sets[p->label_set_count] = (profile_label_set_t){(uint32_t)p->label_count, (uint32_t)count};
  p->label_count += count;
  return (uint32_t)p->label_set_count++;
}

typedef struct {
  uint32_t stack, labels;
} sample_key_t;

static bool sample_equal(const void *owner, const void *wanted, uint32_t position) {
  const profile_sample_t *have = &((const profile_t *)owner)->samples[position];
  const sample_key_t *want = wanted;
  return have->stack == want->stack && have->labels == want->labels;
}

static uint32_t hash_sample(const sample_key_t *key) {
  return hash_bytes(key, sizeof *key, 5);
}

bool profile_add(profile_t *p, uint32_t stack, uint32_t labels, const int64_t *values) {
  if (p->failed) return false;
  sample_key_t wanted = {stack, labels};
  uint32_t hash = hash_sample(&wanted);
  uint32_t at = intern_find(p->sample_index, hash, sample_equal, p, &wanted);
  if (at == PROFILE_NONE) {
    if (!MAKE_ROOM(p, sample, hash)) return false;
    at = (uint32_t)p->sample_count++;
    p->samples[at] = (profile_sample_t){.stack = stack, .labels = labels};
  }
  if (p->traced_types != p->type_count) {
    p->traced = trace_is(p);
    p->traced_types = p->type_count;
  }
  int64_t *sums = p->samples[at].values;
  for (size_t i = 0; i < p->type_count; i++) {
    if (p->traced && i == TRACE_MIN)
      sums[i] = trace_least(sums[i], values[i]);
    else if (p->traced && i == TRACE_MAX)
      sums[i] = trace_greatest(sums[i], values[i]);
    else /* unsigned: hostile input files may carry sums that overflow, which must wrap, not trap */
      sums[i] = (int64_t)((uint64_t)sums[i] + (uint64_t)values[i]);
  }
  return true;
}

void profile_keep_samples(profile_t *p, size_t count) {
  intern_clear(p->sample_index); /* it had room for more of them: no entry can fail */
  for (size_t i = 0; i < count; i++) {
    sample_key_t key = {p->samples[i].stack, p->samples[i].labels};
    intern_add(p->sample_index, hash_sample(&key), (uint32_t)i);
  }
  p->sample_count = count;
}

bool profile_sample_is_zero(const profile_t *p, const profile_sample_t *sample) {
  for (size_t i = 0; i < p->type_count; i++)
    if (sample->values[i] != 0) return false;
  return true;
}

/* -- the whole ------------------------------------------------------------------------------------------- */

size_t profile_add_type(profile_t *p, const char *type, const char *unit) {
  if (p->type_count == PROFILE_MAX_TYPES) {
    p->failed = true;
    return PROFILE_MAX_TYPES - 1;
  }
  p->types[p->type_count] = (profile_type_t){profile_cstring(p, type), profile_cstring(p, unit)};
  return p->type_count++;
}

uint32_t profile_find_type(const profile_t *p, const char *type) {
  for (uint32_t i = 0; i < p->type_count; i++)
    if (strcmp(profile_text(p, p->types[i].type).data, type) == 0) return i;
  return PROFILE_NONE;
}

void profile_add_comment(profile_t *p, uint32_t string) {
  if (p->failed) return;
  if (!mem_reserve((void **)&p->comments, &p->comment_room, p->comment_count + 1, sizeof *p->comments)) {
    p->failed = true;
    return;
  }
  p->comments[p->comment_count++] = string;
}

void profile_drop_samples(profile_t *p) {
  intern_clear(p->sample_index);
  intern_clear(p->stack_index);
  p->sample_count = p->stack_count = 0;
  p->frozen = false;
  profile_stack(p, PROFILE_NONE, PROFILE_NONE); /* stack 0: there was room for it before */
}

void profile_add_event(profile_t *p, profile_event_t event) {
  if (p->failed) return;
  if (!mem_reserve((void **)&p->events, &p->event_room, p->event_count + 1, sizeof *p->events)) {
    p->failed = true;
    return;
  }
  p->events[p->event_count++] = event;
}

profile_t *profile_new(void) {
  profile_t *p = mem_alloc(sizeof *p);
  if (p == NULL) return NULL;
  p->string_index = intern_new();
  p->function_index = intern_new();
  p->frame_index = intern_new();
  p->stack_index = intern_new();
  p->label_set_index = intern_new();
  p->sample_index = intern_new();
  if (p->string_index == NULL || p->function_index == NULL || p->frame_index == NULL ||
      p->stack_index == NULL || p->label_set_index == NULL || p->sample_index == NULL) {
    profile_free(p);
    return NULL;
  }
  profile_string(p, "", 0);                     /* string 0 */
  profile_stack(p, PROFILE_NONE, PROFILE_NONE); /* stack 0: the empty one */
  profile_label_set(p, NULL, 0);                /* label set 0 */
  if (p->failed) {
    profile_free(p);
    return NULL;
  }
  return p;
}

void profile_free(profile_t *p) {
  if (p == NULL) return;
  for (size_t i = 0; i < p->string_count; i++) mem_free((char *)p->strings[i].data);
  mem_free(p->strings);
  mem_free(p->functions);
  mem_free(p->frames);
  mem_free(p->stacks);
  mem_free(p->labels);
  mem_free(p->label_sets);
  mem_free(p->samples);
  mem_free(p->comments);
  mem_free(p->events);
  intern_free(p->string_index);
  intern_free(p->function_index);
  intern_free(p->frame_index);
  intern_free(p->stack_index);
  intern_free(p->label_set_index);
  intern_free(p->sample_index);
  mem_free(p);
}

bool profile_ok(const profile_t *p) {
  return !p->failed;
}

size_t profile_bytes(const profile_t *p) {
  return p->string_bytes + p->string_count * (sizeof *p->strings + INDEX_COST) +
         p->function_count * (sizeof *p->functions + INDEX_COST) +
         p->frame_count * (sizeof *p->frames + INDEX_COST) +
         p->stack_count * (sizeof *p->stacks + INDEX_COST) + p->label_count * sizeof *p->labels +
         p->label_set_count * (sizeof *p->label_sets + INDEX_COST) +
         p->sample_count * (sizeof *p->samples + INDEX_COST);
}
