/* SPDX-License-Identifier: MIT */
/* Threads on which a signal of ours may be pending, for as long as they block it: their tickers were ended by another thread, which
 * cannot take it out. While one of them lives the handlers stay. Under the ticker's lock. */
#ifndef LUAPULSE_AGENT_UNDRAINED_H
#define LUAPULSE_AGENT_UNDRAINED_H

#include <stdbool.h>
#include <sys/types.h>

void undrained_add(pid_t tid);
/* The thread has taken its signals out itself. */
void undrained_remove(pid_t tid);
/* True when one is left that lives. */
bool undrained_any(void);
/* In a forked child: pending signals do not pass to it. */
void undrained_clear(void);

#endif
