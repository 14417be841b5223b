/* SPDX-License-Identifier: MIT */
/* Processes that begin while one looks on, by looking through /proc again and again: not every kernel tells the children of a process.
 *
 * Limit: one that begins and ends between two looks is not seen, nor is one whose parent ends before it is seen. */
#ifndef LUAPULSE_ATTACH_CHILDREN_H
#define LUAPULSE_ATTACH_CHILDREN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

typedef struct {
  pid_t *seen; /* sorted */
  size_t count, room;
  int64_t due; /* CLOCK_MONOTONIC, ns: when to look again */
} children_t;

typedef void children_each_t(void *context, pid_t child, pid_t parent);

/* Tells of each process that was not there at the last look; the first look tells of all. Does nothing until it is due: some
 * milliseconds after the last look, more where there are so many processes that it takes long. */
void children_look(children_t *children, children_each_t *each, void *context);
void children_free(children_t *children);

#endif
