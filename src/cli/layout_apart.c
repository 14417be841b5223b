/* SPDX-License-Identifier: MIT */
/* Debug information of anybody's files; see layout_apart.h. */
#include "cli/layout_apart.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/layout_debug.h"

/* 100 MB of debug information take some 0.4 s. Who needs more has known layouts, and `luapulse layout`, which has no limits. */
enum { MOST_CPU_S = 2, MOST_MS = 5000, MOST_BYTES = 256 << 20, FILES = 32 };

/* As the child writes it. */
typedef struct {
  layout_t layout;
  size_t known;      /* of layout_known(): the layout says no more than that one; SIZE_MAX: more */
  bool there;        /* a layout */
  failure_t why_not; /* there is debug information, but no layout in it; "": there is none */
} answer_t;

typedef struct {
  dev_t device;
  ino_t inode;
  off_t size;
  struct timespec modified;
} file_t;

static struct {
  file_t file;
  answer_t answer;
} remembered[FILES];
static size_t remembered_count;

/* -- the child ---------------------------------------------------------------------------------------------------- */

static void set_limits(void) {
  struct rlimit none = {0, 0}, cpu = {MOST_CPU_S, MOST_CPU_S};
  setrlimit(RLIMIT_CORE, &none); /* a crash is an answer */
  setrlimit(RLIMIT_CPU, &cpu);
#if !defined __SANITIZE_ADDRESS__ && !defined __SANITIZE_THREAD__ /* they map terabytes */
  struct rlimit memory = {MOST_BYTES, MOST_BYTES};
  setrlimit(RLIMIT_AS, &memory);
#endif
}

static size_t number_of(const layout_t *wanted) {
  const layout_t *known;
  for (size_t i = 0; (known = layout_known(i)) != NULL; i++)
    if (known == wanted) return i;
  return SIZE_MAX;
}

static void read_debug(const char *path, answer_t *answer) {
  layout_debug_t made;
  failure_t failure = {""};
  if (!layout_debug_read(&made, path, &failure)) {
    size_t head = strlen(path);
    if (made.there && strncmp(failure.text, path, head) == 0 && strncmp(failure.text + head, ": ", 2) == 0)
      failure_set(&answer->why_not, "%s", failure.text + head + 2);
    return;
  }
  const char *outside = layout_outside(&made.layout); /* anybody's: what it says is not taken for possible */
  if (outside != NULL) {
    failure_set(&answer->why_not, "its debug information has %s outside of its structure", outside);
    return;
  }
  answer->layout = made.layout;
  answer->known = number_of(made.wider);
  answer->there = true;
}

static _Noreturn void answer_and_end(const char *path, int fd) {
  answer_t answer = {.there = false};
  set_limits();
  read_debug(path, &answer);
  bool said =
      write(fd, &answer, sizeof answer) == (ssize_t)sizeof answer; /* below PIPE_BUF: whole or not at all */
  _exit(said ? 0 : 1);                                             /* nothing of the parent's is flushed */
}

/* -- the parent --------------------------------------------------------------------------------------------------- */

static bool hear(int fd, answer_t *answer) {
  struct pollfd wait = {fd, POLLIN, 0};
  int ready;
  do ready = poll(&wait, 1, MOST_MS); /* a signal lets it wait anew: one or two come at most */
  while (ready < 0 && errno == EINTR);
  return ready > 0 && read(fd, answer, sizeof *answer) == (ssize_t)sizeof *answer;
}

static void ask_child(const char *path, answer_t *answer) {
  int ends[2];
  _Static_assert(sizeof *answer <= 4096, "it fits into a pipe at once");
  if (pipe2(ends, O_CLOEXEC) != 0) return;
  pid_t child = fork();
  if (child == 0) answer_and_end(path, ends[1]);
  close(ends[1]);
  if (child > 0 && !hear(ends[0], answer)) {
    *answer = (answer_t){.there = false};
    failure_set(&answer->why_not, "its debug information could not be read within %d s and %d MiB",
                MOST_CPU_S, MOST_BYTES >> 20);
    kill(child, SIGKILL);
  }
  close(ends[0]);
  while (child > 0 && waitpid(child, NULL, 0) < 0 && errno == EINTR) continue;
}

static bool same_file(const file_t *a, const file_t *b) {
  return a->device == b->device && a->inode == b->inode && a->size == b->size &&
         a->modified.tv_sec == b->modified.tv_sec && a->modified.tv_nsec == b->modified.tv_nsec;
}

static const answer_t *answer_of(const char *path, answer_t *answer) {
  struct stat status;
  if (stat(path, &status) != 0 || !S_ISREG(status.st_mode)) return answer;
  file_t file = {status.st_dev, status.st_ino, status.st_size, status.st_mtim};
  for (size_t i = 0; i < remembered_count && i < FILES; i++)
    if (same_file(&remembered[i].file, &file)) return &remembered[i].answer;
  ask_child(path, answer);
  size_t at = remembered_count++ % FILES; /* the oldest goes */
  remembered[at].file = file;
  remembered[at].answer = *answer;
  return answer;
}

const layout_t *layout_apart_read(const char *path, layout_t *room, failure_t *why_not) {
  answer_t fresh = {.there = false};
  const answer_t *answer = answer_of(path, &fresh);
  *why_not = answer->why_not;
  if (!answer->there) return NULL;
  const layout_t *known = answer->known != SIZE_MAX ? layout_known(answer->known) : NULL;
  if (known != NULL) return known;
  *room = answer->layout;
  return room;
}
