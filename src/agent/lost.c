/* SPDX-License-Identifier: MIT */
/* Looking for lost VMs; see lost.h. */
#include "agent/lost.h"

#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "agent/thread_state.h"
#include "agent/time.h"
#include "agent/vm.h"
#include "agent/vm_index.h"
#include "agent/walk_setup.h"
#include "agent/walker.h"

enum {
  THREADS = 64,           /* whose CPU time is remembered; more are seen in turn */
  BUSY_SHARE = 50,        /* a thread is busy when it used 1/50 of the time */
  BARREN_FOR = 1000000000 /* ns a thread on which no VM was found is left alone, at first */
};

typedef struct {
  pid_t tid; /* 0: free */
  uint64_t cpu_time, looked;
  uint64_t barren_until, barren_for;
} watched_t;

static watched_t watched[THREADS];

/* -- which VMs are lost ----------------------------------------------------------------------------------------------- */

static uint64_t read_word(uint64_t address, size_t size) {
  uint64_t word = 0;
  struct iovec local = {&word, size}, remote = {(void *)(uintptr_t)address, size};
  return process_vm_readv(getpid(), &local, 1, &remote, 1, 0) == (ssize_t)size ? word : 0;
}

typedef struct {
  uint64_t place;    /* where on a native stack it runs, 0: not at all, or not to be told */
  uint64_t activity; /* a word that changes while it runs */
} signs_t;

static signs_t signs_of(const vm_t *vm) {
  const layout_t *l = walk_setup_layout();
  if (l->family == LAYOUT_PUC) {
    uint16_t counter = l->puc.global_debt != LAYOUT_ABSENT ? l->puc.global_debt : l->puc.global_total;
    return (signs_t){read_word(vm->main_state + l->puc.state_jump, 8), read_word(vm->global + counter, 8)};
  }
  size_t size = l->luajit.pointer;
  uint64_t current = read_word(vm->global + l->luajit.global_current, size);
  uint64_t cframe = current != 0 ? read_word(current + l->luajit.state_cframe, 8) : 0;
  return (signs_t){cframe & ~(uint64_t)3, read_word(vm->global + l->luajit.global_gc_total, size)};
}

typedef struct {
  unsigned lost, hz;
} search_t;

static void look_at_vm(vm_t *vm, void *context) {
  search_t *search = context;
  uint64_t samples = vm->samples;
  bool sampled = samples != vm->watched_samples;
  vm->watched_samples = samples;
  if (!vm->active || vm->paused || vm->pid != getpid() || (sampled && !vm->wall)) return;
  signs_t signs = signs_of(vm);
  pid_t tid;
  uint64_t high;
  bool changed = signs.activity != vm->watched_activity;
  vm->watched_activity = signs.activity;
  bool lost = signs.place != 0 ? !walker_has_stack(signs.place, &tid, &high) : changed && !sampled;
  if (!lost) return;
  search->lost++;
  if (vm->options.cpu_hz > search->hz) search->hz = vm->options.cpu_hz;
}

/* -- where they may be -------------------------------------------------------------------------------------------------- */

static watched_t *entry_of(pid_t tid) {
  watched_t *oldest = &watched[0];
  for (int i = 0; i < THREADS; i++) {
    if (watched[i].tid == tid) return &watched[i];
    if (watched[i].tid == 0 || watched[i].looked < oldest->looked) oldest = &watched[i];
    if (watched[i].tid == 0) break;
  }
  *oldest =
      (watched_t){.tid = tid, .looked = time_monotonic(), .cpu_time = time_read(time_thread_clock(tid))};
  return oldest;
}

static void look_at_thread(pid_t tid, void *context) {
  const search_t *search = context;
  if (tid == (pid_t)syscall(SYS_gettid) || walker_has_thread(tid)) return;
  watched_t *entry = entry_of(tid);
  uint64_t now = time_monotonic(), cpu_time = time_read(time_thread_clock(tid));
  bool busy = (cpu_time - entry->cpu_time) * BUSY_SHARE > now - entry->looked;
  entry->cpu_time = cpu_time;
  entry->looked = now;
  if (busy && now >= entry->barren_until) walker_adopt(tid, search->hz);
}

static void note_barren(pid_t tid) {
  watched_t *entry = entry_of(tid);
  entry->barren_for = entry->barren_for == 0 ? BARREN_FOR : entry->barren_for * 2;
  entry->barren_until = time_monotonic() + entry->barren_for;
}

void lost_look(void) {
  search_t search = {0};
  walker_give_up(note_barren);
  vm_index_each(&walked_vms, look_at_vm, &search);
  if (search.lost > 0) thread_each(look_at_thread, &search);
}
