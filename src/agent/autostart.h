/* SPDX-License-Identifier: MIT */
/* What `luapulse run` tells the module in the program it starts, through the environment. */
#ifndef LUAPULSE_AGENT_AUTOSTART_H
#define LUAPULSE_AGENT_AUTOSTART_H

/* "fd size clock hz mean_instr max_samples_per_sec seed engine mode trace_events layout": the tables' descriptor and size, then
 * the options. */
#define AUTOSTART_VARIABLE "LUAPULSE_RUN"
/* Patterns of the timeline, when there are any. */
#define AUTOSTART_FILTER "LUAPULSE_RUN_FILTER"
/* Name of the variable that was taken over to load the module (LUA_INIT or LUA_INIT_5_x), to be put back … */
#define AUTOSTART_INIT_NAME "LUAPULSE_RUN_INIT"
/* … with this value, when it had one. */
#define AUTOSTART_INIT_VALUE "LUAPULSE_RUN_INIT_VALUE"
/* The C function of the module that does it. */
#define AUTOSTART_FUNCTION "luaopen_luapulse_autostart"

#endif
