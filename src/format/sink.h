/* SPDX-License-Identifier: MIT */
/* Where a format writes: a buffer in memory, a file descriptor, or gzip on top of another sink.
 * Errors are sticky: writers write on and the owner checks once, at sink_close(). */
#ifndef LUAPULSE_FORMAT_SINK_H
#define LUAPULSE_FORMAT_SINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "profile/failure.h"

typedef struct sink sink_t;

sink_t *sink_to_memory(void);           /* NULL when memory is out, likewise below */
sink_t *sink_to_fd(int fd);             /* buffered; the descriptor stays the caller's */
sink_t *sink_gzip(sink_t *destination); /* compresses into destination, which stays the caller's to close */

void sink_write(sink_t *sink, const void *data, size_t len);
void sink_text(sink_t *sink, const char *text);
void sink_format(sink_t *sink, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Marks the sink failed with an errno value, for a writer that cannot go on. The first failure is kept. */
void sink_fail(sink_t *sink, int error);

/* What a memory sink holds so far; NULL when it failed. Valid until the next write. */
const char *sink_memory(const sink_t *sink, size_t *len);

/* Flushes and frees. False when anything written to it was lost, with the reason. */
bool sink_close(sink_t *sink, failure_t *failure);

#endif
