/* SPDX-License-Identifier: MIT */
/* zlib's allocator; see zip.h. */
#include "format/zip.h"

#include "profile/mem.h"

static void *zip_alloc(void *opaque, unsigned items, unsigned size) {
  (void)opaque;
  return mem_alloc((size_t)items * size);
}

static void zip_free(void *opaque, void *block) {
  (void)opaque;
  mem_free(block);
}

void zip_use_own_memory(z_stream *stream) {
  stream->zalloc = zip_alloc;
  stream->zfree = zip_free;
}
