-- A program whose stacks are known. Argument: how its innermost function passes the time: busy, wait (in os.execute) or read (io.popen).
-- It prints "ready" when everything is in place.
local how = (...)

local function leaf(n)
  if how == "wait" then
    io.write("ready\n")
    io.flush()
    os.execute("exec sleep 1000")
  elseif how == "read" then
    local pipe = io.popen("echo ready >&2; exec sleep 1000")
    pipe:read("*a")
  else
    io.write("ready\n")
    io.flush()
    local x = 0
    while true do x = (x + n) % 1000003 end
  end
  return n
end

local function deeper(n)
  if n == 0 then return (leaf(3)) end
  local r = deeper(n - 1)
  return r
end

-- one that has yielded, three calls deep
local function wait_for_more(n)
  if n == 0 then
    coroutine.yield(1)
    return 0
  end
  local r = wait_for_more(n - 1)
  return r
end
yielded = coroutine.create(function() wait_for_more(2) end)
coroutine.resume(yielded)
-- one that never ran, one that has returned, one that failed
fresh = coroutine.create(function() end)
returned = coroutine.create(function() return 1 end)
coroutine.resume(returned)
failed = coroutine.create(function() error("on purpose") end)
coroutine.resume(failed)
-- none of: it is garbage, and collected
coroutine.resume(coroutine.create(function() coroutine.yield() end))
collectgarbage()
collectgarbage()

local function body()
  local r = deeper(3)
  return r
end
outer = coroutine.create(function()
  inner = coroutine.create(body)
  local ok, message = coroutine.resume(inner)
  return ok, message
end)
print(coroutine.resume(outer))
