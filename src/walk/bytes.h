/* SPDX-License-Identifier: MIT */
/* Fields out of bytes that were read. */
#ifndef LUAPULSE_WALK_BYTES_H
#define LUAPULSE_WALK_BYTES_H

#include <stdint.h>
#include <string.h>

static inline uint64_t bytes_u64(const uint8_t *bytes, uint32_t offset) {
  uint64_t value;
  memcpy(&value, bytes + offset, sizeof value);
  return value;
}

static inline uint32_t bytes_u32(const uint8_t *bytes, uint32_t offset) {
  uint32_t value;
  memcpy(&value, bytes + offset, sizeof value);
  return value;
}

/* A reference of 4 or 8 bytes. */
static inline uint64_t bytes_ref(const uint8_t *bytes, uint32_t offset, uint32_t size) {
  return size == 4 ? bytes_u32(bytes, offset) : bytes_u64(bytes, offset);
}

#endif
