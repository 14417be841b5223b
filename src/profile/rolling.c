/* SPDX-License-Identifier: MIT */
/* Windows into one profile; see rolling.h. */
#include "profile/rolling.h"

#include <math.h>

static const double FADING_SECONDS = 5; /* in which a window comes to count for 1/e */

bool rolling_reset(rolling_t *r) {
  profile_free(r->profile);
  *r = (rolling_t){.profile = profile_new(), .most_bytes = r->most_bytes};
  return r->profile != NULL;
}

bool rolling_begin(rolling_t *r, size_t most_bytes) {
  *r = (rolling_t){.most_bytes = most_bytes};
  return rolling_reset(r);
}

void rolling_end(rolling_t *r) {
  profile_free(r->profile);
  r->profile = NULL;
}

/* Gives a window the sample types of the profile, and takes its labels off. */
static void retype(profile_t *window) {
  static const char *const names[ROLLING_TYPES] = {"now", "recent", "all"};
  size_t type = window->default_type;
  uint32_t unit = window->types[type].unit;
  for (size_t i = 0; i < window->sample_count; i++) {
    profile_sample_t *sample = &window->samples[i];
    int64_t value = sample->values[type];
    sample->labels = 0;
    for (size_t t = 0; t < ROLLING_TYPES; t++) sample->values[t] = value;
  }
  for (size_t t = 0; t < ROLLING_TYPES; t++)
    window->types[t] = (profile_type_t){profile_cstring(window, names[t]), unit};
  window->type_count = ROLLING_TYPES;
  window->default_type = ROLLING_RECENT;
}

static void fade(rolling_t *r, double seconds) {
  double left = exp(-seconds / FADING_SECONDS);
  profile_t *p = r->profile;
  for (size_t i = 0; i < p->sample_count; i++) {
    int64_t *values = p->samples[i].values;
    values[ROLLING_NOW] = 0;
    values[ROLLING_RECENT] = (int64_t)((double)values[ROLLING_RECENT] * left);
  }
  r->seconds[ROLLING_NOW] = seconds;
  r->seconds[ROLLING_RECENT] = r->seconds[ROLLING_RECENT] * left + seconds;
  r->seconds[ROLLING_ALL] += seconds;
}

/* Takes out the samples that had less of late; what they had in all. */
static int64_t take_out_older(profile_t *p, int64_t least) {
  int64_t older = 0;
  size_t kept = 0;
  for (size_t i = 0; i < p->sample_count; i++)
    if (p->samples[i].values[ROLLING_RECENT] < least)
      older += p->samples[i].values[ROLLING_ALL];
    else
      p->samples[kept++] = p->samples[i];
  p->sample_count = kept;
  return older;
}

/* Begins anew with what had at least so much of late, and the rest as one. */
static bool keep(rolling_t *r, int64_t least) {
  int64_t values[PROFILE_MAX_TYPES] = {[ROLLING_ALL] = take_out_older(r->profile, least)};
  profile_t *p = profile_new();
  if (p == NULL) return false;
  profile_merge(p, r->profile, 1);
  uint32_t name = profile_cstring(p, "[older]");
  uint32_t function = profile_function(p, (profile_function_t){name, name, 0, 0});
  profile_add(p, profile_stack(p, 0, profile_frame(p, function, 0)), 0, values);
  profile_free(r->profile);
  r->profile = p;
  return profile_ok(p);
}

bool rolling_add(rolling_t *r, profile_t *window, double seconds) {
  retype(window);
  fade(r, seconds);
  bool ok = profile_ok(window) && profile_merge(r->profile, window, 1) && profile_ok(r->profile);
  profile_free(window);
  if (!ok || profile_bytes(r->profile) <= r->most_bytes) return ok;
  ok = keep(r, r->profile->period / 100 + 1);
  return ok && profile_bytes(r->profile) > r->most_bytes / 2 ? keep(r, INT64_MAX) : ok;
}
