/* SPDX-License-Identifier: MIT */
/* libFuzzer over the readers: no input crashes them, and what they accept can be written and read again, and judged for leaks. */
#include <stdint.h>
#include <stdlib.h>

#include "format/format.h"
#include "format/read.h"
#include "profile/heap_types.h"
#include "profile/leak.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void write_and_read(profile_t *profile, void (*write)(const profile_t *, sink_t *)) {
  sink_t *sink = sink_to_memory();
  size_t len;
  if (sink == NULL) return;
  write(profile, sink);
  const char *written = sink_memory(sink, &len);
  profile_t *again = written != NULL ? profile_read(written, len, (size_t)1 << 26, NULL) : NULL;
  if (again == NULL) abort();
  profile_free(again);
  sink_close(sink, NULL);
}

static void try_heap(profile_t *profile) {
  leak_free(leak_find(profile, LEAK_BY_LINE, 1, NULL));
  leak_free(leak_find(profile, LEAK_BY_PATH, 4, NULL));
  heap_find_type(profile, "free_space");
}

static void try_writers(profile_t *profile) {
  static void (*const one_way[])(const profile_t *, sink_t *) = {speedscope_write, callgrind_write,
                                                                 text_write};
  if (profile == NULL) return;
  try_heap(profile);
  if (profile->type_count > 0) {
    write_and_read(profile, pprof_write);
    write_and_read(profile, folded_write);
  }
  for (size_t i = 0; i < sizeof one_way / sizeof *one_way; i++) {
    sink_t *sink = sink_to_memory();
    if (sink == NULL) break;
    one_way[i](profile, sink);
    sink_close(sink, NULL);
  }
  profile_free(profile);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  try_writers(pprof_read((const char *)data, size, NULL));
  try_writers(folded_read((const char *)data, size, NULL));
  profile_free(profile_read((const char *)data, size, (size_t)1 << 22, NULL));
  return 0;
}
