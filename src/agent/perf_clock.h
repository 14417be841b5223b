/* SPDX-License-Identifier: MIT */
/* Ticks of a thread's CPU time by a perf event: the kernel's cpu-clock software event, driven by a high-resolution timer, so
 * that ticks neither wait for the kernel's own tick (4 ms at 250 Hz) nor lie on its grid.
 *
 * Only user time ticks (exclude_kernel): that needs no privilege where perf_event_paranoid is 2 or less, and a signal never
 * arrives inside a system call, where it would make the call fail with EINTR. A thread that blocks the
 * signal has one pending at most: it is a standard signal.
 *
 * Setting the gap costs as much as a tick (in a virtual machine 20 µs each, by far most of it for programming the timer), so
 * a gap is best kept for several ticks. An event that is on also costs something whenever its thread leaves or gets the processor:
 * 0.6 µs for both with gaps of 250 ms, 2 µs with 10 ms, 11 µs with 1 ms, as seen there. */
#ifndef LUAPULSE_AGENT_PERF_CLOCK_H
#define LUAPULSE_AGENT_PERF_CLOCK_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* A descriptor of an event of the thread that signals it; -1 where the kernel does not permit. Not set yet. */
int perf_clock_open(pid_t tid, int signal);
/* From now on a tick comes every `gap` nanoseconds of CPU time, of those that find it in user mode, `ticks` times more than it
 * would have; then the event stops. So a host that takes the signal for itself gets a few, not one after the other for ever.
 * Async-signal-safe. */
bool perf_clock_set(int fd, uint64_t gap, unsigned ticks);
/* Stops its clock, with what was left of the gap, and lets it run on. Async-signal-safe. */
void perf_clock_hold(int fd, bool hold);
/* Stops the event: it would live on, and tick, while a forked child has a copy of its descriptor. Closes the descriptor if it
 * still is one of these: a host may have closed all it did not know and reused the number. */
void perf_clock_close(int fd);
/* In a forked child: closes its copy, and leaves the event, which is the parent's, alone. */
void perf_clock_close_copy(int fd);
/* A standard signal nobody handles, 0 when there is none. Not a real-time one: when those cannot be queued the kernel
 * sends SIGIO in their place, of which the host would die. */
int perf_clock_signal(void);

#endif
