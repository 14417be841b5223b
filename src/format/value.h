/* SPDX-License-Identifier: MIT */
/* Values for people: 12.34s, 512MB, 1234. One scale serves a whole table, so that its rows compare at a
 * glance. */
#ifndef LUAPULSE_FORMAT_VALUE_H
#define LUAPULSE_FORMAT_VALUE_H

#include <stddef.h>
#include <stdint.h>

typedef struct {
  double divisor;   /* of the sample type's unit */
  const char *unit; /* written right after the number; "" for counts */
} value_scale_t;

enum { VALUE_TEXT_BYTES = 48 };

/* The scale for a table whose smallest value (not zero) and total are given, in `unit` as pprof spells it. Times: the largest one that
 * the total fills and in which the smallest is still 0.01 or more. Sizes, as `go tool pprof` does it: the one that the smallest fills,
 * or, when the total is more than a hundred times as much, the largest in which the smallest is 0.01 or more; a kB is 1024 bytes. An
 * unknown unit is not scaled, and not shown either: the table's head names it. */
value_scale_t value_scale(const char *unit, int64_t smallest, int64_t total);

void value_text(value_scale_t scale, int64_t value, char text[VALUE_TEXT_BYTES]);
/* "12.34%"; of nothing, everything is 0%. */
void value_percent(int64_t part, int64_t whole, char text[VALUE_TEXT_BYTES]);

#endif
