/* SPDX-License-Identifier: MIT */
/* A signal the host does not use, with a handler of ours on it, and the old disposition back at the end. Not thread-safe: the
 * ticker's lock is held. */
#ifndef LUAPULSE_AGENT_TICK_SIGNAL_H
#define LUAPULSE_AGENT_TICK_SIGNAL_H

#include <signal.h>
#include <stdbool.h>

typedef struct {
  void (*handler)(int number, siginfo_t *info, void *context);
  int number; /* 0: none was ever taken */
  bool installed;
  struct sigaction old;
} tick_signal_t;

/* The highest real-time signal nobody handles, 0 when there is none. */
int tick_signal_free(void);
/* False also when the host has put a handler of its own in the place of ours. */
bool tick_signal_is_ours(const tick_signal_t *signal);
/* False with errno when it cannot be. */
bool tick_signal_install(tick_signal_t *signal, int number);
/* Puts back what was there, unless the host has put something else there meanwhile. */
void tick_signal_remove(tick_signal_t *signal);
/* Takes out what is still queued for this thread, which blocks the signal: before the old disposition (to die of it) can come
 * back. */
void tick_signal_drain(int number);

#endif
