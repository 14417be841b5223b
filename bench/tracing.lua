-- SPDX-License-Identifier: MIT
-- What tracing costs, and how right its corrected times are.
--
--   lua bench/tracing.lua cost PROGRAM|fib [rounds]     prints: program untraced_ms hooks clock traced (ratios, medians)
--   lua bench/tracing.lua truth [rounds]                prints: function alone_ns traced_ns raw_ns difference%
--
-- Rounds of short slices in one process: untraced, with empty hooks, with hooks that read the clock (bench/hooks.c), traced.

local folder = arg[0]:match("^(.*)/") or "."
local measure = dofile(folder .. "/measure.lua")
local hooks = require "hooks"
local pulse = require "luapulse"

local function median(list)
  table.sort(list)
  return list[math.floor(#list / 2) + 1]
end

local function timed(work)
  local from = os.clock()
  work()
  return os.clock() - from
end

local function fib(n)
  if n < 2 then return n end
  return fib(n - 1) + fib(n - 2)
end

if arg[1] == "cost" then
  local name, rounds = arg[2], tonumber(arg[3] or 31)
  local worker = name ~= "fib" and measure.worker(folder, name)
  local work = worker and function() worker(4) end or function() fib(24) end
  if rawget(_G, "jit") then jit.off() jit.flush() end -- as tracing does: what hooks add is to be compared
  for _ = 1, 5 do work() end
  local plain, empty, clock, traced = {}, {}, {}, {}
  for i = 1, rounds do
    plain[i] = timed(work)
    hooks(1)
    empty[i] = timed(work)
    hooks(2)
    clock[i] = timed(work)
    hooks(0)
    pulse.start { cpu = "tracing" }
    work() -- first sight of every path
    traced[i] = timed(work)
    pulse.stop()
    if rawget(_G, "jit") then jit.off() end
  end
  local ratio = {}
  for i = 1, rounds do ratio[i] = traced[i] / plain[i] end
  for i = 1, rounds do empty[i], clock[i] = empty[i] / plain[i], clock[i] / plain[i] end
  print(("%s %.2f %.2f %.2f %.2f"):format(name, median(plain) * 1e3, median(empty), median(clock), median(ratio)))
  return
end

-- A function of known cost, called from others; alone it is timed by a loop that calls nothing else. No branch in it depends on
-- numbers: with `i % 7` it had two speeds, 3 to 8 % apart, by what the processor's branch predictor had seen before.
local function known(n)
  local x = 0
  for i = 1, n do x = x * 0.5 + i end
  return x
end
local function empty(n) return n end
local function caller(f, n) return f(n) + f(n) end
if rawget(_G, "jit") then jit.off() jit.flush() end
for _, size in ipairs { 20, 100, 1000, 10000 } do
  local alone, corrected, raw, ratio = {}, {}, {}, {}
  local CALLS = math.max(16, math.floor(200000 / size)) -- a few milliseconds: the machine's speed changes all the time
  local function run() for _ = 1, CALLS do caller(known, size) end end
  local function time_alone()
    run() -- after what else was done: the start of tracing, which measures its own costs, leaves the processor as warm
    local bare = timed(function() for _ = 1, CALLS do caller(empty, size) end end) -- to call is the caller's work
    return (timed(run) - bare) / (2 * CALLS) * 1e9
  end
  for i = 1, tonumber(arg[2] or 61) do
    local before = time_alone()
    pulse.start { cpu = "tracing" }
    timed(run)
    local profile = pulse.stop()
    corrected[i], raw[i] = 0, 0
    for _, sample in ipairs(profile:samples()) do
      if sample.stack[1].name == "known" then
        corrected[i] = corrected[i] + sample.exclusive / (2 * CALLS)
        raw[i] = raw[i] + sample.exclusive_raw / (2 * CALLS)
      end
    end
    if rawget(_G, "jit") then jit.off() end
    alone[2 * i - 1], alone[2 * i] = before, time_alone() -- around it
    ratio[2 * i - 1], ratio[2 * i] = corrected[i] / before, corrected[i] / alone[2 * i]
  end
  print(("known(%d) %.0f %.0f %.0f %+.1f"):format(size, median(alone), median(corrected), median(raw), (median(ratio) - 1) * 100))
end
