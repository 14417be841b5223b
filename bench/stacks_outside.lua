-- SPDX-License-Identifier: MIT
-- How many stacks of a workload are right that were recorded from outside: reads a folded profile whose values are samples.
--   stacks_outside.lua WORKLOAD FOLDED [unattributed]     prints: right total percent, then what was wrong
local folder = arg[0]:match("^(.*)/") or "."
local workloads = dofile(folder .. "/workloads.lua")
local workload, file, lost = arg[1], assert(io.open(arg[2])), tonumber(arg[3] or 0)

-- "name (file:line)", root first
local function frame(text)
  local name, place = text:match("^(.*) %((.*):%-?%d+%)$")
  name = name or text
  if place == "[C]" and name:match("%+0x%x+$") then name = "coroutine.wrap" end -- what it made has no name of its own
  return { name = name, file = place }
end

local right, total, wrong = 0, lost, {}
for line in file:lines() do
  local path, count = line:match("^([^#].*) (%d+)$")
  if path then
    local stack = {}
    for text in path:gmatch("[^;]+") do table.insert(stack, 1, frame(text)) end
    if stack[#stack].name == "coroutine.wrap" then stack[#stack].name = "the interpreter's own entry" end
    total = total + count
    if workloads.is_right(workload, stack) then right = right + count else wrong[#wrong + 1] = { tonumber(count), path } end
  end
end
print(string.format("%d %d %.3f%%", right, total, 100 * right / math.max(total, 1)))
table.sort(wrong, function(a, b) return a[1] > b[1] end)
for i = 1, math.min(#wrong, tonumber(os.getenv("SHOW") or 5)) do print("  wrong: " .. wrong[i][1] .. " " .. wrong[i][2]) end
