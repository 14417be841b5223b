/* SPDX-License-Identifier: MIT */
/* Reading profiles back: pprof (gzip'd or raw) and folded text, told apart by content. Not part of the agent.
 * Input is hostile: every index is checked, sizes are bounded, errors say what is wrong and where. */
#ifndef LUAPULSE_FORMAT_READ_H
#define LUAPULSE_FORMAT_READ_H

#include "profile/failure.h"
#include "profile/profile.h"

/* The largest file, decompressed, that profile_read_file() takes. */
#define READ_LIMIT_BYTES ((size_t)1 << 30)

/* Path "-" is standard input. NULL with a failure that names the path. */
profile_t *profile_read_file(const char *path, failure_t *failure);

/* The same for bytes in memory, which may grow to `limit` bytes when decompressed. */
profile_t *profile_read(const char *data, size_t len, size_t limit, failure_t *failure);

profile_t *pprof_read(const char *data, size_t len, failure_t *failure); /* raw protobuf, not compressed */
profile_t *folded_read(const char *data, size_t len, failure_t *failure);

#endif
