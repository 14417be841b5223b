/* SPDX-License-Identifier: MIT */
/* How a walk reads memory: one function, which can fail. Behind it lies the own process, another one, or a recording. */
#ifndef LUAPULSE_WALK_MEMORY_H
#define LUAPULSE_WALK_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

/* What is known of an address before it is read. */
typedef enum {
  WALK_GUESS, /* may lead anywhere */
  WALK_LEAD, /* the VM leads there, or did a moment ago: it may be gone, but nobody else than the VM's thread lets it go */
  WALK_LIVE /* a live object of the VM leads there: in the own process a plain load will do */
} walk_trust_t;

/* Places that are read from their top downwards, piece by piece: worth fetching in larger pieces. */
typedef enum { WALK_SLOTS, WALK_CALLS, WALK_REGIONS } walk_region_t;

enum { WALK_FORESEEN = 16 /* at most */ };

/* Addresses of user space are below; on arm64 beyond 48 bits are those alone that a program asks for by name. */
#if defined __aarch64__ || defined __TARGET_ARCH_arm64
#define WALK_HIGHEST ((uint64_t)1 << 48)
#else
#define WALK_HIGHEST ((uint64_t)1 << 47)
#endif

typedef struct walk_memory {
  /* Copies [from, from + len); false when some of it cannot be read. */
  bool (*read)(struct walk_memory *memory, void *to, uint64_t from, uint32_t len, walk_trust_t trust);
  /* Reads of the region will lie in [low, high), going down. May be NULL. */
  void (*expect)(struct walk_memory *memory, walk_region_t region, uint64_t low, uint64_t high);
  /* Guesses that will be read next, `len` bytes of each; none: those have been read. May be NULL. */
  void (*foresee)(struct walk_memory *memory, const uint64_t *addresses, uint32_t count, uint32_t len);
  /* What was read may have been kept, and is to be read anew: the process may have run. NULL: nothing is kept. */
  void (*forget)(struct walk_memory *memory);
  bool direct; /* what is live may be loaded where it is: the own process, where the VM stands still */
} walk_memory_t;

#if defined __bpf__

/* Of functions: BPF takes one unit, and calls go 8 deep at most. */
#define WALK_LOCAL static inline __attribute__((always_inline, unused))
#define WALK_PLACE WALK_LOCAL
/* Verified on its own, whatever it is called with: pointers may be NULL as far as it knows. */
#define WALK_APART __attribute__((noinline, weak))
#define WALK_APART_PLACE WALK_APART
#define walk_given(pointer) ((pointer) != NULL)

#define walk_read(memory, to, from, len, trust) \
  ((void)(memory), (void)(trust), bpf_probe_read_user(to, len, (const void *)(from)) == 0)

#else

#define WALK_LOCAL static
#define WALK_PLACE
#define WALK_APART static
#define WALK_APART_PLACE
#define walk_given(pointer) ((void)(pointer), true)

static inline bool walk_read(walk_memory_t *memory, void *to, uint64_t from, uint32_t len,
                             walk_trust_t trust) {
#if !defined __SANITIZE_ADDRESS__ && \
    !defined __SANITIZE_THREAD__ /* they would object to some of these loads */
  if (memory->direct && trust == WALK_LIVE && from >= 65536 && from <= WALK_HIGHEST - len) {
    __builtin_memcpy(to, (const void *)(uintptr_t)from, len);
    return true;
  }
#endif
  return memory->read(memory, to, from, len, trust);
}

#endif

#endif
