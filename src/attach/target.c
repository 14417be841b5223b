/* SPDX-License-Identifier: MIT */
/* Opening a process; see target.h. */
#include "attach/target.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "profile/mem.h"

enum {
  CHUNK = 1 << 16, /* as much as stays in a cache between the copy and the search */
  OVERLAP = 64,
  HOLD_TRIES = 50
};
static const uint64_t most_bytes = (uint64_t)1 << 30; /* of constant data looked through */

/* -- marks ---------------------------------------------------------------------------------------------------- */

static bool is_constant(const map_t *map) {
  return map->inode != 0 && map->readable && !map->writable;
}

/* One mapping, in chunks that overlap so that no mark is cut. False when nothing of it can be read; errno says why. */
static bool search_map(target_t *target, const map_t *map, char *chunk) {
  bool any = false;
  for (uint64_t at = map->start; at < map->end;) {
    size_t wanted = map->end - at < CHUNK ? (size_t)(map->end - at) : CHUNK;
    size_t got = remote_copy(target->remote, chunk, at, wanted);
    if (got == 0) return any;
    any = true;
    ident_search(&target->idents, chunk, got, at, map->path);
    target->idents.bytes += got;
    if (got < wanted || at + got >= map->end) break;
    at += got - OVERLAP;
  }
  return true;
}

/* False when the process may not be read: *error. Files that cannot be paged in are passed over. */
static bool search_marks(target_t *target, int *error) {
  char *chunk = mem_alloc(CHUNK);
  const char *last = "";
  bool permitted = true;
  *error = ENOMEM;
  if (chunk == NULL) return false;
  for (size_t i = 0; i < target->maps.count && permitted; i++) {
    const map_t *map = &target->maps.maps[i];
    if (!is_constant(map)) continue;
    if (target->idents.bytes + (map->end - map->start) > most_bytes) {
      target->idents.cut = true;
      continue;
    }
    if (strcmp(map->path, last) != 0) target->idents.images++;
    last = map->path;
    errno = 0;
    if (!search_map(target, map, chunk) && (errno == EPERM || errno == ESRCH)) {
      *error = errno;
      permitted = false;
    }
  }
  mem_free(chunk);
  ident_settle(&target->idents);
  return permitted;
}

/* -- opening -------------------------------------------------------------------------------------------------- */

bool target_map(target_t *target, failure_t *failure) {
  maps_free(&target->maps);
  mem_free(target->images);
  target->images = NULL;
  target->image_count = 0;
  errno = 0;
  if (!maps_read(&target->maps, target->process.pid, failure)) {
    if (errno == EACCES || errno == EPERM || errno == ESRCH || errno == ENOENT)
      return process_refused(&target->process, errno == ENOENT ? ESRCH : errno, failure);
    return false;
  }
  if (target->maps.count == 0) return process_refused(&target->process, ESRCH, failure);
  target->images = maps_images(&target->maps, &target->image_count);
  return true;
}

bool target_open(target_t *target, pid_t pid, failure_t *failure) {
  int error;
  memset(target, 0, sizeof *target);
  if (!process_look(&target->process, pid, failure)) return false;
  target->remote = mem_alloc(sizeof *target->remote);
  target->walk = mem_alloc(sizeof *target->walk);
  if (target->remote == NULL || target->walk == NULL) {
    target_close(target);
    return failure_set(failure, "out of memory");
  }
  remote_init(target->remote, pid);
  if (!target_map(target, failure)) {
    target_close(target);
    return false;
  }
  if (!search_marks(target, &error)) {
    process_refused(&target->process, error, failure);
    target_close(target);
    return false;
  }
  return true;
}

void target_rest(target_t *target) {
  stopped_free(&target->stopped);
  if (!target->borrows) {
    mem_free(target->remote);
    mem_free(target->walk);
  }
  target->remote = NULL;
  target->walk = NULL;
  target->borrows = false;
}

void target_lend(target_t *target, remote_t *remote, walk_t *walk) {
  target_rest(target);
  target->remote = remote;
  target->walk = walk;
  target->borrows = true;
  remote_init(remote, target->process.pid);
}

void target_close(target_t *target) {
  target_rest(target);
  maps_free(&target->maps);
  mem_free(target->images);
  target->images = NULL;
}

/* Another profiler may hold it just now, for a part of a millisecond: it lets go before long, a debugger does not. */
static bool begin_stop(target_t *target, int *error) {
  static const struct timespec pause = {.tv_nsec = 1000000};
  for (int tries = 1; !stopped_begin(&target->stopped, target->process.pid, error); tries++) {
    if (*error != EPERM || tries == HOLD_TRIES) return false;
    stopped_free(&target->stopped);
    nanosleep(&pause, NULL);
  }
  return true;
}

bool target_hold(target_t *target, failure_t *failure) {
  int error;
  stopped_free(&target->stopped);
  if (!begin_stop(target, &error)) return process_refused(&target->process, error, failure);
  remote_forget(target->remote);
  if (target_map(target, failure)) return true;
  target_release(target);
  return false;
}

void target_release(target_t *target) {
  bool held = target->stopped.since != 0 && target->stopped.until == 0;
  stopped_end(&target->stopped);
  if (held) target->held_ns += target->stopped.until - target->stopped.since;
}

double target_held_ms(const target_t *target) {
  return (double)target->held_ns / 1e6;
}

void target_aim(target_t *target, const layout_t *layout, const stopped_thread_t *thread) {
  walk_t *w = target->walk;
  memset(w, 0, sizeof *w);
  w->layout = layout;
  w->memory = &target->remote->memory;
  w->images = target->images;
  w->image_count = target->image_count;
  if (thread == NULL) return;
  w->registers = thread->registers;
  const map_t *stack = maps_find(&target->maps, thread->registers.sp);
  w->stack_high = stack != NULL ? stack->end : thread->registers.sp;
  w->stack_known =
      stack != NULL && strcmp(stack->path, "[stack]") == 0; /* others may have heap right above */
}
