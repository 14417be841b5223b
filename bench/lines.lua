-- SPDX-License-Identifier: MIT
-- Are lines right? A loop of three lines of known cost: each line's true share is what the loop is faster without it. The
-- profile's shares are compared with that.
--   lines.lua [seconds] [hz]     prints: runtime line true measured difference (points)
local pulse = require "luapulse"
local load = loadstring or load

local seconds, hz = tonumber(arg[1] or 4), tonumber(arg[2] or 1000)

-- The loop with the lines of `lengths` that are in `with`; a line is so many additions.
local lengths = { 8, 16, 32 }
local function loop(with)
  local text = { "local n = ... local a, b = 0, 1 for i = 1, n do" }
  for line, length in ipairs(lengths) do
    text[#text + 1] = with[line] and ("a = a + b "):rep(length) or ""
  end
  text[#text + 1] = "end return a"
  return assert(load(table.concat(text, "\n"), "=loop"))
end

local function time(f, n)
  local start = os.clock()
  f(n)
  return os.clock() - start
end

-- Everything in turns, so that a machine that changes its speed changes it for all.
local all, N = loop { true, true, true }, 20000
local without = { loop { false, true, true }, loop { true, false, true }, loop { true, true, false } }
local total, rest = 0, { 0, 0, 0 }
pulse.start { cpu = "sampling", cpu_hz = hz }
local stop = os.clock() + seconds
repeat
  total = total + time(all, N)
  pulse.pause()
  for i = 1, 3 do rest[i] = rest[i] + time(without[i], N) end
  pulse.resume()
until os.clock() > stop
local profile = pulse.stop()

local found, sum = {}, 0
for _, sample in ipairs(profile:samples()) do
  local leaf = sample.stack[1]
  if leaf.file == "loop" then
    found[leaf.line] = (found[leaf.line] or 0) + sample.cpu
    sum = sum + sample.cpu
  end
end
local runtime = jit and ("luajit" .. (jit.status() and "" or "-joff")) or _VERSION:lower():gsub(" ", "")
for i = 1, 3 do
  local truth, got = 100 * (total - rest[i]) / total, 100 * (found[i + 1] or 0) / sum
  print(string.format("%s %d %.1f %.1f %+.1f", runtime, lengths[i], truth, got, got - truth))
end
