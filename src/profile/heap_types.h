/* SPDX-License-Identifier: MIT */
/* The sample types of heap profiles, and what follows from them.
 *
 * alloc_* is all that was allocated, inuse_* what was live when the profile was taken. What was freed follows: free_* = alloc - inuse
 * is in no file of ours, it is computed when asked for. Live blocks that survived collections stand in samples of their own, with the
 * number of collections as a label, rounded down to a power of two; a sample without it has blocks that survived none, and what was
 * allocated. */
#ifndef LUAPULSE_PROFILE_HEAP_TYPES_H
#define LUAPULSE_PROFILE_HEAP_TYPES_H

#include "profile/profile.h"

#define HEAP_SURVIVED "gc_cycles_survived" /* key of the label */
#define HEAP_CYCLES "heap_gc_cycles"       /* comment: collections completed while profiling */
#define HEAP_MEAN "heap_sample_mean_bytes" /* comment: one sample in so many bytes */

/* True when the type tells of memory: alloc_, inuse_, free_ or peak_objects or _space. */
bool heap_is_type(const profile_t *p, size_t type);

/* Index of the type with that name, or PROFILE_NONE. free_space and free_objects are added to a profile that has them not but could:
 * then it has one type more. When memory is out the profile fails. */
uint32_t heap_find_type(profile_t *p, const char *name);

/* The names that heap_find_type() finds, with commas between. */
enum { HEAP_NAMES_BYTES = 512 };
void heap_type_names(const profile_t *p, char names[HEAP_NAMES_BYTES]);

/* How many collections the blocks of samples with these labels have survived; 0 when no label says so. */
int64_t heap_cycles_survived(const profile_t *p, uint32_t label_set);

/* A comment "heap_KEY: NUMBER", the number not negative, or false. `key` is with its "heap_". */
bool heap_parse_comment(text_t comment, text_t *key, int64_t *number);
/* The number in the first comment with that key, or false. */
bool heap_told(const profile_t *p, const char *key, int64_t *number);

#endif
