/* SPDX-License-Identifier: MIT */
/* LuaPulse for C and C++ hosts that embed Lua: profile a VM from inside the program.
 *
 *   luapulse_profile_options_t options;
 *   luapulse_options_init(&options);
 *   if (luapulse_start(L, &options, &error) != 0) complain(error.text);
 *   …
 *   luapulse_profile_t *profile = luapulse_stop(L, &error);
 *   luapulse_profile_write(profile, "app.pb.gz", NULL, &error);
 *   luapulse_profile_free(profile);
 *
 * Rules. Every function is called on the thread that runs the VM, from ordinary code: never from a signal
 * handler, a hook, an allocator or a finalizer. None of them raises a Lua error, prints, aborts or exits.
 * Functions that can fail return 0 or a pointer on success, -1 or NULL otherwise, with a message in *error
 * (which may be NULL). lua_close() at any moment ends the profiling of that VM. */
#ifndef LUAPULSE_H
#define LUAPULSE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LUAPULSE_API __attribute__((visibility("default")))

struct lua_State;

/* What is profiled, and how: each feature has its own mode. */
#define LUAPULSE_FEATURE_CPU 1u
#define LUAPULSE_FEATURE_HEAP 2u

typedef enum {
  LUAPULSE_COLLECTION_SAMPLING, /* statistical: some events, unbiased */
  LUAPULSE_COLLECTION_TRACING   /* every event */
} luapulse_collection_mode_t;

typedef enum {
  LUAPULSE_CLOCK_CPU,          /* CPU time of the thread, by a timer; about free between samples */
  LUAPULSE_CLOCK_INSTRUCTIONS, /* VM instructions, by a count hook: reproducible, no signals, but 20-100 %
                                  slower */
  LUAPULSE_CLOCK_WALL          /* time, also while waiting */
} luapulse_clock_t;

/* How the cpu and wall clocks read stacks. */
typedef enum {
  LUAPULSE_ENGINE_AUTO, /* by walking memory where that was checked to work, else by asking Lua */
  LUAPULSE_ENGINE_WALK, /* in the tick's signal handler, out of memory; start fails where it does not work */
  LUAPULSE_ENGINE_INTERFACE /* by Lua's own interface: a hook that fires once, LuaJIT's profiler */
} luapulse_engine_t;

/* What the heap's inuse values are of. */
typedef enum {
  LUAPULSE_GC_NOW,       /* what is in use now, garbage not yet collected included */
  LUAPULSE_GC_COMPLETED, /* what was in use when the last collection completed */
  LUAPULSE_GC_FORCED     /* now, after a full collection that stop and snapshot run, finalizers included */
} luapulse_gc_t;

typedef struct {
  unsigned features;                    /* LUAPULSE_FEATURE_*, or-ed; default CPU */
  luapulse_collection_mode_t cpu_mode;  /* default sampling */
  luapulse_collection_mode_t heap_mode; /* default sampling */
  luapulse_clock_t cpu_clock;           /* default cpu */
  unsigned cpu_hz;                      /* samples per second of CPU time, 1 to 10000; default 100 */
  unsigned cpu_sample_mean_instr;       /* instructions clock: mean gap between samples; default 20000 */
  unsigned cpu_max_samples_per_sec;     /* instructions clock: at most so many; default 200, 0 is no limit */
  size_t
      heap_sample_mean_bytes; /* one sample in so many bytes, on average; 1: every block; 0: none; default 524288 */
  luapulse_gc_t heap_gc;           /* default now */
  size_t max_memory_bytes;         /* tables of this VM; default 32 MiB */
  size_t max_process_memory_bytes; /* tables of all VMs of the process together; default 64 MiB */
  luapulse_engine_t cpu_engine;    /* default auto */
  const char
      *layout_file;      /* of a Lua that is not known (see luapulse-layout), NULL for none; read by start */
  unsigned trace_events; /* tracing: keep the newest so many calls as a timeline; default 0 */
  const char *
      trace_filter; /* … of functions whose name or file fits one of these patterns, one a line ("parse*\nnet.lua");
                             * NULL: of all; copied by start */
  uint64_t seed; /* of the random gaps, 0 takes one from the system; for reproducible runs */
} luapulse_profile_options_t;

