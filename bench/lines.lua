-- SPDX-License-Identifier: MIT
-- Are lines right? The profile of a loop of three lines of known cost is compared with what they cost in truth.
--   lines.lua [seconds, 10 or more] [hz]     prints: runtime line true measured difference (points), of the loop itself and of its lines
--
-- The truth. The lines hold 8, 16 and 32 times the same addition. Which line an addition stands on is no part of the bytecode,
-- so the interpreter cannot know: the lines cost as their lengths. What must be measured is the loop's own part, the rest.
-- Loops of half to four times as many additions tell what one costs, t(n) = loop + n * addition; then
--     loop's share = 1 - 56 * addition / t(56),   a line's share = length * addition / t(56)
-- and the shares are 100 together. Measuring each line by a loop without it does not do: t(n) is not that straight from one n to
-- the next, and the shares so found were 91 to 113 points together.
-- So the proportion of the three lines is given, not measured. The loop's part is what is left, and the least certain: it differs by 2
-- points and more from run to run, and the profile shows some of it on the additions before and after the jump.
--
-- Machines change their speed, so a loop of n is timed in slices of 2 ms, between slices of the loop of 56, as a ratio to those,
-- and its median counts. The profiler runs in slices of its own in between; its ticks would be in the ratios.
local pulse = require "luapulse"
local load = loadstring or load

local seconds, hz = tonumber(arg[1] or 15), tonumber(arg[2] or 1000)
local LENGTHS, ADDITIONS = { 8, 16, 32 }, 56
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

local all, turns = loop(LENGTHS), 1000
while time(all, turns) < SLICE_SECONDS do turns = turns * 2 end

-- Others have so many turns that there are as many additions.
local others = {}
for n = ADDITIONS / 2, 4 * ADDITIONS, 5 do
  others[#others + 1] = { n = n, run = loop { n }, turns = math.floor(turns * ADDITIONS / n), ratios = {} }
end

pulse.start { cpu = "sampling", cpu_hz = hz }
pulse.pause()
local stop, i = os.clock() + seconds, 0
repeat
  i = i % #others + 1
  local other = others[i]
  local before = time(all, turns)
  local between = time(other.run, other.turns)
  local after = time(all, turns)
  other.ratios[#other.ratios + 1] = between / other.turns / ((before + after) / 2 / turns)
  pulse.resume()
  for _ = 1, PROFILED_SLICES do all(turns) end
  pulse.pause()
until os.clock() > stop and i == #others
local profile = pulse.stop()

-- -- the truth: a straight line through the ratios, that of the loop itself being 1 -------------------------------------

local mean_n, mean_ratio = 0, 0
for _, other in ipairs(others) do
  other.ratio = median(other.ratios)
  mean_n, mean_ratio = mean_n + other.n / #others, mean_ratio + other.ratio / #others
end
local above, below = 0, 0
for _, other in ipairs(others) do
  above = above + (other.n - mean_n) * (other.ratio - mean_ratio)
  below = below + (other.n - mean_n) ^ 2
end
local addition = above / below

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
show("loop", 1 - ADDITIONS * addition, (sum - found[1] - found[2] - found[3]) / sum)
for line, length in ipairs(LENGTHS) do show(length, length * addition, found[line] / sum) end
