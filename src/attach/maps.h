/* SPDX-License-Identifier: MIT */
/* What is mapped in a process: /proc/PID/maps, read once, as it was at that moment. */
#ifndef LUAPULSE_ATTACH_MAPS_H
#define LUAPULSE_ATTACH_MAPS_H

#include <stddef.h>
#include <sys/types.h>

#include "profile/failure.h"
#include "walk/walk.h"

enum { MAPS_MAX = 65536 /* the kernel's own limit, unless it was raised: what is above is not seen */ };

typedef struct {
  uint64_t start, end;
  uint64_t offset; /* in the file */
  uint64_t inode;  /* 0: no file behind it */
  uint32_t device; /* that the file is on */
  bool readable, writable, executable;
  const char *path; /* as the kernel writes it, " (deleted)" included; "" when there is none */
} map_t;

typedef struct {
  map_t *maps; /* sorted */
  size_t count;
  char *text; /* the paths are in it */
} maps_t;

bool maps_read(maps_t *maps, pid_t pid, failure_t *failure);
void maps_free(maps_t *maps);
/* The mapping an address lies in, or NULL. */
const map_t *maps_find(const maps_t *maps, uint64_t address);
bool maps_same_file(const map_t *a, const map_t *b);
/* The first mapping of the file that a mapping is of, which begins its image. */
const map_t *maps_image(const maps_t *maps, const map_t *map);
/* The ranges of programs and libraries, sorted and apart, for walk_t.images. To be freed with mem_free(); NULL when there are none. */
walk_range_t *maps_images(const maps_t *maps, uint32_t *count);

#endif
