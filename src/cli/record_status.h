/* SPDX-License-Identifier: MIT */
/* What luapulse record says while it records: a line that is renewed where a person looks on, and lines of what happens. */
#ifndef LUAPULSE_CLI_RECORD_STATUS_H
#define LUAPULSE_CLI_RECORD_STATUS_H

#include "attach/recorder.h"

typedef struct {
  unsigned hz;
  bool quiet;
  bool terminal; /* standard error is one */
  bool shown;    /* the line stands there now */
  bool samples;  /* a process is sampled, or was */
  int64_t began; /* since then; before, now */
  int64_t due;
  uint64_t last_samples;
  int64_t last;
  double rate; /* samples in a second, of late */
} record_status_t;

void record_status_begin(record_status_t *status, unsigned hz, bool quiet);
/* To be called all the time: renews the line a few times in a second. */
void record_status_update(record_status_t *status, const recorder_counts_t *counts);
/* Takes the line away: something else is to be said. */
void record_status_clear(record_status_t *status);
/* The summary at the end. */
void record_status_end(record_status_t *status, const recorder_counts_t *counts);

#endif
