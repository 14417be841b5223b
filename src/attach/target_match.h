/* SPDX-License-Identifier: MIT */
/* Paths that fit a pattern, as the process sees them that names it: "conf.d" and a star, as in configuration files. */
#ifndef LUAPULSE_ATTACH_TARGET_MATCH_H
#define LUAPULSE_ATTACH_TARGET_MATCH_H

#include <stdbool.h>
#include <sys/types.h>

/* Calls `each` with one path after another, in no order, until it says true, which is the result then. Where the pattern is none it is the path, which
 * may not be there. */
typedef bool target_match_t(void *context, const char *path);
bool target_match(pid_t pid, const char *pattern, target_match_t *each, void *context);

#endif
