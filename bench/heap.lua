-- SPDX-License-Identifier: MIT
-- Measures what heap profiling costs: the ratio of profiled to unprofiled CPU time of one program, in one process.
--
--   lua bench/heap.lua PROGRAM sampling|tracing [max_seconds] [--seed=N]
--
-- Prints one line, as overhead.lua does: program runtime mode ratio low high blocks reached|not-reached samples
--
-- The method is overhead.lua's: slices of a few milliseconds, profiled and not, in random order; a block is about a second of
-- them. Here the profiler is started and stopped between slices, outside of what is timed: a pause would leave the
-- wrapper of the allocator in place. What was collected before a stop is lost, so a slice is 20 ms long: it has some 10
-- to 20 MB of allocations, hence tens of samples, and frees of what was sampled.

local BLOCK_SECONDS, SLICE_SECONDS = 1, 0.02
local folder = arg[0]:match("^(.*)/") or "."
local measure = dofile(folder .. "/measure.lua")
local mode = table.remove(arg, 2) or "sampling"
local seconds = table.remove(arg, 2)
local options = measure.options { arg[1], "1", seconds or "80", arg[2] }
local pulse = require "luapulse"
local work = measure.worker(folder, options.program)

local units = 1
for _ = 1, 5 do
  local from = os.clock()
  work(units)
  units = math.max(1, math.ceil(units * SLICE_SECONDS / math.max(os.clock() - from, 1e-5)))
end

local samples = 0
local function slice(profiled)
  if profiled then pulse.start { heap = mode, max_memory_bytes = 256 * 2 ^ 20, max_process_memory_bytes = 512 * 2 ^ 20 } end
  local from = os.clock()
  work(units)
  local time = os.clock() - from
  if profiled then
    samples = samples + pulse.status().samples
    pulse.stop()
  end
  return time
end

local profiled_first = measure.coin(options.seed)
measure.report(options, function()
  local log_ratios, total = {}, 0
  samples = 0
  repeat
    local on, off
    if profiled_first() then
      on = slice(true)
      off = slice(false)
    else
      off = slice(false)
      on = slice(true)
    end
    log_ratios[#log_ratios + 1] = math.log(on / off)
    total = total + on + off
  until total >= BLOCK_SECONDS
  return measure.clipped_mean(log_ratios), samples
end)
