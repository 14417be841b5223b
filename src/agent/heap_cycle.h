/* SPDX-License-Identifier: MIT */
/* How many collections has the VM completed? Lua does not say; a userdata that nobody refers to is collected in each, and its
 * finalizer, which runs when the sweep is over, counts and sends the next one. When the VM closes it is called once more, for
 * nothing: that is taken back. */
#ifndef LUAPULSE_AGENT_HEAP_CYCLE_H
#define LUAPULSE_AGENT_HEAP_CYCLE_H

#include "agent/heap.h"

/* Begins to count, for the session that is being started. May raise a Lua memory error. */
void heap_cycle_watch(vm_t *vm, lua_State *L);

#endif
