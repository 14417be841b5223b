/* SPDX-License-Identifier: MIT */
/* Finding files as a process sees them; see target_file.h. A path below /proc/PID/root will not do: links with a slash in front begin at
 * the root of who follows them, so that a container chose files of the host. */
#include "attach/target_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "name/regular_file.h"

enum { TRIES = 8 /* the kernel gives up where something is renamed or mounted meanwhile */ };

/* "/proc/12/root": what the kernel knows of a process. */
static int open_known(pid_t pid, const char *what) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, what);
  return open(path, O_PATH | O_CLOEXEC);
}

static bool same_known(pid_t a, pid_t b, const char *what) {
  int fd_a = open_known(a, what), fd_b = open_known(b, what);
  struct stat is_a, is_b;
  bool same = fd_a >= 0 && fd_b >= 0 && fstat(fd_a, &is_a) == 0 && fstat(fd_b, &is_b) == 0 &&
              is_a.st_dev == is_b.st_dev && is_a.st_ino == is_b.st_ino;
  if (fd_a >= 0) close(fd_a);
  if (fd_b >= 0) close(fd_b);
  return same;
}

bool target_file_same_root(pid_t a, pid_t b) {
  return same_known(a, b, "root") && same_known(a, b, "ns/mnt");
}

/* -- without openat2() ------------------------------------------------------------------------------------------------ */

/* Where each part of the path is what it is called: neither a link nor a way back. */
static int walk_without_links(int from, const char *path, int flags) {
  int at = fcntl(from, F_DUPFD_CLOEXEC, 0);
  for (size_t len; at >= 0 && *path != '\0'; path += len) {
    char part[NAME_MAX + 1];
    struct stat status;
    path += strspn(path, "/");
    len = strcspn(path, "/");
    bool last = path[len + strspn(path + len, "/")] == '\0';
    if (len == 0) break;
    snprintf(part, sizeof part, "%.*s", (int)len, path);
    int next = len <= NAME_MAX && strcmp(part, "..") != 0
                   ? openat(at, part, (last ? flags : O_PATH | O_CLOEXEC) | O_NOFOLLOW)
                   : -1;
    close(at);
    at = next;
    if (at >= 0 && fstat(at, &status) == 0 && S_ISLNK(status.st_mode)) { /* O_PATH opens links themselves */
      close(at);
      at = -1;
    }
  }
  return at;
}

/* -- with it --------------------------------------------------------------------------------------------------------- */

/* `from`: the root of the process, or with RESOLVE_BENEATH another folder of it. */
static int find_from(int from, const char *path, int flags, uint64_t resolve, pid_t pid) {
  struct open_how how = {.flags = (unsigned)flags, .resolve = resolve | (uint64_t)RESOLVE_NO_MAGICLINKS};
  long fd;
  int tries = TRIES;
  do fd = syscall(SYS_openat2, from, path, &how, sizeof how);
  while (fd < 0 && errno == EAGAIN && --tries > 0);
  if (fd >= 0 || (errno != ENOSYS && errno != EPERM)) return (int)fd;
  if (!target_file_same_root(pid, getpid())) return walk_without_links(from, path, flags);
  return openat(from, path, flags);
}

/* What the folder that the process is in is called in its root, without a slash at the end. False when there is no way to it. */
static bool name_folder(pid_t pid, int root, int folder, char *path, size_t size) {
  char link[64], above[PATH_MAX], all[PATH_MAX];
  struct stat wanted, found;
  snprintf(link, sizeof link, "/proc/%d/root", (int)pid);
  ssize_t above_len = readlink(link, above, sizeof above);
  snprintf(link, sizeof link, "/proc/%d/cwd", (int)pid);
  ssize_t len = readlink(link, all, sizeof all - 1);
  if (above_len <= 0 || len <= 0) return false;
  all[len] = '\0';
  if (above_len == 1) above_len = 0; /* "/" */
  if (len < above_len || memcmp(all, above, (size_t)above_len) != 0 ||
      snprintf(path, size, "%s", all + above_len) >= (int)size)
    return false;
  /* as text it may be anything: a folder that is gone, or one of a namespace where it is called otherwise */
  int fd = find_from(root, path[0] != '\0' ? path : "/", O_PATH | O_CLOEXEC, RESOLVE_IN_ROOT, pid);
  bool same = fd >= 0 && fstat(fd, &found) == 0 && fstat(folder, &wanted) == 0 &&
              found.st_dev == wanted.st_dev && found.st_ino == wanted.st_ino;
  if (fd >= 0) close(fd);
  return same;
}

static int find_in_folder(pid_t pid, int root, const char *path, int flags) {
  char name[PATH_MAX], whole[2 * PATH_MAX];
  int folder = open_known(pid, "cwd"), fd;
  if (folder < 0) return -1;
  if (name_folder(pid, root, folder, name, sizeof name)) {
    snprintf(whole, sizeof whole, "%s/%s", name, path);
    fd = find_from(root, whole, flags, RESOLVE_IN_ROOT, pid);
  } else {
    fd = find_from(folder, path, flags, RESOLVE_BENEATH, pid);
  }
  close(folder);
  return fd;
}

static int find(pid_t pid, const char *path, int flags) {
  int root = open_known(pid, "root"), fd;
  if (root < 0) return -1;
  if (path[0] != '/')
    fd = find_in_folder(pid, root, path, flags);
  else
    fd = find_from(root, path, flags, RESOLVE_IN_ROOT, pid);
  close(root);
  return fd;
}

/* -- what is asked for ------------------------------------------------------------------------------------------------- */

int target_file_open(pid_t pid, const char *path) {
  return regular_file_open_found(find(pid, path, O_PATH | O_CLOEXEC));
}

int target_file_open_folder(pid_t pid, const char *path) {
  return find(pid, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NONBLOCK);
}

bool target_file_is_there(pid_t pid, const char *path) {
  int fd = find(pid, path, O_PATH | O_CLOEXEC);
  if (fd >= 0) close(fd);
  return fd >= 0;
}

int target_file_open_mapped(const map_t *map, pid_t pid) {
  char path[96];
  snprintf(path, sizeof path, "/proc/%d/map_files/%llx-%llx", (int)pid, (unsigned long long)map->start,
           (unsigned long long)map->end);
  int fd = regular_file_open(path);
  return fd != REGULAR_FILE_NONE || map->path[0] != '/' ? fd : target_file_open(pid, map->path);
}
