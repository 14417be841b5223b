/* SPDX-License-Identifier: MIT */
/* What probe and dump share; see attach_options.h. */
#include "cli/attach_options.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "format/encoding.h"
#include "profile/mem.h"

enum { MAX_LAYOUT_FILE = 65536, MOST_PID = 1 << 22 /* the kernel's PID_MAX_LIMIT */ };

static bool is_told(const attach_pids_t *pids, pid_t pid) {
  for (size_t i = 0; i < pids->count; i++)
    if (pids->pids[i] == pid) return true;
  return false;
}

bool attach_parse_pids(const char *text, attach_pids_t *pids) {
  for (const char *at = text;; at++) {
    char *end;
    errno = 0;
    long pid = strtol(at, &end, 10);
    if (errno != 0 || *at < '0' || *at > '9' || pid <= 0 || pid > MOST_PID || pids->count == ATTACH_MAX_PIDS)
      return false;
    if (!is_told(pids, (pid_t)pid)) pids->pids[pids->count++] = (pid_t)pid;
    if (*end == '\0') return true;
    if (*end != ',') return false;
    at = end;
  }
}

static bool is_claimed(const idents_t *idents, const layout_t *layout) {
  for (size_t i = 0; i < idents->count; i++)
    if (idents->idents[i].family == layout->family && idents->idents[i].language == layout->language)
      return true;
  return false;
}

bool attach_read_layout(const char *path, const idents_t *idents, layout_t *layout, failure_t *failure) {
  char *text = mem_alloc(MAX_LAYOUT_FILE);
  if (text == NULL) return failure_set(failure, "out of memory");
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK); /* a pipe has no layout */
  ssize_t len = fd >= 0 ? read(fd, text, MAX_LAYOUT_FILE) : -1;
  int problem = errno;
  layout_error_t error = {""};
  layout_t next;
  size_t at = 0, count = 0;
  bool fits = false;
  if (fd >= 0) close(fd);
  while (len > 0 && !fits && layout_parse(text, (size_t)len, &at, &next, &error)) {
    fits = is_claimed(idents, &next);
    if (fits || count++ == 0) *layout = next;
  }
  mem_free(text);
  if (len < 0) return failure_set(failure, "cannot read the layout file %s: %s", path, strerror(problem));
  if (len == 0) return failure_set(failure, "layout file %s: it is empty", path);
  if (error.text[0] != '\0') return failure_set(failure, "layout file %s: %s", path, error.text);
  if (count == 0 && !fits) return failure_set(failure, "layout file %s: there is no layout in it", path);
  if (!fits && idents->count > 0)
    return failure_set(failure, "layout file %s: no layout in it is for %s, which is in there", path,
                       idents->idents[0].text);
  return true;
}

void attach_print(sink_t *sink, const char *text) {
  encoding_write(sink, ENCODING_SHOWN, text, strlen(text));
}

void attach_print_head(sink_t *sink, const target_t *target) {
  const process_t *process = &target->process;
  sink_format(sink, "process %d", (int)process->pid);
  if (process->inner != process->pid) sink_format(sink, " (%d in its container)", (int)process->inner);
  sink_text(sink, ": ");
  attach_print(sink, process->command[0] != '\0' ? process->command : process->name);
  sink_text(sink, "\n");
}
