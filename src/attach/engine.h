/* SPDX-License-Identifier: MIT */
/* How stacks of running processes are sampled from outside: by a program in the kernel (BPF), or by stopping threads for a
 * moment (ptrace). Both walk with src/walk, and hand over what it found.
 *
 * Mental model. An engine has targets: address spaces whose runtimes are known. Each thread of a target is sampled once per
 * period of its CPU time, on the average; gaps vary, so that no program can keep in step. engine_poll() waits and hands out the
 * samples. A sample of an address space that is no target (it has called exec, or is a child that is followed) is handed out too,
 * without frames: whoever polls decides whether to add it. For one thread. */
#ifndef LUAPULSE_ATTACH_ENGINE_H
#define LUAPULSE_ATTACH_ENGINE_H

#include "attach/runtime.h"

typedef struct {
  walk_origin_t origin;
  walk_vmstate_t vmstate;
  uint32_t trace;
  bool truncated;
  bool unknown; /* the address space is no target yet: nothing was walked */
  bool held;    /* its thread stands still: the process has not ended */
  uint32_t frame_count;
  const walk_frame_t *frames; /* leaf first; for the call only */
} engine_sample_t;

/* Told of a sample. The ptrace engine holds the thread meanwhile, so that what its stack leads to can be read as it was: no more than
 * that is to be done. Targets must not be added or removed from here. */
typedef void engine_take_t(void *context, const engine_sample_t *sample);

typedef struct {
  uint32_t hz;
  bool
      follow; /* forked children are handed out, too, as unknown; those of unwatched parents the recorder looks for itself */
  whose_t whose; /* for messages */
} engine_options_t;

typedef struct {
  uint64_t lost;   /* samples for which there was no room */
  uint64_t late;   /* ptrace: ticks that came while the last was being done */
  uint64_t missed; /* ptrace: threads that could not be stopped: another tracer, uninterruptible sleep */
  uint64_t stops, stopped_ns; /* ptrace: threads that were stopped, and for how long, all together */
  uint64_t bpf_ns,
      bpf_runs;      /* BPF: what the kernel measured (kernel.bpf_stats_enabled), 0 when it does not */
  uint32_t verified; /* BPF: instructions the verifier went through */
} engine_counts_t;

typedef struct engine engine_t;
struct engine {
  const char *name; /* "bpf", "ptrace" */
  /* Ticks a process in which no Lua is known, for its children that are followed: they are met by their first tick. NULL: has none. */
  bool (*watch)(engine_t *engine, pid_t pid, failure_t *failure);
  /* What takes long of adding processes with these runtimes: they may run meanwhile. NULL: nothing does. */
  bool (*prepare)(engine_t *engine, const runtimes_t *runtimes, failure_t *failure);
  /* Samples the process, which is held, from now on, or with a new address space goes on with it. The runtimes are copied. */
  bool (*add)(engine_t *engine, const target_t *held, const runtimes_t *runtimes, failure_t *failure);
  void (*remove)(engine_t *engine, pid_t pid);
  /* Hands out what there is, waiting for it at most so long; after the samples of one tick it comes back sooner. */
  bool (*poll)(engine_t *engine, int milliseconds, engine_take_t *take, void *context, failure_t *failure);
  /* No more is asked for: samples that a poll has left because they were too many are lost, and counted. NULL: there are none. */
  void (*end)(engine_t *engine);
  void (*counts)(engine_t *engine, engine_counts_t *counts);
  void (*close)(engine_t *engine);
};

/* NULL with a message: what is missing, and what to do. */
engine_t *engine_bpf_open(const engine_options_t *options, failure_t *failure);
engine_t *engine_ptrace_open(const engine_options_t *options, failure_t *failure);

#endif
