/* SPDX-License-Identifier: MIT */
/* How the Lua of this process is walked: its layout, checked once against what the Lua interface says, and what is known of
 * its code. One for the process: all VMs of a module run the same Lua. */
#ifndef LUAPULSE_AGENT_WALK_SETUP_H
#define LUAPULSE_AGENT_WALK_SETUP_H

#include "agent/vm.h"

/* Chooses the layout whose walk agrees with lua_getinfo on a coroutine run for the purpose, and prepares vm->global. `file`
 * names a layout file, NULL the known layouts. False with the reason in vm->note. May raise a memory error. */
bool walk_setup(vm_t *vm, lua_State *L, const char *file);

/* What walk_setup found; for walks of this process. */
void walk_setup_apply(walk_t *walk);
const layout_t *walk_setup_layout(void);

int walk_setup_guard_forks(void); /* errno or 0; see fork_guard.h */

#endif
