/* SPDX-License-Identifier: MIT */
/* Was the thread in the kernel when its signal came? The kernel delivers it on the way back to user mode, so what was interrupted
 * tells by what way the kernel was entered: a system call, whose instruction lies right before, or a fault, such as the first touch
 * of a page, after which the processor has set the flag that says so (RF of x86-64; arm64 has none, and there faults are not told).
 * Async-signal-safe. */
#ifndef LUAPULSE_AGENT_KERNEL_TIME_H
#define LUAPULSE_AGENT_KERNEL_TIME_H

#include <stdbool.h>

bool kernel_time_ended(const void *context); /* of a signal handler */

#endif
