/* SPDX-License-Identifier: MIT */
/* What a Lua function is called, told from the source text at the line of its definition.
 *
 * Lua keeps no names of functions, only the line where each begins. That line says the name in most cases:
 * `function M.f(`, `local f = function(`, `f = function(` in a table. A function that is handed over at once goes
 * by the name that it is registered by: `redis.register_function("f", function(`, `{ function_name = "f",
 * callback = function(`, `core.register_action("f", { "http-req" }, function(`. A wrong name is worse than none:
 * where the line can be read in two ways there is none.
 *
 * Limit: only that line is read, and the nearest one before it that has code on it; for what is registered,
 * eight lines before it. That they lie in a long string or comment begun further up is not seen. */
#ifndef LUAPULSE_NAME_DEFINITION_H
#define LUAPULSE_NAME_DEFINITION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Of a longer text only so much is searched for the line. */
#define DEFINITION_MAX_TEXT ((size_t)1 << 20)

/* Writes the name of the function defined at `line` (from 1) of a Lua text and a NUL; gives its length. 0: it
 * has no name, more than one function begins there, the line is longer than 4 KiB, or the name does not fit.
 * `text` needs no NUL at its end and is never read outside of len. Async-signal-safe: no allocation, 3 KiB of
 * stack, time bounded by the search for the line: one or two milliseconds in DEFINITION_MAX_TEXT bytes. */
size_t definition_name(const char *text, size_t len, uint32_t line, char *name, size_t size);

/* Whether a function may stand in these lines: the word `function` is in the first and `end` in the last of them. They are the bytes
 * from *begin to *end. */
bool definition_spans(const char *text, size_t len, uint32_t line, uint32_t last_line, size_t *begin,
                      size_t *end);

#endif
