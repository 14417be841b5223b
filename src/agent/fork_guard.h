/* SPDX-License-Identifier: MIT */
/* Every lock of the agent is held around fork(), so that the child finds none taken by a thread it does not have.
 *
 * The C library is told when the agent is loaded, not when a lock is first used: a fork under way then would have passed the
 * point where it asks. */
#ifndef LUAPULSE_AGENT_FORK_GUARD_H
#define LUAPULSE_AGENT_FORK_GUARD_H

/* 0, or the errno with which the C library refused. */
int fork_guard_prepare(void);

#endif
