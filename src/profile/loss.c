/* SPDX-License-Identifier: MIT */
/* Names of the reasons for which samples are lost. */
#include "profile/loss.h"

const char *loss_name(loss_t reason) {
  static const char *const names[LOSS_COUNT] = {"overflow", "truncated",    "unattributed",
                                                "dropped",  "rate_limited", "gone"};
  return reason < LOSS_COUNT ? names[reason] : "unknown";
}
