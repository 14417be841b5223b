-- SPDX-License-Identifier: MIT
-- What a sample costs: the CPU time of a tick's handler, capture and all, at stacks of several depths. The status has a moving
-- average over some eight ticks; the median of many readings of it is printed.
--   capture.lua [seconds per depth] [hz]     prints: runtime depth microseconds
local pulse = require "luapulse"

local seconds, hz = tonumber(arg[1] or 2), tonumber(arg[2] or 1000)

-- Readings are 5 ms apart, on compiled code as well: they are no part of the program.
local costs
local function spin(stop)
  local s, now = 0, os.clock()
  while now < stop do
    local next_reading = now + 0.005
    repeat
      for i = 1, 200000 do s = s + i % 7 end
      now = os.clock()
    until now >= next_reading
    costs[#costs + 1] = pulse.status().cost_ns
  end
  return s
end

local function deep(n, stop)
  if n == 0 then
    local s = spin(stop)
    return s
  end
  local s = deep(n - 1, stop)
  return s
end

local runtime = jit and ("luajit" .. (jit.status() and "" or "-joff")) or _VERSION:lower():gsub(" ", "")
for _, depth in ipairs { 8, 32, 128, 1024, 100000 } do
  -- main chunk, the wrapped body, spin and the interpreter's own frame are frames too
  costs = {}
  local ok = pcall(function()
    pulse.start { cpu = "sampling", cpu_hz = hz }
    deep(depth > 6 and depth - 6 or 0, os.clock() + seconds)
  end)
  table.sort(costs)
  local cost = costs[math.floor(#costs / 2) + 1] or 0
  if pulse.status().running then pulse.stop() end
  print(string.format("%s %d %s", runtime, depth, ok and string.format("%.1f", cost / 1000) or "too deep for this Lua"))
end
