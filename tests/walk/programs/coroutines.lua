-- A coroutine (wrap) that resumes another (resume), both some calls deep, the inner one inside a pcall.
-- states 3
-- frame lua @tests/walk/programs/coroutines.lua:15 16
-- frame lua @tests/walk/programs/coroutines.lua:18 19
-- frame library
-- frame lua @tests/walk/programs/coroutines.lua:22 24
-- frame library
-- frame lua @tests/walk/programs/coroutines.lua:27 28
-- frame lua @tests/walk/programs/coroutines.lua:31 33
-- frame library
-- frame lua @tests/walk/programs/coroutines.lua:37 39
-- frame lua @tests/walk/programs/coroutines.lua:0 44
-- frame c
local wrap, create, resume, yield = coroutine.wrap, coroutine.create, coroutine.resume, coroutine.yield
local function spin(n)
  while true do n = 1 - n end
end
local function leaf(a, b)
  local result = spin(a - b)
  return result
end
local inner = create(function(a)
  local b = yield(a)
  local ok, result = pcall(leaf, b, a)
  return ok, result
end)
local function push(value)
  local ok, result = resume(inner, value)
  return ok, result
end
local outer = wrap(function()
  push(1)
  local result = push(2)
  yield(result)
  return result
end)
local function start()
  local idle = create(function() yield(3) end) -- suspended: not part of any stack
  local result = resume(idle) and outer()
  return result
end
-- others that came and went
for _ = 1, 10 do wrap(function() yield(wrap(function() return 1 end)()) end)() end
local result = start()
return result
