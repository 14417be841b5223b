/* SPDX-License-Identifier: MIT */
/* Was the thread in a system call? The kernel delivers a signal that came meanwhile when the call returns: right after the
 * instruction that made it. Async-signal-safe. */
#ifndef LUAPULSE_AGENT_SYSTEM_CALL_H
#define LUAPULSE_AGENT_SYSTEM_CALL_H

#include <stdbool.h>

bool system_call_ended(const void *context); /* of a signal handler */

#endif
