/* SPDX-License-Identifier: MIT */
/* Frames of walked stacks as frames of a profile: functions with names, files and lines, as the agent names them.
 *
 * Mental model. A Lua function is known by its address space, the address of its prototype and the prototype's mark. At first sight it is
 * read from the process: what is there now must have the mark that it had on the stack. Otherwise the function was collected
 * meanwhile, and is "[gone]": a name is never made up. What is known is kept and needs no further look; when there is too much of it,
 * all is forgotten.
 *
 * A function that neither its source nor a table names goes by the name that a caller has for it, the first that is found. As long as
 * there is none it goes by its place.
 *
 * A frame is read as soon as it is met (symbols_meet), by an engine that stops threads while the thread stands still; names are asked
 * for afterwards, because they may take long.
 *
 * Limit: where the thread runs on meanwhile, a collected prototype may still look whole when its source is another string already. */
#ifndef LUAPULSE_ATTACH_SYMBOLS_H
#define LUAPULSE_ATTACH_SYMBOLS_H

#include "attach/runtime.h"
#include "profile/profile.h"

typedef struct symbols symbols_t;

/* For a profile, which must live as long. NULL when memory is out. */
symbols_t *symbols_new(profile_t *profile);
void symbols_free(symbols_t *symbols);
/* Goes on with another profile. What was known is the other one's and is forgotten; files and tables of targets stay at hand. */
void symbols_change_profile(symbols_t *symbols, profile_t *profile);

/* Whose frames are asked for next: the address space `space` of the target, which has these Luas. Call it for each stack: the process
 * has run since the last. NULL as target: it cannot be read any more, and only what is known has a name. */
void symbols_aim(symbols_t *symbols, uint64_t space, target_t *target, const runtimes_t *runtimes);
/* The target is about to be closed, or its address space is another now. */
void symbols_forget_target(symbols_t *symbols, const target_t *target);

/* Reads what is not known of these frames, a stack from its leaf on, for symbols_frame() later. Only so much is kept: the rest is read then. */
void symbols_meet(symbols_t *symbols, const walk_frame_t *frames, uint32_t count, uint32_t runtime);
/* Forgets what was met: all frames were asked for. */
void symbols_met(symbols_t *symbols);

/* The frame in the profile; PROFILE_NONE when the profile is full. *gone is set when the function could not be read. `caller`: the frame
 * below, NULL at the bottom. `runtime`: index of their Lua. */
uint32_t symbols_frame(symbols_t *symbols, const walk_frame_t *frame, const walk_frame_t *caller,
                       uint32_t runtime, bool *gone);

#endif