typedef struct {
  char text[512]; /* one line: what was wrong, and what to do */
} luapulse_error_t;

/* Why a stack could not be read from memory; luapulse_reason_name() words them. */
#define LUAPULSE_REASONS 16

typedef struct {
  int running; /* a profile is being taken of this VM */
  int paused;  /* … and rests */
  const char *
      engine; /* how the cpu is sampled: "walk", "hook", "luajit", "count", "trace", "none" (heap alone); "" when not running */
  const char *
      source; /* what ticks now: "perf" (high-resolution events), "timer" (the kernel's tick), ""; tracing's clock: "tsc", "vdso" */
  unsigned cost_ns; /* CPU time a tick takes, a moving average, on the thread that called start */
  unsigned rate;    /* ticks a second that source can give, at most the one asked for */
  /* why the walker does not serve, or the heap is not profiled any more; "" when all does; valid until stop */
  const char *note;
  uint64_t samples;       /* taken so far */
  uint64_t lost_overflow; /* losses so far, by reason */
  uint64_t lost_truncated;
  uint64_t lost_unattributed;
  uint64_t lost_dropped;
  uint64_t lost_rate_limited;
  size_t memory_bytes;                /* in use by the tables of this VM */
  uint64_t rejects[LUAPULSE_REASONS]; /* samples whose stack could not be told, by reason */
} luapulse_status_t;

typedef struct profile luapulse_profile_t;

LUAPULSE_API const char *luapulse_version(void);
/* NULL past the last reason. */
LUAPULSE_API const char *luapulse_reason_name(unsigned reason);

/* The defaults above. Always call it first: later versions add fields. */
LUAPULSE_API void luapulse_options_init(luapulse_profile_options_t *options);

/* Starts profiling the VM of L. Fails when it is being profiled already. options NULL: the defaults. */
LUAPULSE_API int luapulse_start(struct lua_State *L, const luapulse_profile_options_t *options,
                                luapulse_error_t *error);
/* Ends profiling. The profile is the caller's to free. */
LUAPULSE_API luapulse_profile_t *luapulse_stop(struct lua_State *L, luapulse_error_t *error);
/* A copy of what was collected so far, while profiling goes on. */
LUAPULSE_API luapulse_profile_t *luapulse_snapshot(struct lua_State *L, luapulse_error_t *error);
/* What passes and what is allocated between pause and resume is not counted. Both may be called again without harm. */
LUAPULSE_API int luapulse_pause(struct lua_State *L, luapulse_error_t *error);
LUAPULSE_API int luapulse_resume(struct lua_State *L, luapulse_error_t *error);
/* Puts labels on the samples of the coroutine L from now on: `count` pairs of key and value. Count 0 takes
 * them off. */
LUAPULSE_API int luapulse_labels(struct lua_State *L, const char *const *keys, const char *const *values,
                                 size_t count, luapulse_error_t *error);
/* Samples of the heap are taken once in mean_bytes from now on; 1: every block, 0: none until it is changed again. Fails when
 * the heap of this VM is not being sampled. */
LUAPULSE_API int luapulse_heap_rate(struct lua_State *L, size_t mean_bytes, luapulse_error_t *error);
/* What the inuse values of snapshot and stop are of, from now on. Fails when the heap of this VM is not being profiled. */
LUAPULSE_API int luapulse_heap_gc(struct lua_State *L, luapulse_gc_t gc, luapulse_error_t *error);
LUAPULSE_API void luapulse_get_status(struct lua_State *L, luapulse_status_t *status);

/* Writes the file whole or not at all. format NULL: by the extension of path (.pb.gz, .folded,
 * .speedscope.json, .callgrind, .html, .txt, .trace.json). */
LUAPULSE_API int luapulse_profile_write(const luapulse_profile_t *profile, const char *path,
                                        const char *format, luapulse_error_t *error);
LUAPULSE_API void luapulse_profile_free(luapulse_profile_t *profile);

/* The Lua module, for hosts that link the library: luaL_requiref(L, "luapulse", luaopen_luapulse, 0). */
LUAPULSE_API int luaopen_luapulse(struct lua_State *L);

#ifdef __cplusplus
}
#endif

#endif
