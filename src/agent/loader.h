/* SPDX-License-Identifier: MIT */
/* Questions to the dynamic loader. Its locks are not among those the C library sets free in a forked child: a fork
 * while one thread asks would leave the child, should it want a profile of its own, waiting for ever. So forks
 * wait here. Ordinary context, hooks included; not in signal handlers. */
#ifndef LUAPULSE_AGENT_LOADER_H
#define LUAPULSE_AGENT_LOADER_H

#include <dlfcn.h>
#include <link.h>
#include <stdbool.h>
#include <stddef.h>

bool loader_find(const void *address, Dl_info *info); /* dladdr */
void loader_each_image(int (*visit)(struct dl_phdr_info *info, size_t size, void *context), void *context);

#endif
