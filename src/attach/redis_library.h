/* SPDX-License-Identifier: MIT */
/* Names for functions of Redis's libraries (FUNCTION LOAD), which are all in chunks called "@user_function".
 *
 * Mental model. What Redis calls has no caller in Lua and is in no table, and its name is in structures of Redis alone. But Redis keeps
 * the text of each library, which begins with "#!lua name=", for replicas and for FUNCTION LIST: a string of its own (sds), whose length
 * stands before it. The writable memory is searched for these texts once, as the process runs, and they serve as source files do.
 *
 * Which of several texts a function is from is told by its lines, and by the words in it (proto_words.h). Texts of libraries that were
 * replaced may lie in freed memory: if two texts fit and differ in what they call the function, it has no name. That what was found is
 * all there is, is made sure of: functions that were registered are in the registry, by number; when these are others than before the search,
 * there are texts that are not known, and before the next search there are no names. Nor are there if not all memory could be searched. */
#ifndef LUAPULSE_ATTACH_REDIS_LIBRARY_H
#define LUAPULSE_ATTACH_REDIS_LIBRARY_H

#include "attach/runtime.h"

enum { REDIS_LIBRARY_NAME = 256 };

typedef struct redis_library redis_library_t;

redis_library_t *redis_library_new(void); /* NULL when memory is out */
void redis_library_free(redis_library_t *libraries);

/* Whether the source, as Lua keeps it, is that of all libraries. */
bool redis_library_is_source(const char *source, size_t len);
/* The name that the text has for a function, and its length; 0: there is none. target->walk is aimed anew. */
size_t redis_library_name(redis_library_t *libraries, target_t *target, const runtime_t *runtime,
                          uint64_t proto, uint32_t mark, char name[REDIS_LIBRARY_NAME]);

#endif
