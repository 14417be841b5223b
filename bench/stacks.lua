-- SPDX-License-Identifier: MIT
-- How many stacks are right: runs a workload under the cpu clock and checks every sample, from root to leaf, against the
-- workload's grammar (see workloads.lua). Samples that name no stack count as wrong.
--   stacks.lua WORKLOAD [seconds] [hz]     prints: workload runtime right total, then what was wrong
local pulse = require "luapulse"
local folder = arg[0]:match("^(.*)/") or "."
local workloads = dofile(folder .. "/workloads.lua")

local function path(stack)
  local names = {}
  for i = #stack, 1, -1 do names[#names + 1] = stack[i].name .. ":" .. stack[i].line end
  return table.concat(names, ";")
end

local name, seconds, hz = arg[1] or "mix", tonumber(arg[2] or 4), tonumber(arg[3] or 1000)
if not workloads.names[name] then
  io.stderr:write("stacks: no workload ", tostring(name), " (plain, coroutines, mix)\n")
  os.exit(2)
end
pulse.start { cpu = "sampling", cpu_clock = "cpu", cpu_hz = hz }
local engine = pulse.status().engine
workloads.run(name, seconds)
local rejects = pulse.status().rejects
local profile = pulse.stop()
local right, total, wrong = 0, 0, {}
for _, sample in ipairs(profile:samples()) do
  total = total + sample.samples
  if workloads.is_right(name, sample.stack) then
    right = right + sample.samples
  else
    wrong[#wrong + 1] = { sample.samples, path(sample.stack) .. "  " .. (sample.labels.vmstate or "") }
  end
end
local lost = profile:stats().dropped
local width = jit and not require("ffi").abi("gc64") and "-gc32" or ""
local runtime = jit and ("luajit" .. width .. (jit.status() and "" or "-joff")) or _VERSION:lower():gsub(" ", "")
print(string.format("%s %s %d %d %.3f%% engine=%s dropped=%d", name, runtime, right, total + lost,
  100 * right / math.max(total + lost, 1), engine, lost))
for reason, count in pairs(rejects) do print("  rejected: " .. reason .. " " .. count) end
table.sort(wrong, function(a, b) return a[1] > b[1] end)
for i = 1, math.min(#wrong, tonumber(os.getenv("SHOW") or 5)) do print("  wrong: " .. wrong[i][1] .. " " .. wrong[i][2]) end
