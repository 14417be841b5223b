/* SPDX-License-Identifier: MIT */
/* Lua that stands in nginx's configuration: `content_by_lua_block { … }` at line 42 of nginx.conf is a chunk "=content_by_lua(nginx.conf:42)".
 *
 * The chunk's name has no folder, or one below that of the main file. The file is looked for where the master process was told to find its configuration, where packages put it,
 * and among what that includes; one counts in which the directive stands at that very line. */
#ifndef LUAPULSE_ATTACH_INLINE_SOURCE_H
#define LUAPULSE_ATTACH_INLINE_SOURCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

typedef struct {
  char directive[64]; /* "content_by_lua" */
  char file[128];     /* "nginx.conf", "sites/shop.conf"; of a long one its end, behind dots */
  uint32_t line;      /* where the directive stands */
} inline_source_t;

/* Reads the name of a chunk as Lua keeps it. False when it is another. */
bool inline_source_parse(inline_source_t *source, const char *name, size_t len);
/* The Lua of it in the text of the file, which begins behind the brace, in the directive's line: that is its line 1. NULL: it is not there. */
const char *inline_source_text(const inline_source_t *source, const char *text, size_t len);
/* The path of the file, as `*whose`, which is the process or its parent, sees it; see target_file.h. False when it was not found. */
bool inline_source_find(const inline_source_t *source, pid_t pid, pid_t *whose, char *path, size_t size);

#endif
