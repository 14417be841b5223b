/* SPDX-License-Identifier: MIT */
/* zlib with the profiler's own memory, so that its failures can be tested like all others. */
#ifndef LUAPULSE_FORMAT_ZIP_H
#define LUAPULSE_FORMAT_ZIP_H

#include <zlib.h>

/* 15 + 16: the largest window, with a gzip header. */
enum { ZIP_GZIP_WINDOW = 15 + 16 };

/* Before deflateInit2() or inflateInit2() of a zeroed stream. */
void zip_use_own_memory(z_stream *stream);

#endif
