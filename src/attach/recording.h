/* SPDX-License-Identifier: MIT */
/* The profile that a recording makes: samples with their stacks, labels and losses, within a bound of memory. Of recorder.c alone. */
#ifndef LUAPULSE_ATTACH_RECORDING_H
#define LUAPULSE_ATTACH_RECORDING_H

#include "attach/recorder.h"

typedef struct recording recording_t;

recording_t *recording_new(uint32_t hz); /* NULL when memory is out */
void recording_free(recording_t *recording);
bool recording_ok(const recording_t *recording);

/* Takes a sample: reads what is not known of its functions from the target (NULL: it is not to be read, or not any more) and keeps it for
 * recording_settle(). */
void recording_take(recording_t *recording, const engine_sample_t *sample, target_t *target,
                    const runtimes_t *runtimes);
/* Counts a sample, and no more. `collecting`: it was in the code of PUC Lua's collector. */
void recording_count(recording_t *recording, const engine_sample_t *sample, bool collecting);
/* Adds the samples that were taken to the profile, with their names. Before a target goes. */
void recording_settle(recording_t *recording);
/* Notes what is recorded, for the profile's head. */
void recording_describe(recording_t *recording, const target_t *target, const runtimes_t *runtimes);
/* The target is about to be closed. */
void recording_forget(recording_t *recording, const target_t *target);

/* What it has counted itself; the rest is zero. */
void recording_counts(const recording_t *recording, recorder_counts_t *counts);
/* As recorder_window(). */
profile_t *recording_window(recording_t *recording);
/* As recorder_finish(). */
profile_t *recording_finish(recording_t *recording, const char *engine, const recorder_counts_t *counts);

#endif
