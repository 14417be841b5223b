/* SPDX-License-Identifier: MIT */
/* Where the process's break is: the one piece of memory that the C library takes small blocks from, unless the host has another
 * allocator. All of it is mapped, and it knows where it ends without a system call. */
#ifndef LUAPULSE_AGENT_PROCESS_BREAK_H
#define LUAPULSE_AGENT_PROCESS_BREAK_H

#include <stdint.h>

/* Ordinary context; until then the span is empty. */
void process_break_learn(void);
/* In a signal handler that interrupted this thread at `pc`. Empty where it is not known. */
void process_break_span(uint64_t pc, uint64_t *low, uint64_t *high);

#endif
