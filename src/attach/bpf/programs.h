/* SPDX-License-Identifier: MIT */
/* The programs in the kernel: the one that ticks run, and a walker for each layout that is wanted, loaded when it is. */
#ifndef LUAPULSE_ATTACH_BPF_PROGRAMS_H
#define LUAPULSE_ATTACH_BPF_PROGRAMS_H

#include "attach/bpf/shared.h"
#include "attach/process.h"

typedef struct programs programs_t;

/* Whether the kernel has bpf_loop, which the programs cannot do without: by its own answer, for distributions take what is new into old
 * kernels, and a version can be made up. LOOP_UNKNOWN: it does not answer, since BPF is missing or not permitted. */
typedef enum { LOOP_UNKNOWN, LOOP_MISSING, LOOP_THERE } loop_t;
loop_t programs_loop(void);

/* What ticks run is loaded. Threads are to have `hz` samples a second of their CPU time. `whose` processes are sampled is for messages. NULL with
 * one that says what is missing. */
programs_t *programs_open(uint32_t hz, whose_t whose, failure_t *failure);
void programs_close(programs_t *programs);

/* What a walker is for. */
typedef struct {
  layout_t layout;
  uint32_t turn;    /* among those of a process */
  uint32_t runtime; /* as samples tell it */
} walker_kind_t;

/* The walker of a kind: its place for bpf_target_t.walkers. */
bool programs_walker(programs_t *programs, const walker_kind_t *kind, uint32_t *place, failure_t *failure);

int programs_tick_fd(const programs_t *programs);
int programs_samples_fd(const programs_t *programs); /* the ring */
bool programs_set_target(programs_t *programs, uint32_t pid, const bpf_target_t *target);
void programs_drop_target(programs_t *programs, uint32_t pid);
/* Of a thread with an event of its own: the first, a part of one, and whenever it is to be changed. False: it stays, there were too few
 * ticks since the last change. */
void programs_first_period(programs_t *programs, uint32_t tid, uint64_t part, uint64_t whole);
bool programs_next_period(programs_t *programs, uint32_t tid, uint64_t period);
void programs_drop_period(programs_t *programs, uint32_t tid);

uint64_t programs_lost(programs_t *programs);
/* What the kernel counted where kernel.bpf_stats_enabled is set, and the most instructions its verifier went through. */
void programs_costs(programs_t *programs, uint64_t *ns, uint64_t *runs, uint32_t *verified);

#endif
