/* SPDX-License-Identifier: MIT */
/* The defaults of a profile's options, for the agent and for the command line, which runs without Lua. */
#ifndef LUAPULSE_AGENT_OPTIONS_H
#define LUAPULSE_AGENT_OPTIONS_H

#include "luapulse.h"

static inline luapulse_profile_options_t options_default(void) {
  return (luapulse_profile_options_t){
      .features = LUAPULSE_FEATURE_CPU,
      .cpu_mode = LUAPULSE_COLLECTION_SAMPLING,
      .heap_mode = LUAPULSE_COLLECTION_SAMPLING,
      .cpu_clock = LUAPULSE_CLOCK_CPU,
      .cpu_engine = LUAPULSE_ENGINE_AUTO,
      .cpu_hz = 100,
      .cpu_sample_mean_instr = 20000,
      .cpu_max_samples_per_sec = 200,
      .heap_sample_mean_bytes = 524288,
      .heap_gc = LUAPULSE_GC_NOW,
      .max_memory_bytes = 32u << 20,
      .max_process_memory_bytes = 64u << 20,
  };
}

#endif
