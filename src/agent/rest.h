/* SPDX-License-Identifier: MIT */
/* Whether a thread rests: gives up the processor of its own accord, to sleep or to wait. Such a thread is woken by timers and by
 * other programs, and may be in step with the kernel's tick for as long as it runs. One that computes all the time cannot, but by
 * watching a clock.
 *
 * Async-signal-safe: two clocks and getrusage, which is a plain system call. */
#ifndef LUAPULSE_AGENT_REST_H
#define LUAPULSE_AGENT_REST_H

#include <stdint.h>

typedef struct {
  uint64_t since;           /* monotonic time at the beginning of the window, ns; 0: there is none yet */
  uint64_t cpu;             /* thread CPU time then, ns */
  uint64_t switches;        /* how often the thread had left a processor by then … */
  uint64_t rests;           /* … of its own accord */
  unsigned windows_of_work; /* one after the other in which it hardly rested, up to now */
} rest_t;

typedef enum {
  REST_UNDECIDED, /* too early, or neither of these */
  REST_NONE,      /* it has been running for seconds, as far as other programs let it */
  REST_SOME,      /* more than a twentieth of the time */
  REST_RESTLESS   /* it leaves the processor so often that what is done at each switch matters */
} rest_verdict_t;

/* Of the calling thread, whose CPU time is `cpu`. A window is over at the first call after 0.2 s; in between nothing is decided.
 * A rest_t begins as zeros. */
rest_verdict_t rest_look(rest_t *rest, uint64_t cpu);

#endif
