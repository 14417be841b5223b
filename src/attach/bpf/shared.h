/* SPDX-License-Identifier: MIT */
/* What the program in the kernel and its loader tell each other. A sample is the end of walk_t, from `origin` on. */
#ifndef LUAPULSE_ATTACH_BPF_SHARED_H
#define LUAPULSE_ATTACH_BPF_SHARED_H

#include "walk/registers.h"

enum {
  BPF_RUNTIMES = 4,           /* Luas of one process */
  BPF_UNKNOWN = WALK_REASONS, /* a reason: nothing was walked, the address space is no target */
  BPF_RING_BYTES = 16 << 20,  /* room for samples that were not read yet */
  BPF_MAX_TARGETS = 1024,     /* processes: those recorded at once, and more */
  BPF_MAX_THREADS = 16384     /* whose last walk is remembered */
};

/* A process. Written by the loader, but for `space`, `others` and `pc_register`. */
typedef struct {
  uint64_t space; /* that of its first sample; see walk_origin_t */
  uint64_t vm_low, vm_high;
  uint64_t global; /* a VM of it, 0: none is known */
  uint64_t others; /* it has, or may have, more VMs than that; the program sets it when it sees one */
  walk_range_t images[WALK_NEAR_IMAGES];
  walk_pc_register_t pc_register; /* as walk_t has it */
  uint32_t runtime_count;
  uint32_t walkers[BPF_RUNTIMES]; /* the program for each of its runtimes, by its place in `walkers` */
} bpf_target_t;

/* The mapping that a stack pointer was in. */
typedef struct {
  uint64_t low, high;
  uint64_t known; /* 1: it is that of the process's first thread, and nothing else is in it */
} bpf_stack_t;

/* What the last walk of a thread tells the next. */
typedef struct {
  uint64_t global, main, state;
  bpf_stack_t stack;
  uint64_t period_turn; /* as it was */
  uint64_t time;        /* CLOCK_MONOTONIC, ns */
  uint64_t switches;    /* to other threads, until then */
  uint64_t ran;         /* CPU time that the kernel had counted by then, ns */
  uint64_t left_out;    /* ns of CPU time since then, of ticks beyond those that were asked for … */
  uint64_t gap;         /* … and how far apart two samples are to be this time */
  uint64_t walks;
  uint64_t barren[WALK_BARREN]; /* as walk_t has it */
} bpf_thread_t;

/* The gap between the ticks of a thread that has an event of its own; written by the loader. */
typedef struct {
  uint64_t now, before; /* ns of CPU time; at first a part of one, and the whole */
  uint64_t turn;        /* how often it was changed */
  uint64_t ticks;       /* since then; counted by the program */
} bpf_period_t;

#endif
