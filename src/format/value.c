/* SPDX-License-Identifier: MIT */
/* Values for people; see value.h. */
#include "format/value.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

typedef struct {
  const char *name; /* in a profile */
  int family;       /* units of one family convert into each other */
  double size;      /* in the family's smallest unit */
} unit_t;

enum { TIME, SIZE };

static const unit_t known[] = {
    {"nanoseconds", TIME, 1},     {"microseconds", TIME, 1e3}, {"milliseconds", TIME, 1e6},
    {"seconds", TIME, 1e9},       {"bytes", SIZE, 1},          {"kilobytes", SIZE, 1024},
    {"megabytes", SIZE, 1048576},
};

enum { STEPS = 6 };

static const value_scale_t steps[2][STEPS] = {
    [TIME] = {{1, "ns"}, {1e3, "us"}, {1e6, "ms"}, {1e9, "s"}, {60e9, "min"}, {3600e9, "h"}},
    [SIZE] = {{1, "B"}, {0x1p10, "kB"}, {0x1p20, "MB"}, {0x1p30, "GB"}, {0x1p40, "TB"}, {0x1p50, "PB"}},
};

/* The largest step that the value fills, or the first. */
static size_t step_of(const value_scale_t *step, double value) {
  size_t best = 0;
  for (size_t s = 1; s < STEPS; s++)
    if (value >= step[s].divisor) best = s;
  return best;
}

static size_t choose(int family, double least, double most) {
  size_t small = step_of(steps[family], least), large = step_of(steps[family], most);
  size_t hundredth = step_of(steps[family], 100 * least);
  if (family == SIZE) return small != large && 100 * least < most ? hundredth : small;
  return hundredth < large ? hundredth : large;
}

value_scale_t value_scale(const char *unit, int64_t smallest, int64_t total) {
  for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
    if (strcmp(known[i].name, unit) != 0) continue;
    double least = fabs((double)smallest) * known[i].size, most = fabs((double)total) * known[i].size;
    const value_scale_t *best = &steps[known[i].family][choose(known[i].family, least, most)];
    return (value_scale_t){best->divisor / known[i].size, best->unit};
  }
  return (value_scale_t){1, ""};
}

/* "1.50" and "1.00" become "1.50" and "1": whole numbers without a fraction. */
static void cut_zeros(char *text) {
  char *point = strstr(text, ".00");
  if (point != NULL && point[3] == '\0') *point = '\0';
}

void value_text(value_scale_t scale, int64_t value, char text[VALUE_TEXT_BYTES]) {
  char number[VALUE_TEXT_BYTES - 8];
  if (value == 0) {
    strcpy(text, "0");
    return;
  }
  if (scale.divisor == 1)
    snprintf(number, sizeof number, "%lld", (long long)value);
  else
    snprintf(number, sizeof number, "%.2f", (double)value / scale.divisor);
  cut_zeros(number);
  if (strcmp(number, "0") == 0 || strcmp(number, "-0") == 0)
    strcpy(text, "0");
  else
    snprintf(text, VALUE_TEXT_BYTES, "%s%s", number, scale.unit);
}

void value_percent(int64_t part, int64_t whole, char text[VALUE_TEXT_BYTES]) {
  double share = whole == 0 ? 0 : 100.0 * (double)part / (double)whole;
  snprintf(text, VALUE_TEXT_BYTES, "%.2f%%", share);
}
