/* SPDX-License-Identifier: MIT */
/* Looking before opening; see regular_file.h. What was looked at is what is opened: the path is not asked twice. */
#include "name/regular_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

int regular_file_open_found(int found) {
  char path[32]; /* opened by openat(): in the command, open() is for elfutils, and calls this */
  struct stat status;
  int fd = REGULAR_FILE_NONE;
  if (found < 0) return REGULAR_FILE_NONE;
  if (fstat(found, &status) == 0) {
    snprintf(path, sizeof path, "/proc/self/fd/%d", found);
    fd = S_ISREG(status.st_mode) ? openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK)
                                 : REGULAR_FILE_OTHER;
  }
  int error = errno;
  close(found);
  errno = error;
  return fd;
}

int regular_file_open(const char *path) {
  return regular_file_open_found(open(path, O_PATH | O_CLOEXEC));
}
