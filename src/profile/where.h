/* SPDX-License-Identifier: MIT */
/* The samples of a profile that carry a label: those of a process, a thread, a state of the VM. */
#ifndef LUAPULSE_PROFILE_WHERE_H
#define LUAPULSE_PROFILE_WHERE_H

#include "profile/profile.h"

/* Takes out the samples that have no label `key` with that value, numbers as their digits; `key` is not NUL-terminated. Gives how many
 * are left. What was lost stays as it was, of the whole. For profiles that are complete: samples are not found by stack and labels any more. */
size_t where_keep(profile_t *p, const char *key, size_t key_len, const char *value);

/* The values that samples have for a key, each once, as "12, 34, 56", as far as there is room. Gives the length, 0: none. */
size_t where_values(const profile_t *p, const char *key, size_t key_len, char *text, size_t size);

#endif
