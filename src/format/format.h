/* SPDX-License-Identifier: MIT */
/* The formats a profile can be written in, and the file it is written to. One source file per format. */
#ifndef LUAPULSE_FORMAT_FORMAT_H
#define LUAPULSE_FORMAT_FORMAT_H

#include <sys/types.h>

#include "format/sink.h"
#include "profile/failure.h"
#include "profile/profile.h"

typedef struct {
  const char *name;      /* as -f takes it: "pprof", "folded" … */
  const char *extension; /* a file name that ends so means this format: ".pb.gz" */
  const char *summary;   /* one line for help texts */
  const char *use;       /* what to do with a file of it, told after writing: @ its name, ^ less extension */
  /* Writes the whole profile. Failures (memory, disk) are sticky in the sink. */
  void (*write)(const profile_t *profile, sink_t *sink);
  /* Why this profile cannot be written so, NULL when it can. May be NULL: all can. */
  const char *(*refuses)(const profile_t *profile);
} format_t;

/* All formats, ended by an entry whose name is NULL. */
extern const format_t formats[];

const format_t *format_by_name(
    const char *name); /* by name, or by extension, with or without its first dot; or NULL */
const format_t *format_for_path(const char *path); /* by the longest matching extension, or NULL */

/* Writes the profile to path, "-" being standard output. The file is whole or not there at all: a temporary
 * file beside it (0600, never through a symbolic link) is synced and renamed over it; on failure the old file
 * stays as it was. A path that is neither a regular file nor a link (a device, a directory) is refused. */
bool format_write_file(const profile_t *profile, const format_t *format, const char *path,
                       failure_t *failure);

/* Whether a file could be made there now, with the reason why not: before the work is done that is to be written to it. `named`: that is
 * its name; otherwise the name in the directory is not known yet. What the disk has room for is not asked. */
bool file_check(const char *path, bool named, failure_t *failure);

/* From now on files belong to this user and group, where that is permitted. For a process that is root on somebody's behalf. */
void file_give_to(uid_t user, gid_t group);

/* The same discipline for any bytes. */
bool file_replace(const char *path, void (*write)(void *context, sink_t *sink), void *context,
                  failure_t *failure);

void pprof_write(const profile_t *profile, sink_t *sink); /* gzip'd protobuf */
void folded_write(const profile_t *profile, sink_t *sink);
void speedscope_write(const profile_t *profile, sink_t *sink);
void callgrind_write(const profile_t *profile, sink_t *sink);
void html_write(const profile_t *profile, sink_t *sink);
void chrome_write(const profile_t *profile, sink_t *sink); /* the timeline alone */
const char *chrome_refuses(const profile_t *profile);
void text_write(const profile_t *profile, sink_t *sink);

#endif
