/* SPDX-License-Identifier: MIT */
/* A profile that rolls on, for who looks on: what was sampled in the last window, of late, and since the beginning.
 *
 * Mental model. Windows come one after the other. The profile has three sample types, each in the unit of the windows': `now` is the last
 * window, `recent` a sum in which a window counts for less the longer ago it was (by half in 3.5 seconds), `all` the sum. What a type
 * is worth per second is its value divided by its seconds. Labels are left out. Memory is bounded: when there is too much, stacks that
 * have not been seen for long are told as "[older]". Pure C. */
#ifndef LUAPULSE_PROFILE_ROLLING_H
#define LUAPULSE_PROFILE_ROLLING_H

#include "profile/profile.h"

typedef enum { ROLLING_NOW, ROLLING_RECENT, ROLLING_ALL, ROLLING_TYPES } rolling_type_t;

typedef struct {
  profile_t *profile; /* the sample types are as in rolling_type_t */
  double seconds[ROLLING_TYPES];
  size_t most_bytes;
} rolling_t;

/* False when memory is out, as below. */
bool rolling_begin(rolling_t *rolling, size_t most_bytes);
void rolling_end(rolling_t *rolling);
/* As it was at the beginning. */
bool rolling_reset(rolling_t *rolling);
/* Adds a window of so many seconds by its default sample type, and frees it. */
bool rolling_add(rolling_t *rolling, profile_t *window, double seconds);

#endif
