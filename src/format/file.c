/* SPDX-License-Identifier: MIT */
/* Files that are whole or not there at all; see format.h.
 *
 * The bytes go to a new file beside the target, reach the disk, and take the target's name in one step.
 * Whatever fails on the way, the old file stays and the new one is removed. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "format/format.h"
#include "profile/mem.h"

enum { TEMPORARY_BYTES = 40, TEMPORARY_TRIES = 100 };

typedef struct {
  const char *path;
  const char *base; /* the last part of path */
  int directory;
  int fd; /* of the temporary file */
  char temporary[TEMPORARY_BYTES];
  failure_t *failure;
} replacing_t;

static struct {
  bool given;
  uid_t user;
  gid_t group;
} owner; /* set once, before there are threads */

void file_give_to(uid_t user, gid_t group) {
  owner.given = true;
  owner.user = user;
  owner.group = group;
}

typedef void write_t(void *context, sink_t *sink);

static bool fail(const replacing_t *r, const char *what) {
  return failure_set(r->failure, "%s: %s: %s", r->path, what, strerror(errno));
}

/* A link is replaced, never followed; but links to devices and to descriptors (/dev/stdout) are places to
 * write to, not files, and replacing them would break them for everybody. */
static bool check_link(const replacing_t *r) {
  char target[16] = "";
  struct stat status;
  ssize_t len = readlinkat(r->directory, r->base, target, sizeof target - 1);
  if (len < 0) return fail(r, "cannot be examined");
  if (fstatat(r->directory, r->base, &status, 0) == 0 && !S_ISREG(status.st_mode))
    return failure_set(r->failure, "%s: is a link to something that is not a regular file", r->path);
  if (strncmp(target, "/proc/", 6) == 0 || strncmp(target, "/dev/", 5) == 0 || strncmp(target, "fd/", 3) == 0)
    return failure_set(r->failure, "%s: is a link to an open descriptor; '-' is standard output", r->path);
  return true;
}

static bool check_target(const replacing_t *r) {
  struct stat status;
  if (fstatat(r->directory, r->base, &status, AT_SYMLINK_NOFOLLOW) != 0)
    return errno == ENOENT || fail(r, "cannot be examined");
  if (S_ISREG(status.st_mode)) return true;
  if (S_ISLNK(status.st_mode)) return check_link(r);
  return failure_set(r->failure, "%s: is %s, not a regular file", r->path,
                     S_ISDIR(status.st_mode)    ? "a directory"
                     : S_ISFIFO(status.st_mode) ? "a pipe"
                     : S_ISSOCK(status.st_mode) ? "a socket"
                                                : "a device");
}

static bool open_directory(replacing_t *r) {
  const char *slash = strrchr(r->path, '/');
  size_t len = slash != NULL ? (size_t)(slash - r->path) + 1 : 0;
  char *name = mem_alloc(len + 2);
  r->base = r->path + len;
  errno = ENOMEM;
  if (name == NULL) return fail(r, "cannot be written");
  memcpy(name, len > 0 ? r->path : ".", len > 0 ? len : 1);
  r->directory = open(name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (r->directory < 0 && errno == EACCES) /* writable but not readable: goes without the sync */
    r->directory = open(name, O_PATH | O_DIRECTORY | O_CLOEXEC);
  int error = errno;
  mem_free(name);
  errno = error;
  if (r->directory < 0) return fail(r, "its directory cannot be opened");
  if (*r->base == '\0') return failure_set(r->failure, "%s: is a directory, not a regular file", r->path);
  return true;
}

bool file_check(const char *path, bool named, failure_t *failure) {
  replacing_t r = {.path = path, .directory = -1, .fd = -1, .failure = failure};
  if (strcmp(path, "-") == 0) return true;
  bool ok = open_directory(&r) && (!named || check_target(&r));
  if (ok && faccessat(r.directory, ".", W_OK | X_OK, AT_EACCESS) != 0)
    ok = fail(&r, "its directory cannot be written to");
  if (r.directory >= 0) close(r.directory);
  return ok;
}

static bool open_temporary(replacing_t *r) {
  for (int i = 0; i < TEMPORARY_TRIES; i++) {
    uint64_t number;
    if (getrandom(&number, sizeof number, GRND_NONBLOCK) != (ssize_t)sizeof number) {
      struct timespec now;
      clock_gettime(CLOCK_MONOTONIC, &now);
      number = (uint64_t)now.tv_nsec << 32 ^ (uint64_t)getpid() ^ (uint64_t)i;
    }
    snprintf(r->temporary, sizeof r->temporary, ".luapulse-%016llx.tmp", (unsigned long long)number);
    r->fd = openat(r->directory, r->temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (r->fd >= 0) return true;
    if (errno != EEXIST) break;
  }
  r->temporary[0] = '\0';
  return fail(r, "no file can be made beside it");
}

static bool write_all(const replacing_t *r, int fd, write_t *write, void *context) {
  failure_t reason = {""};
  sink_t *sink = sink_to_fd(fd);
  errno = ENOMEM;
  if (sink == NULL) return fail(r, "cannot be written");
  write(context, sink);
  return sink_close(sink, &reason) ||
         failure_set(r->failure, "%s: cannot be written: %s",
                     fd == STDOUT_FILENO ? "standard output" : r->path, reason.text);
}

static bool put_in_place(replacing_t *r) {
  /* By the descriptor: what has been put in its place meanwhile is nobody's gift. Some file systems refuse it: then the file is root's. */
  if (owner.given && fchown(r->fd, owner.user, owner.group) != 0) errno = 0;
  if (fsync(r->fd) != 0) return fail(r, "cannot be written");
  int fd = r->fd;
  r->fd = -1;
  if (close(fd) != 0) return fail(r, "cannot be written");
  if (renameat(r->directory, r->temporary, r->directory, r->base) != 0) return fail(r, "cannot be replaced");
  r->temporary[0] = '\0';
  if (fsync(r->directory) != 0 && errno != EINVAL && errno != EBADF && errno != EROFS)
    return fail(r, "is written, but its directory cannot be synced");
  return true;
}

bool file_replace(const char *path, write_t *write, void *context, failure_t *failure) {
  replacing_t r = {.path = path, .directory = -1, .fd = -1, .failure = failure};
  if (strcmp(path, "-") == 0) return write_all(&r, STDOUT_FILENO, write, context);
  bool done = open_directory(&r) && check_target(&r) && open_temporary(&r) &&
              write_all(&r, r.fd, write, context) && put_in_place(&r);
  if (r.fd >= 0) close(r.fd);
  if (r.temporary[0] != '\0') unlinkat(r.directory, r.temporary, 0);
  if (r.directory >= 0) close(r.directory);
  return done;
}

/* -- profiles -------------------------------------------------------------------------------------------- */

typedef struct {
  const profile_t *profile;
  const format_t *format;
} writing_t;

static void write_format(void *context, sink_t *sink) {
  const writing_t *writing = context;
  writing->format->write(writing->profile, sink);
}

bool format_write_file(const profile_t *profile, const format_t *format, const char *path,
                       failure_t *failure) {
  writing_t writing = {profile, format};
  if (!profile_ok(profile))
    return failure_set(failure, "%s: not written: the profile ran out of memory and is not whole", path);
  const char *reason = format->refuses != NULL ? format->refuses(profile) : NULL;
  if (reason != NULL) return failure_set(failure, "%s: not written: %s", path, reason);
  return file_replace(path, write_format, &writing, failure);
}
