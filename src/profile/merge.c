/* SPDX-License-Identifier: MIT */
/* Adding one profile to another, or taking it away. */
#include <string.h>

#include "profile/mem.h"
#include "profile/trace_values.h"

static uint32_t copy_string(profile_t *into, const profile_t *from, uint32_t string) {
  text_t text = profile_text(from, string);
  return profile_string(into, text.data, text.len);
}

static bool same_text(text_t a, text_t b) {
  return a.len == b.len && memcmp(a.data, b.data, a.len) == 0;
}

static bool same_types(const profile_t *a, const profile_t *b) {
  if (a->type_count != b->type_count) return false;
  for (size_t i = 0; i < a->type_count; i++)
    if (!same_text(profile_text(a, a->types[i].type), profile_text(b, b->types[i].type)) ||
        !same_text(profile_text(a, a->types[i].unit), profile_text(b, b->types[i].unit)))
      return false;
  return true;
}

static void copy_head(profile_t *into, const profile_t *from) {
  for (size_t i = 0; i < from->type_count; i++)
    into->types[i] = (profile_type_t){copy_string(into, from, from->types[i].type),
                                      copy_string(into, from, from->types[i].unit)};
  into->type_count = from->type_count;
  into->default_type = from->default_type;
  into->period_type = (profile_type_t){copy_string(into, from, from->period_type.type),
                                       copy_string(into, from, from->period_type.unit)};
  into->period = from->period;
  into->time_nanos = from->time_nanos;
  into->program = copy_string(into, from, from->program);
  for (size_t i = 0; i < from->comment_count; i++)
    profile_add_comment(into, copy_string(into, from, from->comments[i]));
}

static uint32_t copy_frame(profile_t *into, const profile_t *from, uint32_t frame) {
  const profile_function_t *f = &from->functions[from->frames[frame].function];
  profile_function_t function = {copy_string(into, from, f->name), copy_string(into, from, f->system_name),
                                 copy_string(into, from, f->file), f->start_line};
  return profile_frame(into, profile_function(into, function), from->frames[frame].line);
}

static uint32_t copy_label_set(profile_t *into, const profile_t *from, uint32_t set) {
  profile_label_set_t span = from->label_sets[set];
  if (span.count == 0) return 0;
  profile_label_t *labels = mem_alloc(span.count * sizeof *labels);
  if (labels == NULL) {
    into->failed = true;
    return PROFILE_NONE;
  }
  for (size_t i = 0; i < span.count; i++) {
    const profile_label_t *label = &from->labels[span.first + i];
    labels[i] = (profile_label_t){copy_string(into, from, label->key), copy_string(into, from, label->str),
                                  label->num, copy_string(into, from, label->num_unit)};
  }
  uint32_t copy = profile_label_set(into, labels, span.count);
  mem_free(labels);
  return copy;
}

/* Negation as unsigned: a hostile file may hold the one number that has no negative. */
static int64_t signed_value(int64_t value, int sign) {
  return sign < 0 ? (int64_t)(0 - (uint64_t)value) : value;
}

/* From's stack -> into's, for stacks that samples have and those above; 0 for others. Parents come first. NULL when memory is out. */
static uint32_t *copy_stacks(profile_t *into, const profile_t *from) {
  uint32_t *stacks = mem_alloc(from->stack_count * sizeof *stacks);
  if (stacks == NULL) return NULL;
  for (size_t i = 0; i < from->sample_count; i++)
    for (uint32_t at = from->samples[i].stack; at != 0 && stacks[at] == 0; at = from->stacks[at].parent)
      stacks[at] = 1; /* wanted */
  for (size_t i = 1; i < from->stack_count && !into->failed; i++)
    if (stacks[i] != 0)
      stacks[i] =
          profile_stack(into, stacks[from->stacks[i].parent], copy_frame(into, from, from->stacks[i].frame));
  return stacks;
}

bool profile_merge(profile_t *into, const profile_t *from, int sign) {
  if (into->type_count == 0)
    copy_head(into, from);
  else if (!same_types(into, from))
    return false;

  uint32_t *stacks = copy_stacks(into, from);
  if (stacks == NULL) into->failed = true;
  for (size_t i = 0; i < from->sample_count && !into->failed; i++) {
    const profile_sample_t *sample = &from->samples[i];
    int64_t values[PROFILE_MAX_TYPES] = {0};
    for (size_t t = 0; t < from->type_count; t++) values[t] = signed_value(sample->values[t], sign);
    if (sign < 0 && from->traced)
      values[TRACE_MIN] = values[TRACE_MAX] = 0; /* what is left has no extremes */
    profile_add(into, stacks[sample->stack], copy_label_set(into, from, sample->labels), values);
  }
  for (int reason = 0; reason < LOSS_COUNT; reason++)
    into->losses[reason] += sign < 0 ? -from->losses[reason] : from->losses[reason];
  into->duration_nanos =
      (int64_t)((uint64_t)into->duration_nanos + (uint64_t)signed_value(from->duration_nanos, sign));
  mem_free(stacks);
  return true; /* memory failures are sticky in `into` */
}
