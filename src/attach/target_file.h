/* SPDX-License-Identifier: MIT */
/* Files that a process names, as that process sees them: in its root, with its links. Whatever it calls its files, and wherever its links
 * lead, nothing outside of its root is found, and nothing but a regular file is opened.
 *
 * Limit: before Linux 5.6, or where a seccomp filter refuses openat2(), links of processes with another root or mount namespace than the
 * caller's are not followed at all. */
#ifndef LUAPULSE_ATTACH_TARGET_FILE_H
#define LUAPULSE_ATTACH_TARGET_FILE_H

#include "attach/maps.h"

/* Paths that do not begin with a slash are below the folder that the process is in. Each gives a descriptor for reading, to be closed, or
 * a negative number. */
int target_file_open(pid_t pid, const char *path);
/* The file of a mapping: by /proc/PID/map_files where the kernel permits it (it leads to the very file, also a deleted one), else by its
 * path. */
int target_file_open_mapped(const map_t *map, pid_t pid);
/* A folder, to list. */
int target_file_open_folder(pid_t pid, const char *path);
bool target_file_is_there(pid_t pid, const char *path);
/* Whether paths mean the same for both. False also where that cannot be seen. */
bool target_file_same_root(pid_t a, pid_t b);

#endif
