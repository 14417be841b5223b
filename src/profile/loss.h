/* SPDX-License-Identifier: MIT */
/* What was lost, by reason. Losses are data: every output shows them. */
#ifndef LUAPULSE_PROFILE_LOSS_H
#define LUAPULSE_PROFILE_LOSS_H

typedef enum {
  LOSS_OVERFLOW,     /* samples whose stack found no room in the tables; kept under the [overflow] frame */
  LOSS_TRUNCATED,    /* samples whose stack was deeper than recorded; they begin with the [truncated] frame */
  LOSS_UNATTRIBUTED, /* samples taken while no Lua function ran; kept under the [outside Lua] frame */
  LOSS_DROPPED,      /* samples that could not be recorded at all */
  LOSS_RATE_LIMITED, /* samples skipped to keep to cpu_max_samples_per_sec; those kept carry their weight */
  LOSS_GONE, /* samples with a function that was collected before it could be read; it is [gone] on their stacks */
  LOSS_COUNT
} loss_t;

/* The word for a reason, as outputs and comments spell it: "overflow", "rate_limited" … */
const char *loss_name(loss_t reason);

#endif
