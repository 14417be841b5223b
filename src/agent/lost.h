/* SPDX-License-Identifier: MIT */
/* VMs that have moved to a thread which does not tick: found, and the thread adopted. */
#ifndef LUAPULSE_AGENT_LOST_H
#define LUAPULSE_AGENT_LOST_H

/* A VM is lost when it runs on the native stack of no thread that ticks, or changes and gets no samples. Then threads that
 * use the processor are adopted for a while; the one where the VM shows itself stays. On the watcher's thread alone. */
void lost_look(void);

#endif
