/* SPDX-License-Identifier: MIT */
/* Names of functions by where a Lua program keeps them: package.loaded, the globals, the tables in these, and the metatables of C
 * libraries in the registry. "string.find", "ngx.req.get_headers", "account.deposit", "file:read".
 *
 * Mental model. A function is found by what a frame of a stack tells of it: a C function by its address, a built-in of LuaJIT by its
 * number, a Lua function by its prototype, which has a mark against addresses that were used again. Of several names the best
 * counts: of a module rather than a global, shorter rather than longer, and among equals the first by alphabet; so the same tables
 * give the same names. The process may run meanwhile (see table.h), and what it has in memory is anybody's: how many tables, entries and
 * names are looked at is bounded, and each table is looked at once, so that cycles end. */
#ifndef LUAPULSE_ATTACH_TABLES_H
#define LUAPULSE_ATTACH_TABLES_H

#include "walk/walk.h"

typedef struct tables tables_t;

tables_t *tables_new(void); /* NULL when memory is out */
void tables_free(tables_t *tables);

/* Adds the names that a VM has now, as far as they can be read until `deadline` (CLOCK_MONOTONIC, ns). Again at any time: better names
 * replace others. walk->layout and walk->memory are set; the layout must know tables (table_is_known), or there are none. */
void tables_read(tables_t *tables, walk_t *walk, uint64_t global, int64_t deadline);

/* The name of the function of a frame (kind and proto, mark, code or ffid count), NULL when it has none. Until tables_read. */
const char *tables_name(const tables_t *tables, const walk_frame_t *frame);
size_t tables_count(const tables_t *tables); /* of names */

#endif
