/* SPDX-License-Identifier: MIT */
/* Which sites of a heap profile leak, judged by the ages of what is live.
 *
 * Mental model. A block's age is the number of collections it survived. Where memory leaks, something is left of every age there has
 * been, from the newest up to the age of the session. The others look different: data that was loaded once and kept is of one age; of a
 * cache that is cleared or turned over nothing is old, or less the older; what is simply in use now has no age. So the live bytes of
 * each site are spread over classes of age (1, 2-3, 4-7, 8-15 … collections), and a site grows when
 *
 *   1. its oldest are about as old as half the session, and as old as the caller asks for;
 *   2. of four bands of age, which are the oldest class, the two below it, and all younger ones, at most one is empty, and that one
 *      only if fewer than EXPECTED samples would be in it at a steady rate: profiles are samples, and few of them prove nothing;
 *   3. it is not turned over: the two older bands have at least an eighth of the bytes per collection that the third has, or what is
 *      live is too young for its share of all that was allocated there. The latter is what fast leaks look like: Lua collects when the
 *      heap has grown by a factor, so that each collection finds more than the last one.
 *
 * A cache that is not full yet looks like a leak; nothing in a profile tells them apart. */
#ifndef LUAPULSE_PROFILE_LEAK_H
#define LUAPULSE_PROFILE_LEAK_H

#include "profile/failure.h"
#include "profile/profile.h"

enum {
  LEAK_CLASSES = 24
}; /* 0: survived none; i: at least 2^(i-1) collections and, but for the last, less than twice as many */

typedef enum {
  LEAK_GROWING, /* survivors of all ages, up to about that of the session */
  LEAK_KEPT,    /* old ones, and few younger: loaded once and kept */
  LEAK_RECENT,  /* nothing old, or less the older: a cache that is turned over, or what came later */
  LEAK_NEW,     /* nothing has survived a collection */
  LEAK_VERDICTS
} leak_verdict_t;

typedef enum {
  LEAK_BY_LINE, /* a site is the line of Lua at the leaf, with the C function it called if there is one */
  LEAK_BY_PATH, /* a site is a whole call path */
} leak_by_t;

typedef struct {
  uint32_t leaf; /* frame where it was allocated */
  uint32_t lua;  /* frame: the leaf, or when that is C the nearest of Lua; PROFILE_NONE when there is none */
  uint32_t path; /* stack: of its paths, the one with the most bytes that survived */
  int64_t bytes[LEAK_CLASSES], objects[LEAK_CLASSES]; /* by class of age */
  int64_t live, live_objects;                         /* of all ages */
  int64_t allocated;                                  /* bytes, all that was; 0 when not known */
  int64_t survived;                                   /* bytes that survived a collection or more */
  unsigned oldest;                                    /* class */
  leak_verdict_t verdict;
} leak_site_t;

typedef struct {
  const profile_t *profile; /* the caller's; must outlive this */
  leak_site_t *sites;       /* those with live bytes: by verdict, then by what survived */
  size_t count, room;
  bool has_objects;       /* else the numbers of objects are 0 */
  bool cycles_told;       /* else as many as the oldest block has survived, at least */
  int64_t cycles;         /* collections while profiling */
  unsigned classes;       /* there are ages of 0 .. classes - 1 */
  int64_t live, survived; /* bytes of all sites */
  int64_t live_objects;
} leaks_t;

/* Blocks must have survived `min_cycles` collections (1 or more) to be old. NULL when the profile cannot tell of leaks, with the
 * reason, or when memory is out. */
leaks_t *leak_find(const profile_t *p, leak_by_t by, int64_t min_cycles, failure_t *failure);
void leak_free(leaks_t *leaks);

/* The least age of a class, in collections. */
int64_t leak_class_age(unsigned class);

#endif
