/* SPDX-License-Identifier: MIT */
/* Names by where functions are held: package.loaded and the globals ("string.find", "shop.price",
 * "Account.deposit"), and the metatables of C libraries ("file:read"). */
#ifndef LUAPULSE_AGENT_NAME_H
#define LUAPULSE_AGENT_NAME_H

#include "agent/vm.h"

/* Goes through all of these once, naming every function of the cache it meets. Does nothing unless some
 * function wants a name and the last search was long enough ago for searching to stay below 1/500 of the
 * time. Runs in hooks: raw reads only, no allocation, a bounded number of steps. */
void name_search(vm_t *vm, lua_State *L);
/* Names the iterators and resumers that standard functions return and no table holds. Ordinary context; may raise a memory
 * error. */
void name_announce_hidden(vm_t *vm, lua_State *L);

#endif
