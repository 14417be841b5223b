-- Memory in motion: deep and shallow stacks, nested coroutines, garbage, errors. Prints "ready" and never ends.
local kept = {}
local function deep(n)
  if n == 0 then return #kept end
  return 1 + deep(n - 1)
end
local function nested(n)
  if n == 0 then return deep(50) end
  return select(2, coroutine.resume(coroutine.create(function() return nested(n - 1) end)))
end
io.write("ready\n")
io.flush()
for round = 1, math.huge do
  deep(round % 150)
  nested(round % 20)
  kept[round % 300] = coroutine.create(function(a) while true do a = coroutine.yield(a .. round) end end)
  coroutine.resume(kept[round % 300], "a")
  pcall(error, { round })
  local s = table.concat({ "x", round, "y" })
  if round % 64 == 0 then collectgarbage("step") end
end
