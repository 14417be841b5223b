/* SPDX-License-Identifier: MIT */
/* The files a command writes: names with %p (process), %t (when what they cover began) and %% in them, formats by
 * extension. */
#ifndef LUAPULSE_CLI_OUTPUT_H
#define LUAPULSE_CLI_OUTPUT_H

#include <sys/types.h>
#include <time.h>

#include "format/format.h"

enum {
  OUTPUT_MAX = 16,
  OUTPUT_ALL = 0 /* as a process: the profile is of all there are */,
  OUTPUT_UNKNOWN = -1
};

typedef struct {
  const char *names[OUTPUT_MAX]; /* as the user wrote them */
  size_t count;
  const format_t *format; /* for all of them, or NULL: by extension */
  char default_name[64];  /* of a format that was told without a name */
} output_t;

bool output_add(output_t *output, const char *name, failure_t *failure);
/* Fills in the default names when there are none, of the format alone that was told, so that the output must stay where it is; refuses names
 * without a format, unknown % signs, and with `repeated` names that have no %t: each profile would replace the last. */
bool output_check(output_t *output, bool repeated, failure_t *failure);
/* Whether the files can be made, as far as it can be told before there is a profile. `pid` may be OUTPUT_UNKNOWN. */
bool output_reachable(const output_t *output, pid_t pid, failure_t *failure);
/* Whether one of the files is in this format. After output_check(). */
bool output_has_format(const output_t *output, const char *format);
/* Writes the profile to the i-th file. `path` receives its name (PATH_MAX bytes). */
bool output_write(const output_t *output, size_t i, const profile_t *profile, pid_t pid, time_t when,
                  char *path, failure_t *failure);
/* Says on standard error what to do with each file that was written; nothing of standard output. */
void output_suggest(const output_t *output, pid_t pid, time_t when);

#endif
