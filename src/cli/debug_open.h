/* SPDX-License-Identifier: MIT */
/* What elfutils opens: a file with debug information names others (.gnu_debuglink, .gnu_debugaltlink, DW_AT_dwo_name), by any path, and
 * elfutils opens them as they are, devices and pipes too. The command is linked so that its open() is the one here.
 *
 * Limit: where elfutils is linked as a shared library it has its own. */
#ifndef LUAPULSE_CLI_DEBUG_OPEN_H
#define LUAPULSE_CLI_DEBUG_OPEN_H

#include <stdbool.h>

/* Whether open() is for regular files alone from now on; what makes files, and folders, are not concerned. */
void debug_open_regular_only(bool only);

#endif
