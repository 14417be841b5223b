/* SPDX-License-Identifier: MIT */
/* Reading /proc/PID/stat; see process_stat.h. */
#include "attach/process_stat.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Fields as proc(5) numbers them. */
enum {
  FIELD_STATE = 3,
  FIELD_PARENT = 4,
  FIELD_FLAGS = 9,
  FIELD_USER_TIME = 14,
  FIELD_SYSTEM_TIME = 15,
  FIELD_THREADS = 20,
  FIELD_STARTED = 22,
  FIELD_CODE = 26,
  FIELD_CODE_END = 27,
  FIELD_STACK = 28,
  FIELD_DATA = 45,
  FIELD_DATA_END = 46,
  FIELD_BREAK = 47
};

enum { FLAG_OF_THE_KERNEL = 0x200000 /* PF_KTHREAD */ };
enum { TICKS_IN_A_SECOND = 100 /* of what the kernel tells programs, on every platform that this is for */ };

static uint64_t mix(uint64_t sum, uint64_t value) {
  return (sum ^ value) * 0x9e3779b97f4a7c15u + (sum >> 29);
}

static void take_field(process_stat_t *stat, int field, uint64_t value) {
  switch (field) {
    case FIELD_PARENT:
      stat->parent = (pid_t)value;
      break;
    case FIELD_FLAGS:
      stat->of_the_kernel = (value & FLAG_OF_THE_KERNEL) != 0;
      break;
    case FIELD_USER_TIME:
    case FIELD_SYSTEM_TIME:
      stat->cpu += (int64_t)(value * 1000000000 / TICKS_IN_A_SECOND);
      break;
    case FIELD_THREADS:
      stat->threads = (uint32_t)value;
      break;
    case FIELD_STARTED:
      stat->started = value;
      stat->space = mix(stat->space, value);
      break;
    case FIELD_CODE:
      stat->space = value != 0 ? mix(stat->space, value) : 0;
      break;
    case FIELD_CODE_END:
    case FIELD_STACK:
    case FIELD_DATA:
    case FIELD_DATA_END:
    case FIELD_BREAK:
      if (stat->space != 0) stat->space = mix(stat->space, value);
      break;
    default:
      break;
  }
}

/* The digits from there on, without a sign: of what counts here none has one. It is done for each sample, and strtoull() takes longer. */
static uint64_t number_at(const char **at) {
  uint64_t value = 0;
  for (*at += **at == '-'; **at >= '0' && **at <= '9'; ++*at) value = value * 10 + (uint64_t)(**at - '0');
  return value;
}

static bool parse(process_stat_t *stat, const char *line) {
  const char *name = strchr(line, '('), *end = strrchr(line, ')'); /* a name may hold either */
  if (name == NULL || end == NULL || end < name || end[1] != ' ') return false;
  size_t len = (size_t)(end - name - 1);
  memset(stat, 0, sizeof *stat);
  stat->space = number_at(&line);
  memcpy(stat->name, name + 1, len < sizeof stat->name ? len : sizeof stat->name - 1);
  stat->state = end[2];
  const char *at = end + 2 + (end[2] != '\0');
  for (int field = FIELD_STATE + 1; *at == ' ' && field <= FIELD_BREAK; field++) {
    at++;
    take_field(stat, field, number_at(&at));
  }
  return true;
}

bool process_stat_at(process_stat_t *stat, int fd) {
  char line[1024];
  ssize_t len = pread(fd, line, sizeof line - 1, 0);
  if (len <= 0) return false;
  line[len] = '\0';
  return parse(stat, line);
}

static bool read_path(process_stat_t *stat, const char *path) {
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  bool ok = process_stat_at(stat, fd);
  close(fd);
  return ok;
}

bool process_stat(process_stat_t *stat, pid_t pid) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
  return read_path(stat, path);
}

bool process_stat_of_thread(process_stat_t *stat, pid_t pid, pid_t tid) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/task/%d/stat", (int)pid, (int)tid);
  return read_path(stat, path);
}
