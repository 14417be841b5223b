/* SPDX-License-Identifier: MIT */
/* Who calls whom in a program or library that may be stripped: x86-64.
 *
 * Mental model. Stripping leaves the unwind table, whose index (.eh_frame_hdr) has the beginning of every function, in order. Calls and jumps
 * from one to another hold the distance to such a beginning, which hardly any other four bytes do; so code need not be decoded for them.
 * What is called by a pointer has its address somewhere: in the code, or as a word of the file.
 *
 * Limit: functions without an entry in the table, which assembly may be, count for the one before them. */
#ifndef LUAPULSE_ATTACH_CALL_GRAPH_H
#define LUAPULSE_ATTACH_CALL_GRAPH_H

#include <libelf.h>
#include <stdbool.h>
#include <stdint.h>

#include "walk/walk.h"

typedef struct call_graph call_graph_t;

enum { CALL_GRAPH_NONE = UINT32_MAX };

enum { CALL_GRAPH_FILE = 32 << 20 /* bytes at most: it is read into memory */ };

/* NULL when the file tells nothing of the kind, or there is no memory. It is read as a whole, to find that it is too large. */
call_graph_t *call_graph_read(Elf *elf);
void call_graph_free(call_graph_t *graph);

/* Functions have numbers, in the order of their addresses. */
uint32_t call_graph_count(const call_graph_t *graph);
walk_range_t call_graph_range(const call_graph_t *graph,
                              uint32_t function); /* as the file numbers addresses */
/* The one that others may link with by this name, or CALL_GRAPH_NONE. */
uint32_t call_graph_exported(const call_graph_t *graph, const char *name);
bool call_graph_calls(const call_graph_t *graph, uint32_t caller, uint32_t called);
/* What it calls, one for each call. */
uint32_t call_graph_call_count(const call_graph_t *graph, uint32_t caller);
uint32_t call_graph_called(const call_graph_t *graph, uint32_t caller, uint32_t call);
/* Something has its address: it may be called from anywhere. */
bool call_graph_is_taken(const call_graph_t *graph, uint32_t function);
/* Adds what the functions in `set` lead to, by any number of calls, without going through those in `stops` (NULL: none). Sets have a
 * bool for each function. False when there is no memory. */
bool call_graph_follow(const call_graph_t *graph, bool *set, const bool *stops);

#endif
