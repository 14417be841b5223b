/* SPDX-License-Identifier: MIT */
/* The perf event of a ticker (perf_clock.h), and what it does:
 *
 * - It ticks, in user time; the ticker's timer then is for kernel time alone.
 * - It watches: the timer ticks for all time. The event looks now and then whether its thread rests. Such a thread may be in step
 *   with the kernel's tick, so that the timer, which fires at that, always finds it in the same place, or never fires at all.
 * - It is silent: the timer ticks for all time. The thread leaves the processor so often that an event, which costs something at
 *   each switch, would be felt.
 *
 * Async-signal-safe, on the ticker's own thread, but for opening and closing. */
#ifndef LUAPULSE_AGENT_TICK_EVENT_H
#define LUAPULSE_AGENT_TICK_EVENT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "agent/rest.h"

enum { NO_EVENT, EVENT_SILENT, EVENT_WATCHES, EVENT_TICKS };

typedef struct {
  _Atomic int does;   /* one of these; NO_EVENT also when it was taken away */
  _Atomic int fd;     /* -1: none; kept when it was taken away, for close to look at */
  uint64_t last;      /* thread CPU time of its last tick, ns */
  uint64_t gap;       /* ns between its ticks at present */
  unsigned ticks;     /* that are still to have this gap */
  uint64_t watch_gap; /* ns to its next look while it watches */
  bool delivers;      /* a signal of it has come: its thread does not block it */
  rest_t rest;        /* of the thread */
} tick_event_t;

/* There is none. */
void tick_event_clear(tick_event_t *event);
/* For a thread of this process. It watches, or there is none where the kernel does not permit. Ordinary context: a handler that
 * opened a descriptor might do so between the close and the open of a host that counts on getting the same number; and the first
 * event of a machine takes the kernel about 10 ms. */
void tick_event_open(tick_event_t *event, pid_t tid, int signal);
void tick_event_close(tick_event_t *event);
/* In a forked child. */
void tick_event_close_copy(tick_event_t *event);

static inline bool tick_event_ticks(const tick_event_t *event) {
  return atomic_load(&event->does) == EVENT_TICKS;
}

/* The next ticks come after gaps of so many nanoseconds of CPU time. A few, then it must be called again. */
void tick_event_set(tick_event_t *event, uint64_t gap);
/* Begins to watch, or falls silent, as it is to do. */
void tick_event_stand_by(tick_event_t *event);
/* It has looked; the next time it does after twice as long, up to a third of a second of CPU time. */
void tick_event_look_later(tick_event_t *event);
/* A signal of it has come. */
void tick_event_heard(tick_event_t *event, uint64_t now);
/* It ticks no more, and never will. */
void tick_event_give_up(tick_event_t *event);
/* Stops its ticks, and lets them run on. What watches goes on. */
void tick_event_hold(const tick_event_t *event, bool hold);
/* Finds out what it should do, by what the thread does, or that it ticks in any case. True when that is another thing than before:
 * then it is to be set, or to stand by. */
bool tick_event_follow(tick_event_t *event, bool in_any_case, uint64_t now);

#endif
