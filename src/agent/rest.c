/* SPDX-License-Identifier: MIT */
/* Watching a thread rest; see rest.h. */
#include "agent/rest.h"

#include <stdbool.h>
#include <sys/resource.h>

#include "agent/time.h"

enum {
  WINDOW = 200000000,   /* ns */
  RESTS_BELOW = 95,     /* % of the window on the processor */
  WORKS_FROM = 99,      /* % */
  WINDOWS_OF_WORK = 15, /* three seconds, before a thread counts as one that does not rest */
  MOST_SWITCHES = 1000  /* a second: a perf event adds about 2 µs to each in a virtual machine */
};

static void begin(rest_t *rest, uint64_t now, uint64_t cpu, uint64_t switches, uint64_t rests) {
  rest->since = now;
  rest->cpu = cpu;
  rest->switches = switches;
  rest->rests = rests;
}

rest_verdict_t rest_look(rest_t *rest, uint64_t cpu) {
  uint64_t now = time_monotonic(), wall = now - rest->since, worked = cpu - rest->cpu;
  if (rest->since != 0 && wall < WINDOW) return REST_UNDECIDED;
  struct rusage usage;
  if (getrusage(RUSAGE_THREAD, &usage) != 0) return REST_UNDECIDED;
  uint64_t rests = (uint64_t)usage.ru_nvcsw, switches = rests + (uint64_t)usage.ru_nivcsw;
  uint64_t rested = rests - rest->rests, switched = switches - rest->switches;
  bool first = rest->since == 0;
  begin(rest, now, cpu, switches, rests);
  if (first) return REST_UNDECIDED;
  /* a thread that others have kept from the processor has not rested */
  bool works = rested == 0 || worked * 100 >= wall * WORKS_FROM;
  rest->windows_of_work = works ? rest->windows_of_work + 1 : 0;
  if (switched * 1000000000u > wall * MOST_SWITCHES) return REST_RESTLESS;
  if (works) return rest->windows_of_work >= WINDOWS_OF_WORK ? REST_NONE : REST_UNDECIDED;
  return worked * 100 < wall * RESTS_BELOW ? REST_SOME : REST_UNDECIDED;
}
