/* SPDX-License-Identifier: MIT */
/* Waiting, on the wall clock: what a VM's thread waits for is found by walking its stack from the watcher's thread. */
#ifndef LUAPULSE_AGENT_WAITING_H
#define LUAPULSE_AGENT_WAITING_H

/* Gives every VM on the wall clock the time that has passed: as a sample where its thread waits, to be taken by its next
 * tick where it runs. */
void waiting_count_all(void);
/* Gives back the memory; the watcher ends. */
void waiting_end(void);

#endif
