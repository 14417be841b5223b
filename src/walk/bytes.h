/* SPDX-License-Identifier: MIT */
/* Fields out of bytes that were read. */
#ifndef LUAPULSE_WALK_BYTES_H
#define LUAPULSE_WALK_BYTES_H

#include <stdint.h>

#if defined \
    __bpf__ /* its compiler would load byte by byte; the kernel permits whole words where the processor does */
static inline uint64_t bytes_u64(const uint8_t *bytes, uint32_t offset) {
  return *(const uint64_t *)(bytes + offset);
}

static inline uint32_t bytes_u32(const uint8_t *bytes, uint32_t offset) {
  return *(const uint32_t *)(bytes + offset);
}
#else
static inline uint64_t bytes_u64(const uint8_t *bytes, uint32_t offset) {
  uint64_t value;
  __builtin_memcpy(&value, bytes + offset, sizeof value);
  return value;
}

static inline uint32_t bytes_u32(const uint8_t *bytes, uint32_t offset) {
  uint32_t value;
  __builtin_memcpy(&value, bytes + offset, sizeof value);
  return value;
}
#endif

static inline void bytes_clear(uint8_t *bytes, uint32_t offset, uint32_t size) {
  for (uint32_t i = 0; i < size; i++) bytes[offset + i] = 0;
}

/* A reference of 4 or 8 bytes. */
static inline uint64_t bytes_ref(const uint8_t *bytes, uint32_t offset, uint32_t size) {
  return size == 4 ? bytes_u32(bytes, offset) : bytes_u64(bytes, offset);
}

#endif
