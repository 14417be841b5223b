/* SPDX-License-Identifier: MIT */
/* Heap memory of the profiler: the only door to malloc, so that tests can make any allocation fail.
 * No function here aborts: a failed allocation is a NULL for the caller to handle. */
#ifndef LUAPULSE_PROFILE_MEM_H
#define LUAPULSE_PROFILE_MEM_H

#include <stdbool.h>
#include <stddef.h>

/* realloc() unless a test replaces it. Not called from signal handlers or hooks. */
extern void *(*mem_realloc)(void *old, size_t size);

/* Zeroed, NULL on failure. Of a large block only what is used takes memory, and time. */
void *mem_alloc(size_t size);
void mem_free(void *block);

/* Makes room for `need` elements of `size` bytes in *array, doubling *capacity.
 * On failure the array and its capacity are unchanged and false comes back. */
bool mem_reserve(void **array, size_t *capacity, size_t need, size_t size);

#endif
