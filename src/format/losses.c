/* SPDX-License-Identifier: MIT */
/* Losses as text; see losses.h. */
#include "format/losses.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char PREFIX[] = "luapulse losses:";

void losses_line(const profile_t *profile, char line[LOSSES_LINE_BYTES]) {
  size_t used = (size_t)snprintf(line, LOSSES_LINE_BYTES, "%s", PREFIX);
  for (int reason = 0; reason < LOSS_COUNT && used < LOSSES_LINE_BYTES; reason++)
    used += (size_t)snprintf(line + used, LOSSES_LINE_BYTES - used, " %s=%" PRId64, loss_name((loss_t)reason),
                             (int64_t)profile->losses[reason]);
}

/* The reason whose name is text[0 .. len), or LOSS_COUNT. */
static int reason_of(const char *text, size_t len) {
  int reason = 0;
  while (reason < LOSS_COUNT &&
         (strlen(loss_name((loss_t)reason)) != len || memcmp(loss_name((loss_t)reason), text, len) != 0))
    reason++;
  return reason;
}

bool losses_parse(const char *data, size_t len, uint64_t losses[LOSS_COUNT]) {
  char line[4 * LOSSES_LINE_BYTES];
  uint64_t found[LOSS_COUNT] = {0};
  if (len >= sizeof line || len < sizeof PREFIX - 1 || memcmp(data, PREFIX, sizeof PREFIX - 1) != 0)
    return false;
  memcpy(line, data, len);
  line[len] = '\0';
  char *rest = NULL;
  for (char *word = strtok_r(line + sizeof PREFIX - 1, " ", &rest); word != NULL;
       word = strtok_r(NULL, " ", &rest)) {
    char *equals = strchr(word, '='), *end;
    if (equals == NULL || equals[1] == '\0') return false;
    errno = 0;
    int64_t count = strtoll(equals + 1, &end, 10);
    if (errno != 0 || *end != '\0') return false;
    int reason = reason_of(word, (size_t)(equals - word));
    if (reason < LOSS_COUNT) found[reason] = (uint64_t)count;
  }
  memcpy(losses, found, sizeof found);
  return true;
}

void losses_write_words(const profile_t *profile, sink_t *sink) {
  static const char *const words[LOSS_COUNT] = {
      [LOSS_OVERFLOW] = "found no room for their stack (kept under [overflow])",
      [LOSS_TRUNCATED] = "were deeper than recorded (kept, begun with [truncated])",
      [LOSS_UNATTRIBUTED] = "were taken while no Lua function ran (kept under [outside Lua])",
      [LOSS_DROPPED] = "could not be recorded",
      [LOSS_RATE_LIMITED] = "were skipped to keep to the rate limit (those kept carry their weight)",
      [LOSS_GONE] = "have a function that was collected before it could be read (kept, as [gone])",
  };
  bool any = false;
  for (int reason = 0; reason < LOSS_COUNT; reason++) {
    if (profile->losses[reason] == 0) continue;
    sink_format(sink, "%s%" PRId64 " samples %s", any ? "; " : "", (int64_t)profile->losses[reason],
                words[reason]);
    any = true;
  }
  if (!any) sink_text(sink, "none");
}
