/* SPDX-License-Identifier: MIT */
/* The layout that the debug information of a target's file tells, read by a process of its own.
 *
 * The file may be anybody's and of any size: what it does to the library that reads it, or how long and how much memory that takes, must not
 * reach who records. So a child reads it, with limits, and says the result over a pipe. What a file said is remembered. */
#ifndef LUAPULSE_CLI_LAYOUT_APART_H
#define LUAPULSE_CLI_LAYOUT_APART_H

#include "profile/failure.h"
#include "walk/layout.h"

/* runtime_options_t.from_debug */
const layout_t *layout_apart_read(const char *path, layout_t *room, failure_t *why_not);

#endif
