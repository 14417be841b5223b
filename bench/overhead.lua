-- SPDX-License-Identifier: MIT
-- Measures what profiling costs: the ratio of profiled to unprofiled CPU time of one program, in one process.
--
--   lua bench/overhead.lua PROGRAM [hz] [max_seconds] [clock] [--control] [--seed=N]
--   lua bench/overhead.lua PROGRAM --check        the checksum and the time of one unit, then stop
--
-- Prints one line: program runtime hz ratio low high pairs reached|not-reached samples
--
-- The method. Work is done in pairs of slices, one profiled and one not, in random order; both run the same number
-- of units, about 250 ms of CPU, which at 100 Hz is about 25 samples: the cost is spread, not a rare spike. Changes of
-- speed (frequency, temperature, neighbours) that are slower than a pair cancel in its ratio; where they are faster, as
-- on a shared virtual machine, lockstep.lua is several times as precise.
--
-- Both slices have the same history: start (and for the unprofiled one stop), LuaJIT's traces flushed, a warm-up that
-- compiles them again, a full collection. start() and stop() are outside the timed part. The profiler is new in each
-- slice, so the first sight of each function (its name is looked up) is paid again every 250 ms: more often than in a
-- long run, so the figure errs on the high side. What a stopped profiler might leave behind costs both slices alike and
-- is not seen here. The interval is for this process; another one, with another memory layout, may differ by more.
--
-- With --control both slices are unprofiled: the ratio must be 1 within its interval.

local SLICE_SECONDS = 0.25 -- CPU time of a slice; os.clock() counts the process's CPU time in microseconds
local WARM_SHARE = 0.15 -- warm-up after toggling, as a share of a slice

local folder = arg[0]:match("^(.*)/") or "."
local measure = dofile(folder .. "/measure.lua")
local options = measure.options(arg)
local work = measure.worker(folder, options.program)

if options.check then
  local from = os.clock()
  local checksum = work(50)
  print(string.format("%s %s %.0f %.2f ms", options.program, measure.runtime(), checksum, (os.clock() - from) * 20))
  return
end

local session = measure.session(options)
local profiled_first = measure.coin(options.seed)

-- CPU seconds for `units` of work with or without the profiler, and the samples taken.
local function slice(profiled, units)
  session.begin(profiled)
  work(math.ceil(units * WARM_SHARE))
  collectgarbage()
  collectgarbage() -- again: what finalizers released in the first
  local from = os.clock()
  work(units)
  local seconds = os.clock() - from
  return seconds, session.finish()
end

-- Units in a slice: from a slice of a guessed length, then from slices of about the right one.
local units = 20
for _ = 1, 3 do units = math.max(1, math.ceil(units * SLICE_SECONDS / slice(false, units))) end

measure.report(options, function()
  local on, off, samples
  if profiled_first() then
    on, samples = slice(true, units)
    off = slice(false, units)
  else
    off = slice(false, units)
    on, samples = slice(true, units)
  end
  return math.log(on / off), samples
end)
