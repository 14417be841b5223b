/* SPDX-License-Identifier: MIT */
/* Why a call failed, in words: what was wrong with which object, and the next step. */
#ifndef LUAPULSE_PROFILE_FAILURE_H
#define LUAPULSE_PROFILE_FAILURE_H

#include <stdbool.h>

typedef struct {
  char text[512]; /* one line, no newline at its end; empty when nothing failed */
} failure_t;

/* Writes the message (cut to fit) and returns false, so that callers can `return failure_set(…)`. NULL is
 * allowed. */
bool failure_set(failure_t *failure, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
