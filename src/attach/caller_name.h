/* SPDX-License-Identifier: MIT */
/* The name by which a function was called: what the instruction of its caller says, as Lua's own debug.getinfo tells it.
 *
 * A call takes its function from a register. The last instruction that set it is looked for, and has the name of a global, a field, a method
 * or an upvalue, or copied a local variable, which has one. Where two ways lead to the call no instruction is certain, and there is no name.
 *
 * PUC Lua 5.1 to 5.5: the function must lie in the register that the instruction calls, be at an instruction of its own, and not have taken
 * its caller's place. Left out are what finalizers may run under (CONCAT), and metamethods of 5.1, which has no names for them itself.
 *
 * LuaJIT does not tell tail calls from others: the frame below need not be the caller's. There the name counts when it leads to the function
 * that runs (caller_name_luajit.c). */
#ifndef LUAPULSE_ATTACH_CALLER_NAME_H
#define LUAPULSE_ATTACH_CALLER_NAME_H

#include "walk/walk.h"

enum { CALLER_NAME = 64 };

/* What `caller` calls the function above it, `called`, both frames as walks mark them: "work", "for iterator", "__index". Its length, and a
 * zero behind it; 0: there is no name. It is read while the process may run: the caller's prototype must have its mark before and after. */
size_t caller_name(walk_t *walk, const walk_frame_t *called, const walk_frame_t *caller,
                   char name[CALLER_NAME]);

#endif
