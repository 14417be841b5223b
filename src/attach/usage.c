/* SPDX-License-Identifier: MIT */
/* Reading what the kernel counts; see usage.h. */
#include "attach/usage.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { FILE_BYTES = 4096, NS_IN_A_TICK = 10000000 /* of what the kernel tells programs */ };

static bool read_file(const char *path, char text[FILE_BYTES]) {
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  ssize_t len = fd >= 0 ? read(fd, text, FILE_BYTES - 1) : -1;
  if (fd >= 0) close(fd);
  if (len <= 0) return false;
  text[len] = '\0';
  return true;
}

/* Fields as proc(5) numbers them, from the state on; names before it may hold anything. */
static bool read_stat(usage_t *u, pid_t pid) {
  enum { STATE = 3, MINOR = 10, MAJOR = 12, SYSTEM = 15 };
  char path[64], text[FILE_BYTES];
  snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
  if (!read_file(path, text)) return false;
  char *at = strrchr(text, ')');
  if (at == NULL || at[1] != ' ' || at[2] == '\0') return false;
  at += 3;
  for (int field = STATE + 1; *at == ' ' && field <= SYSTEM; field++) {
    uint64_t value = strtoull(at + 1, &at, 10);
    if (field == MINOR) u->minor = value;
    if (field == MAJOR) u->major = value;
    if (field == SYSTEM) u->system = (int64_t)(value * NS_IN_A_TICK);
  }
  return true;
}

static uint64_t number_after(const char *text, const char *key) {
  const char *at = strstr(text, key);
  return at != NULL ? strtoull(at + strlen(key), NULL, 10) : 0;
}

/* /proc/PID/task/TID/schedstat: time on a processor, time waiting for one, how often. */
static int64_t read_waited(pid_t pid, int tid) {
  char path[96], text[FILE_BYTES], *at;
  snprintf(path, sizeof path, "/proc/%d/task/%d/schedstat", (int)pid, tid);
  if (!read_file(path, text)) return 0;
  strtoull(text, &at, 10);
  return strtoll(at, NULL, 10);
}

static void read_threads(usage_t *u, pid_t pid) {
  char path[96], text[FILE_BYTES];
  snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
  DIR *folder = opendir(path);
  if (folder == NULL) return;
  for (const struct dirent *entry; (entry = readdir(folder)) != NULL;) {
    int tid = atoi(entry->d_name);
    snprintf(path, sizeof path, "/proc/%d/task/%d/status", (int)pid, tid);
    if (tid <= 0 || !read_file(path, text)) continue;
    u->voluntary += number_after(text, "\nvoluntary_ctxt_switches:");
    u->involuntary += number_after(text, "\nnonvoluntary_ctxt_switches:");
    u->waited += read_waited(pid, tid);
  }
  closedir(folder);
}

bool usage_read(usage_t *u, pid_t pid) {
  clockid_t id;
  struct timespec t;
  *u = (usage_t){.cpu = 0};
  if (!read_stat(u, pid) || clock_getcpuclockid(pid, &id) != 0 || clock_gettime(id, &t) != 0) return false;
  u->cpu = (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
  read_threads(u, pid);
  return true;
}

static uint64_t since(uint64_t now, uint64_t before) {
  return now > before ? now - before : 0;
}

usage_t usage_since(const usage_t *now, const usage_t *before) {
  return (usage_t){.cpu = now->cpu - before->cpu,
                   .system = now->system - before->system,
                   .minor = since(now->minor, before->minor),
                   .major = since(now->major, before->major),
                   .voluntary = since(now->voluntary, before->voluntary),
                   .involuntary = since(now->involuntary, before->involuntary),
                   .waited = now->waited > before->waited ? now->waited - before->waited : 0};
}

void usage_add(usage_t *sum, const usage_t *more) {
  sum->cpu += more->cpu;
  sum->system += more->system;
  sum->minor += more->minor;
  sum->major += more->major;
  sum->voluntary += more->voluntary;
  sum->involuntary += more->involuntary;
  sum->waited += more->waited;
}
