/* SPDX-License-Identifier: MIT */
/* What the commands that look into running processes share: the processes they are told, the layout, how findings are printed. */
#ifndef LUAPULSE_CLI_ATTACH_OPTIONS_H
#define LUAPULSE_CLI_ATTACH_OPTIONS_H

#include "attach/runtime.h"
#include "format/sink.h"

enum { ATTACH_MAX_PIDS = 256 };

typedef struct {
  pid_t pids[ATTACH_MAX_PIDS];
  size_t count;
} attach_pids_t;

/* Adds "12,34,56". False when it is no list of process numbers or there are too many. */
bool attach_parse_pids(const char *text, attach_pids_t *pids);

/* The layout in a file for one of the Luas the process says it has, else the first in it. */
bool attach_read_layout(const char *path, const idents_t *idents, layout_t *layout, failure_t *failure);

/* Text of any origin, made fit for a terminal. */
void attach_print(sink_t *sink, const char *text);
/* "process 12: lua app.lua" and a newline. */
void attach_print_head(sink_t *sink, const target_t *target);

#endif
