/* SPDX-License-Identifier: MIT */
/* open() for elfutils; see debug_open.h. The linker calls these by --wrap. */
#include "cli/debug_open.h"

#include <fcntl.h>
#include <stdarg.h>
#include <sys/types.h>

#include "name/regular_file.h"

int __wrap_open(const char *path, int flags, ...);

static bool regular_only;

void debug_open_regular_only(bool only) {
  regular_only = only;
}

int __wrap_open(const char *path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  mode_t mode = (flags & O_CREAT) != 0 ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  if (!regular_only || (flags & (O_CREAT | O_PATH | O_DIRECTORY)) != 0)
    return openat(AT_FDCWD, path, flags, mode);
  int fd = regular_file_open(path);
  return fd >= 0 ? fd : -1;
}

/* Where offsets have 64 bits both are one. */
int __wrap_open64(const char *path, int flags, ...) __attribute__((alias("__wrap_open")));
