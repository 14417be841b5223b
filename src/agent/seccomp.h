/* SPDX-License-Identifier: MIT */
/* Under a seccomp filter a system call it does not expect may end the process: unusual ones are not tried. */
#ifndef LUAPULSE_AGENT_SECCOMP_H
#define LUAPULSE_AGENT_SECCOMP_H

#include <stdbool.h>

bool seccomp_is_active(void); /* also when it cannot be told */

#endif
