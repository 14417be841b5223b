/* SPDX-License-Identifier: MIT */
/* The memory all profiled VMs of the process may use together. Lock-free, async-signal-safe. */
#ifndef LUAPULSE_AGENT_BUDGET_H
#define LUAPULSE_AGENT_BUDGET_H

#include <stdbool.h>
#include <stddef.h>

/* Takes bytes while the sum stays within limit; false takes nothing. */
bool budget_take(size_t bytes, size_t limit);
void budget_give_back(size_t bytes);

#endif
