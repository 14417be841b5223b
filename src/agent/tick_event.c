/* SPDX-License-Identifier: MIT */
/* The perf event of a ticker; see tick_event.h. */
#include "agent/tick_event.h"

#include "agent/perf_clock.h"

enum {
  GAP_TICKS = 8,          /* so many ticks have the same gap */
  FIRST_WATCH = 10000000, /* ns of CPU time: soon, because a thread that rests much has little of it … */
  LAST_WATCH = 320000000  /* … and seldom in the end, because a tick of an event is dear */
};

void tick_event_clear(tick_event_t *event) {
  atomic_store(&event->does, NO_EVENT);
  atomic_store(&event->fd, -1);
  event->delivers = false;
  event->rest = (rest_t){0};
}

void tick_event_open(tick_event_t *event, pid_t tid, int signal) {
  int fd = perf_clock_open(tid, signal);
  atomic_store(&event->fd, fd);
  atomic_store(&event->does, fd >= 0 ? EVENT_WATCHES : NO_EVENT);
}

void tick_event_close(tick_event_t *event) {
  atomic_store(&event->does, NO_EVENT);
  int fd = atomic_exchange(&event->fd, -1);
  if (fd >= 0) perf_clock_close(fd);
}

void tick_event_close_copy(tick_event_t *event) {
  atomic_store(&event->does, NO_EVENT);
  int fd = atomic_exchange(&event->fd, -1);
  if (fd >= 0) perf_clock_close_copy(fd);
}

void tick_event_give_up(tick_event_t *event) {
  atomic_store(&event->does, NO_EVENT);
}

/* Who starts the ticker of another thread arms its event for it. What was written until then is the handler's from here on: it
 * reads `does` first, so that is written, as it is. */
static void arm(tick_event_t *event, uint64_t gap, unsigned ticks) {
  atomic_fetch_add(&event->does, 0);
  if (!perf_clock_set(atomic_load(&event->fd), gap, ticks)) tick_event_give_up(event);
}

/* A gap drawn anew for every few ticks keeps a program from falling into step as one for each tick does, and costs less. */
void tick_event_set(tick_event_t *event, uint64_t gap) {
  event->gap = gap;
  event->ticks = GAP_TICKS;
  arm(event, gap, GAP_TICKS);
}

void tick_event_stand_by(tick_event_t *event) {
  event->watch_gap = FIRST_WATCH;
  int does = atomic_load(&event->does);
  if (does == EVENT_WATCHES) arm(event, event->watch_gap, 1);
  if (does == EVENT_SILENT) perf_clock_hold(atomic_load(&event->fd), true);
}

void tick_event_look_later(tick_event_t *event) {
  if (event->watch_gap < LAST_WATCH) event->watch_gap *= 2;
  arm(event, event->watch_gap, 1);
}

void tick_event_heard(tick_event_t *event, uint64_t now) {
  event->delivers = true;
  event->last = now;
  if (event->ticks > 0) event->ticks--;
}

void tick_event_hold(const tick_event_t *event, bool hold) {
  if (tick_event_ticks(event)) perf_clock_hold(atomic_load(&event->fd), hold);
}

/* The timer's ticks come with the kernel's own, an event's each take an interrupt, which in a virtual machine costs tens of
 * microseconds (bench/ticks.c measures it). So it ticks for a thread that rests, and for no other. */
static int best(tick_event_t *event, uint64_t now) {
  switch (rest_look(&event->rest, now)) {
    case REST_NONE:
      return EVENT_WATCHES;
    case REST_SOME:
      return EVENT_TICKS;
    case REST_RESTLESS:
      return EVENT_SILENT;
    default:
      return atomic_load(&event->does);
  }
}

bool tick_event_follow(tick_event_t *event, bool in_any_case, uint64_t now) {
  int does = atomic_load(&event->does);
  if (does == NO_EVENT) return false;
  int next = in_any_case ? EVENT_TICKS : best(event, now);
  if (next == does || (next == EVENT_TICKS && !event->delivers)) return false;
  return atomic_compare_exchange_strong(&event->does, &does, next); /* another thread may have closed it */
}
