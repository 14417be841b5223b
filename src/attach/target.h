/* SPDX-License-Identifier: MIT */
/* A process that is looked into from outside: its maps, its memory, what Luas it says it has; held still while it is walked.
 *
 * target_open, then any number of target_hold … target_release, then target_close. Between hold and release nothing in the
 * process moves. */
#ifndef LUAPULSE_ATTACH_TARGET_H
#define LUAPULSE_ATTACH_TARGET_H

#include "attach/ident.h"
#include "attach/maps.h"
#include "attach/process.h"
#include "attach/remote.h"
#include "attach/stopped.h"

typedef struct {
  process_t process;
  remote_t *remote;
  walk_t *walk;
  maps_t maps;
  walk_range_t *images; /* programs and libraries */
  uint32_t image_count;
  idents_t idents;
  stopped_t stopped;
  int64_t held_ns; /* by all holds that are over */
  bool borrows;    /* remote and walk are somebody else's */
} target_t;

/* Looks at the process and through its constant data; it runs on meanwhile. False with a message that says what to do. */
bool target_open(target_t *target, pid_t pid, failure_t *failure);
void target_close(target_t *target);

/* Reads its maps anew, as it runs or is held. */
bool target_map(target_t *target, failure_t *failure);
/* Stops the process and reads its maps anew. */
bool target_hold(target_t *target, failure_t *failure);
void target_release(target_t *target);
/* How long it was held, by all holds together, in milliseconds. */
double target_held_ms(const target_t *target);

/* For who keeps many targets: gives back the buffers that memory is read through, which are large; and lends it some for the next
 * look, until the next target_rest(). */
void target_rest(target_t *target);
void target_lend(target_t *target, remote_t *remote, walk_t *walk);

/* Makes target->walk ready for a thread, or with NULL for coroutines that do not run. */
void target_aim(target_t *target, const layout_t *layout, const stopped_thread_t *thread);

#endif
