-- SPDX-License-Identifier: MIT
-- Are lines right? The profile of a loop of three lines of known cost is compared with what they cost in truth.
--   lines.lua [seconds, 10 or more] [hz]     prints: runtime line true measured difference (points), of the loop itself and of its lines
--
-- The truth. The lines hold 32, 64 and 128 times the same addition. Which line an addition stands on is no part of the bytecode,
-- so the interpreter cannot know: the lines cost as their lengths. The loop's own part is what a loop around nothing takes. It is the
-- least certain, because an instruction costs what it costs only among the same others (the processor foresees the one jump of an
-- empty loop and not always the one in 225); so the lines are long, and it is 1 or 2 points of the whole.
--
-- Machines change their speed, so the empty loop is timed in slices of 2 ms, between slices of the other, as a ratio to those,
-- and the median counts. The profiler runs in slices of its own in between; its ticks would be in the ratios.
local pulse = require "luapulse"
local load = loadstring or load

local seconds, hz = tonumber(arg[1] or 15), tonumber(arg[2] or 1000)
local LENGTHS, ADDITIONS = { 32, 64, 128 }, 224
local SLICE_SECONDS, PROFILED_SLICES = 0.002, 3

local function loop(lengths)
  local text = { "local n = ... local a, b = 0, 1 for i = 1, n do" }
  for _, length in ipairs(lengths) do text[#text + 1] = ("a = a + b "):rep(length) end
  text[#text + 1] = "end return a"
  return assert(load(table.concat(text, "\n"), "=loop"))
end

local function time(f, n)
  local start = os.clock()
  f(n)
  return os.clock() - start
end

local function median(list)
  table.sort(list)
  return list[math.ceil(#list / 2)]
end

-- -- slices -----------------------------------------------------------------------------------------------------------

-- So many turns of it that they take a slice.
local function turns_of(f)
  local turns = 1000
  while time(f, turns) < SLICE_SECONDS do turns = turns * 2 end
  return turns
end
local all, empty = loop(LENGTHS), loop {}
local all_turns, empty_turns, ratios = turns_of(all), turns_of(empty), {}

pulse.start { cpu = "sampling", cpu_hz = hz }
pulse.pause()
local stop = os.clock() + seconds
repeat
  local before = time(all, all_turns)
  local between = time(empty, empty_turns)
  local after = time(all, all_turns)
  ratios[#ratios + 1] = between / empty_turns / ((before + after) / 2 / all_turns)
  pulse.resume()
  for _ = 1, PROFILED_SLICES do all(all_turns) end
  pulse.pause()
until os.clock() > stop
local profile = pulse.stop()
local loop_share = median(ratios)

-- -- the profile --------------------------------------------------------------------------------------------------------

local found, sum = { 0, 0, 0 }, 0
for _, sample in ipairs(profile:samples()) do
  local leaf = sample.stack[1]
  if leaf.file == "loop" then
    local line = leaf.line - 1
    if found[line] then found[line] = found[line] + sample.cpu end
    sum = sum + sample.cpu
  end
end

local runtime = jit and ("luajit" .. (jit.status() and "" or "-joff")) or _VERSION:lower():gsub(" ", "")
local function show(name, truth, got)
  print(string.format("%s %s %.1f %.1f %+.1f", runtime, name, 100 * truth, 100 * got, 100 * (got - truth)))
end
show("loop", loop_share, (sum - found[1] - found[2] - found[3]) / sum)
for line, length in ipairs(LENGTHS) do show(length, (1 - loop_share) * length / ADDITIONS, found[line] / sum) end
