/* SPDX-License-Identifier: MIT */
/* Whether a layout agrees with a process that is held. */
#ifndef LUAPULSE_ATTACH_RUNTIME_CHECK_H
#define LUAPULSE_ATTACH_RUNTIME_CHECK_H

#include "attach/runtime.h"

enum { CHECK_PROTOS = 256 /* functions of an idle VM that are looked at */ };

/* An idle VM whose list of objects is too long to be followed while the process is held. It is, while the process runs; what was found is
 * checked at the next hold. */
typedef struct {
  uint64_t main; /* 0: there is none */
  bool followed;
  uint64_t protos[CHECK_PROTOS];
  size_t count;
} check_long_t;

typedef struct {
  target_t *target;
  const layout_t *layout;
  bool strict; /* what is rarely otherwise must be so, too: tells releases apart that differ in little else */
  bool
      patient; /* there will be no other look: a VM in memory may have calls that were not found on a native stack */
  vms_t *vms; /* found so far */
  check_long_t
      *too_long; /* of this layout, from hold to hold: the first VM of the kind that may have functions */
  int64_t until; /* CLOCK_MONOTONIC, ns: so long lists of objects may be followed, for the process is held */
  uint64_t vm_low, vm_high;
  unsigned frames, functions; /* that agreed */
  unsigned walked, unwalked;  /* stacks; a thread may be stopped while a frame is made, so some may fail */
  char why[RUNTIME_WHY];
} check_t;

/* By what runs on the threads, and by VMs whose main threads were seen in memory. True: it agrees, and why says by what. False: why says
 * what is at odds. A check_t is for one call. */
bool check_running(check_t *check);
bool check_in_memory(check_t *check, const uint64_t *mains, size_t count);
/* Follows the list of a VM that was left over for that; the process runs. */
void check_follow(target_t *target, const layout_t *layout, check_long_t *too_long);

#endif
