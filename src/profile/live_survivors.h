/* SPDX-License-Identifier: MIT */
/* What of a live profile's heap has survived collections: blocks in use, by site and by how many they survived, in classes
 * of 1, 2 to 3, 4 to 7 … For readers: the region may be corrupt or being written. */
#ifndef LUAPULSE_PROFILE_LIVE_SURVIVORS_H
#define LUAPULSE_PROFILE_LIVE_SURVIVORS_H

#include "profile/live.h"

enum { SURVIVOR_CLASSES = 32 };

typedef struct {
  live_ref_t site; /* 0: free */
  uint32_t class;  /* SURVIVOR_CLASSES: the classes the site has, as bits, in objects */
  uint64_t objects, bytes;
} survivor_t;

typedef struct {
  survivor_t *slots;
  size_t room, used;
} survivors_t;

/* Sums up the blocks of the region. False when memory is out, or *corrupt is set. */
bool survivors_read(survivors_t *survivors, const live_header_t *header, uint64_t size, bool *corrupt);
void survivors_free(survivors_t *survivors);
/* What of the site has survived 2^class collections or more, but less than twice as many; NULL: nothing. */
const survivor_t *survivors_find(const survivors_t *survivors, live_ref_t site, uint32_t class);

#endif
