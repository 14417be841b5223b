/* SPDX-License-Identifier: MIT */
/* Processes of the ptrace engine; see watched.h. */
#include "attach/watched.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "attach/clock.h"
#include "profile/mem.h"

enum { MAPS_EVERY_NS = 50 * 1000000 }; /* reading them costs more than a sample */

static int open_file(pid_t pid, const char *name, char path[64]) {
  snprintf(path, 64, "/proc/%d/%s", (int)pid, name);
  return open(path, O_RDONLY | O_CLOEXEC);
}

watched_t *watched_open(pid_t pid, bool quick, failure_t *failure) {
  char path[64];
  watched_t *w = mem_alloc(sizeof *w);
  if (w == NULL) {
    failure_set(failure, "out of memory");
    return NULL;
  }
  w->pid = pid;
  w->has_clock = clock_getcpuclockid(pid, &w->clock) == 0;
  w->call_fd = quick ? open_file(pid, "syscall", path) : -1;
  w->stat_fd = open_file(pid, "stat", path);
  if (w->stat_fd >= 0) return w;
  failure_set(failure, "cannot open %s: %s", path, strerror(errno));
  watched_close(w);
  return NULL;
}

static void forget_maps(watched_t *w) {
  mem_free(w->images);
  mem_free(w->stacks);
  w->images = w->stacks = NULL;
  w->image_count = w->stack_count = 0;
  w->main_stack_end = 0;
}

void watched_close(watched_t *w) {
  if (w == NULL) return;
  forget_maps(w);
  if (w->stat_fd >= 0) close(w->stat_fd);
  if (w->call_fd >= 0) close(w->call_fd);
  mem_free(w);
}

/* -- what it does -------------------------------------------------------------------------------------------------- */

bool watched_runs(const watched_t *w) {
  static const char running[] = "running\n";
  char text[sizeof running - 1];
  return w->call_fd >= 0 && pread(w->call_fd, text, sizeof text, 0) == (ssize_t)sizeof text &&
         memcmp(text, running, sizeof text) == 0;
}

bool watched_cpu(const watched_t *w, int64_t *ns) {
  struct timespec used;
  if (!w->has_clock || clock_gettime(w->clock, &used) != 0) return false;
  *ns = (int64_t)used.tv_sec * 1000000000 + used.tv_nsec;
  return true;
}

/* -- maps -------------------------------------------------------------------------------------------------------- */

static void take_stacks(watched_t *w, const maps_t *maps) {
  w->stacks = mem_alloc(maps->count * sizeof *w->stacks + 1);
  for (size_t i = 0; w->stacks != NULL && i < maps->count; i++) {
    const map_t *map = &maps->maps[i];
    if (!map->readable || !map->writable) continue;
    w->stacks[w->stack_count++] = (walk_range_t){map->start, map->end};
    if (strcmp(map->path, "[stack]") == 0) w->main_stack_end = map->end;
  }
}

/* What is not known of a process only costs time: a failure needs no words. */
static void look_at_maps(watched_t *w) {
  maps_t maps = {NULL, 0, NULL};
  failure_t ignored;
  w->looked_at_maps = clock_now();
  forget_maps(w);
  if (!maps_read(&maps, w->pid, &ignored)) return;
  w->images = maps_images(&maps, &w->image_count);
  take_stacks(w, &maps);
  maps_free(&maps);
}

static uint64_t end_of_stack(const watched_t *w, uint64_t sp) {
  uint32_t low = 0, high = w->stack_count;
  while (low < high) {
    uint32_t middle = low + (high - low) / 2;
    if (sp >= w->stacks[middle].end)
      low = middle + 1;
    else
      high = middle;
  }
  return low < w->stack_count && sp >= w->stacks[low].start ? w->stacks[low].end : 0;
}

void watched_aim(watched_t *w, walk_t *walk, const walk_registers_t *registers) {
  uint64_t end = end_of_stack(w, registers->sp);
  if (end == 0 && clock_now() - w->looked_at_maps > MAPS_EVERY_NS) {
    look_at_maps(w);
    end = end_of_stack(w, registers->sp);
  }
  walk->registers = *registers;
  walk->images = w->images;
  walk->image_count = w->image_count;
  walk->stack_high = end != 0 ? end : registers->sp + WALK_SCAN_BYTES; /* what is not there is not read */
  walk->stack_known = end != 0 && end == w->main_stack_end;            /* others may have heap right above */
}

/* -- Luas ---------------------------------------------------------------------------------------------------------- */

static void take_lua(watched_lua_t *lua, const runtime_t *runtime, size_t index) {
  *lua = (watched_lua_t){.layout = *runtime->layout,
                         .index = (uint32_t)index,
                         .vm_low = runtime->vm_low,
                         .vm_high = runtime->vm_high};
  for (size_t i = 0; i < runtime->vms->count && lua->hint_count < WATCHED_HINTS; i++)
    lua->hints[lua->hint_count++] = runtime->vms->vms[i];
}

bool watched_set(watched_t *w, const runtimes_t *runtimes, failure_t *failure) {
  process_stat_t stat;
  if (!process_stat_at(&stat, w->stat_fd)) return failure_set(failure, "process %d has ended", (int)w->pid);
  w->space = stat.space;
  w->lua_count = 0;
  for (size_t i = 0; i < runtimes->count; i++)
    if (runtimes->runtimes[i].layout != NULL) take_lua(&w->luas[w->lua_count++], &runtimes->runtimes[i], i);
  look_at_maps(w);
  return true;
}
