/* SPDX-License-Identifier: MIT */
/* Of LuaJIT; called by caller_name() alone. */
#ifndef LUAPULSE_ATTACH_CALLER_NAME_LUAJIT_H
#define LUAPULSE_ATTACH_CALLER_NAME_LUAJIT_H

#include "attach/caller_name.h"

/* As caller_name(). What the name stands for is looked up twice, since the process may run. */
size_t caller_name_luajit(walk_t *walk, const walk_frame_t *called, const walk_frame_t *caller,
                          char name[CALLER_NAME]);

#endif
