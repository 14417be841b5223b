/* SPDX-License-Identifier: MIT */
/* Ticks of CPU time. Timers belong to threads: each thread that runs a profiled VM has one ticker: a timer on the thread's
 * own CPU clock and, where the kernel permits, a perf event (tick_event.h). At rates above the kernel's tick, and while the
 * thread rests, that one ticks in user time and the timer serves for kernel time alone. Their signals are delivered to that thread alone. The listeners of a ticker (the
 * sessions of VMs on that thread) are told of each tick inside the signal handler.
 *
 * A tick is taken once: the first VM that gets to run Lua after it is the one that was running, and calls
 * ticker_take(). Gaps are jittered; a gap is lengthened when taking samples would cost more than a fiftieth
 * of the time.
 *
 * The signal is a real-time signal that nobody handled when the first ticker started; the host's handlers and
 * interval timers are never touched. Its old disposition comes back when the last ticker ends, unless one was
 * ended from another thread while its own lived on: a signal may still be pending there. A thread that blocks
 * the signal has it unblocked while it is profiled. */
#ifndef LUAPULSE_AGENT_TICKER_H
#define LUAPULSE_AGENT_TICKER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "profile/failure.h"

typedef struct ticker ticker_t;

typedef struct tick_listener {
  /* Called in the signal handler, with its context: async-signal-safe code only. */
  void (*on_tick)(struct tick_listener *listener, const void *context);
  _Atomic(struct tick_listener *) next;
  ticker_t *ticker; /* NULL while not joined */
  unsigned hz;
} tick_listener_t;

/* Joins the ticker of the calling thread, starting it when there is none. */
bool ticker_join(tick_listener_t *listener, unsigned hz, uint64_t seed, failure_t *failure);
/* The same for another thread of the process, which must exist. The host's signal mask there stays as it is. */
bool ticker_join_thread(tick_listener_t *listener, pid_t tid, unsigned hz, uint64_t seed, failure_t *failure);
/* Tells that a thread joined so has ended. */
void ticker_mark_gone(tick_listener_t *listener);
/* From any thread. When it returns no handler uses the listener any more. */
void ticker_leave(tick_listener_t *listener);

/* The listener wants at least hz ticks a second from now on. */
bool ticker_hasten(tick_listener_t *listener, unsigned hz, failure_t *failure);
typedef struct {
  const char *source; /* what ticks now: "perf", "timer", "" when nothing does */
  unsigned rate;      /* at most how often a second */
  unsigned cost_ns;   /* CPU time a tick takes, with its sample: a moving average */
} ticker_facts_t;

ticker_facts_t ticker_facts(const tick_listener_t *listener);
int ticker_guard_forks(void); /* errno or 0; see fork_guard.h */
/* Stops the clock of the calling thread, whose only listener this is, with what was left of the gap; lets it run on. */
void ticker_hold(tick_listener_t *listener, bool hold);
/* False when the listener's thread has ended. */
bool ticker_is_alive(const tick_listener_t *listener);
/* Returns when every handler that was at work on another thread has ended. */
void ticker_wait_for_handlers(void);

typedef enum { TICK_NONE, TICK_TAKEN, TICK_OTHER_THREAD } tick_take_t;

/* Takes the pending tick: *weight is the thread's CPU time since its last sample, or since `not_before` if
 * later. TICK_NONE when another VM has taken it; TICK_OTHER_THREAD when the caller does not run on the
 * ticker's thread. */
tick_take_t ticker_take(ticker_t *ticker, uint64_t not_before, uint64_t *weight);
/* The same inside on_tick, for the moment of the tick. */
bool ticker_take_here(ticker_t *ticker, uint64_t not_before, uint64_t *weight);
/* Tells what the sample just taken cost, in nanoseconds of CPU time. */
void ticker_cost(ticker_t *ticker, uint64_t nanos);
/* Runs `work` while no thread of the process can fork by the C library. Ordinary context; work must not come
 * back here. */
void ticker_without_fork(void (*work)(void *context), void *context);
int ticker_signal(void); /* its number, 0 when no ticker ever started */

#endif
