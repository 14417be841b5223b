/* SPDX-License-Identifier: MIT */
/* A hash index over an array the caller owns: finds the position of an equal element, or a free slot for a
 * new one. */
#ifndef LUAPULSE_PROFILE_INTERN_H
#define LUAPULSE_PROFILE_INTERN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct intern {
  uint32_t *slots;  /* position + 1; 0 is free */
  uint32_t *hashes; /* of the element in the same slot */
  size_t room;      /* a power of two */
  size_t used;
} intern_t;

/* True when the element at `position` of the caller's array equals the one looked for. */
typedef bool intern_equal_t(const void *owner, const void *wanted, uint32_t position);

intern_t *intern_new(void);
void intern_free(intern_t *index);
void intern_clear(intern_t *index); /* as new, but with the room it has */
/* The position of an equal element, or UINT32_MAX. */
uint32_t intern_find(const intern_t *index, uint32_t hash, intern_equal_t *equal, const void *owner,
                     const void *wanted);
/* Enters a position that intern_find did not find. False when memory is out: nothing changed. */
bool intern_add(intern_t *index, uint32_t hash, uint32_t position);

uint32_t hash_bytes(const void *data, size_t len, uint32_t seed);

#endif
