/* SPDX-License-Identifier: MIT */
/* Whether a layout agrees with a process that is held. */
#ifndef LUAPULSE_ATTACH_RUNTIME_CHECK_H
#define LUAPULSE_ATTACH_RUNTIME_CHECK_H

#include "attach/runtime.h"

typedef struct {
  target_t *target;
  const layout_t *layout;
  bool strict; /* what is rarely otherwise must be so, too: tells releases apart that differ in little else */
  bool
      patient; /* there will be no other look: a VM in memory may have calls that were not found on a native stack */
  vms_t *vms; /* found so far */
  uint64_t vm_low, vm_high;
  unsigned frames, functions; /* that agreed */
  unsigned walked, unwalked;  /* stacks; a thread may be stopped while a frame is made, so some may fail */
  char why[RUNTIME_WHY];
} check_t;

/* By what runs on the threads, and by VMs whose main threads were seen in memory. True: it agrees, and why says by what. False: why says
 * what is at odds. A check_t is for one call. */
bool check_running(check_t *check);
bool check_in_memory(check_t *check, const uint64_t *mains, size_t count);

#endif
