/* SPDX-License-Identifier: MIT */
/* A recording: processes, an engine that samples them, and the profile that comes of it.
 *
 * Mental model. A process is a target from when it is told until it ends. It is looked into first; while no Lua is found in it (a
 * program that has just begun has none) it is looked into again, at growing distances. When it calls exec, that begins anew. What happens
 * to targets is said to who asked for it; samples of targets that have ended stay. Memory is bounded: stacks for which there is no room are
 * counted under [overflow]. */
#ifndef LUAPULSE_ATTACH_RECORDER_H
#define LUAPULSE_ATTACH_RECORDER_H

#include "attach/engine.h"
#include "profile/profile.h"

enum { RECORDER_TARGETS = 512 /* at once */ };

typedef struct {
  uint32_t hz;
  bool follow;      /* children of targets are targets */
  bool all;         /* every process with a Lua in it is one, also those that begin later */
  bool started;     /* targets were started for the recording, and may be held until the engine is ready */
  bool counts_only; /* no profile is wanted: nothing is read to name functions */
  /* Layouts of Luas that are not known, as in runtime_options_t. `layout` chooses one for a process by what it says it has; NULL: none. */
  bool (*layout)(void *context, const idents_t *idents, layout_t *layout, failure_t *failure);
  const layout_t *(*from_debug)(const char *path, layout_t *room, failure_t *why_not);
  /* Told of what happens to targets, one line without its end. `failed`: it is not, or no more, recorded. */
  void (*say)(void *context, bool failed, const char *text);
  void *context;
} recorder_options_t;

/* What a thread was at when it was sampled. */
typedef enum {
  DOING_INTERPRETER, /* PUC Lua: a Lua function was innermost, and where it is not told, the collector */
  DOING_COMPILED,    /* LuaJIT: a trace, or leaving one */
  DOING_GC,          /* of PUC Lua only where it is told (see collector.h) and counts alone are wanted */
  DOING_C,           /* a C function was innermost */
  DOING_COMPILER,    /* LuaJIT's own work on traces */
  DOING_KERNEL,      /* engine bpf; ptrace cannot tell */
  DOING_OUTSIDE,     /* no Lua was on its stack, or none that could be read */
  DOING_KINDS
} doing_t;

typedef struct {
  uint64_t samples;
  uint64_t doing[DOING_KINDS];    /* ns of CPU time that samples stand for */
  uint64_t unattributed, unknown; /* all; of these those of programs that were not looked into yet */
  uint64_t reasons[WALK_REASONS]; /* of the others */
  uint64_t gone, truncated, overflow, lost;
  size_t collectors; /* targets of which the VM or symbols tell when the collector of PUC Lua is at work */
  size_t targets, sampled; /* now; in how many a Lua was found */
  size_t waiting;   /* that were not looked into yet, or will be again: none of their Luas was found so far */
  uint64_t found;   /* targets in which a Lua was found, ever */
  uint64_t failed;  /* targets that were added, and gone or given up before one was found */
  uint64_t looked;  /* targets that were looked into, whatever was found, ever … */
  uint64_t refused; /* … and of those that were added, such as could not be when that was said */
  engine_counts_t engine;
} recorder_counts_t;

typedef struct recorder recorder_t;

/* The engine is the caller's, and must live as long. NULL when memory is out. */
recorder_t *recorder_new(engine_t *engine, const recorder_options_t *options);
void recorder_free(recorder_t *recorder);

/* Adds a process. `stays`: it is waited for as long as it lives, for it may become a program with Lua; else for a moment. False when it can
 * be no target, with the reason. That no Lua is in it is found out later, and said. */
bool recorder_add(recorder_t *recorder, pid_t pid, bool stays, failure_t *failure);
/* Takes samples for at most so long, less when a signal arrives. */
bool recorder_poll(recorder_t *recorder, int milliseconds, failure_t *failure);
/* No more samples are wanted: what was too much to be taken is counted as lost. */
void recorder_end(recorder_t *recorder);
void recorder_counts(recorder_t *recorder, recorder_counts_t *counts);
/* Calls `each` for every target in which a Lua was found: it may be read, and held for a moment, until `each` returns. False when memory
 * is out. */
typedef void recorder_each_t(void *context, target_t *target, const runtimes_t *runtimes);
bool recorder_visit(recorder_t *recorder, recorder_each_t *each, void *context);
/* What was sampled since the last window, or the beginning; the caller's from now on. The next window begins, with what is known of names.
 * Losses are told by recorder_counts(). NULL when memory is out. */
profile_t *recorder_window(recorder_t *recorder);
/* The profile so far, whole with comments and losses; the caller's from now on. The recorder can only be freed then. NULL when memory is
 * out. */
profile_t *recorder_finish(recorder_t *recorder);

#endif
