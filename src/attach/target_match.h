/* SPDX-License-Identifier: MIT */
/* Paths that fit a pattern, as the process sees them that names it: "conf.d" and a star, as in configuration files. */
#ifndef LUAPULSE_ATTACH_TARGET_MATCH_H
#define LUAPULSE_ATTACH_TARGET_MATCH_H

#include <stdbool.h>
#include <sys/types.h>

enum {
  TARGET_MATCH_PARTS = 3 /* between slashes that may be patterns: with more of them nothing fits */
};

/* Calls `each` with one path after another, in no order, until it says true, which is the result then. Where the pattern is none it is the
 * path, which may not be there. Each folder that is opened and each entry that is read takes one off `*entries_left`; at 0 no more are. */
typedef bool target_match_t(void *context, const char *path);
bool target_match(pid_t pid, const char *pattern, unsigned *entries_left, target_match_t *each,
                  void *context);

#endif
