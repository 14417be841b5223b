-- Uses the processor in known shares: a 50, b 30, c 20 of a hundred. Arguments: how, and how many rounds or until which file exists; or for good.
--   plain       three functions          coroutines  each in a coroutine inside of another
--   fork        plain, and starts another program: the third argument, a command
-- It prints "ready" when it begins.
local how, last, command = ...
local rounds, file = tonumber(last) or math.huge, not tonumber(last) and last

local function burn(n)
  local x = 0
  for i = 1, n do x = (x + i * 3) % 1000003 end
  return x
end
local function a() return (burn(50000)) end
local function b() return (burn(30000)) end
local function c() return (burn(20000)) end

if how == "coroutines" then
  local function nested(f)
    return coroutine.wrap(function()
      local inner = coroutine.wrap(function()
        while true do
          f()
          coroutine.yield()
        end
      end)
      while true do
        inner()
        coroutine.yield()
      end
    end)
  end
  a, b, c = nested(a), nested(b), nested(c)
end
io.write("ready\n")
io.flush()
local child = how == "fork" and io.popen(command)
local round = 0
while round < rounds and not (file and round % 32 == 0 and io.open(file)) do
  a()
  b()
  c()
  round = round + 1
end
if child then child:close() end
