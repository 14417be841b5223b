/* SPDX-License-Identifier: MIT */
/* The profile object of the Lua module. */
#ifndef LUAPULSE_AGENT_BINDING_H
#define LUAPULSE_AGENT_BINDING_H

#include "agent/lua_version.h"
#include "profile/profile.h"

void binding_register_profile(lua_State *L);
/* Pushes a profile object that is still empty; the caller fills in the pointer, which the object then owns.
 */
profile_t **binding_push_profile(lua_State *L);

#endif
