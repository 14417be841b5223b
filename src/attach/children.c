/* SPDX-License-Identifier: MIT */
/* New processes; see children.h. */
#include "attach/children.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#include "attach/clock.h"
#include "attach/process_stat.h"
#include "profile/mem.h"

enum { EVERY_NS = 20 * 1000000, SHARE = 100 /* a look may cost 1/100 of the time */ };

static int by_number(const void *a, const void *b) {
  pid_t x = *(const pid_t *)a, y = *(const pid_t *)b;
  return (x > y) - (x < y);
}

static bool list(pid_t **pids, size_t *count, size_t *room) {
  DIR *folder = opendir("/proc");
  bool ok = folder != NULL;
  for (const struct dirent *entry; ok && (entry = readdir(folder)) != NULL;) {
    pid_t pid = entry->d_name[0] >= '1' && entry->d_name[0] <= '9' ? (pid_t)atoi(entry->d_name) : 0;
    if (pid == 0) continue;
    ok = mem_reserve((void **)pids, room, *count + 1, sizeof **pids);
    if (ok) (*pids)[(*count)++] = pid;
  }
  if (folder != NULL) closedir(folder);
  return ok;
}

void children_look(children_t *c, children_each_t *each, void *context) {
  int64_t begin = clock_now();
  pid_t *pids = NULL;
  size_t count = 0, room = 0;
  if (begin < c->due) return;
  if (!list(&pids, &count, &room) || count == 0) {
    mem_free(pids);
    return;
  }
  qsort(pids, count, sizeof *pids, by_number);
  for (size_t i = 0, k = 0; i < count; i++) {
    process_stat_t stat;
    while (k < c->count && c->seen[k] < pids[i]) k++;
    if ((k == c->count || c->seen[k] != pids[i]) && process_stat(&stat, pids[i]))
      each(context, pids[i], stat.parent);
  }
  mem_free(c->seen);
  *c = (children_t){pids, count, room, 0};
  int64_t end = clock_now(), pause = (end - begin) * SHARE;
  c->due = end + (pause > EVERY_NS ? pause : EVERY_NS);
}

void children_free(children_t *c) {
  mem_free(c->seen);
  memset(c, 0, sizeof *c);
}
