-- Does one kind of thing for good, after it has printed "ready" and what is to be found in it: "heap BYTES". The argument says what:
--   compute      Lua code alone      c       a C function      garbage   makes and drops tables
--   kernel       reads /dev/zero     read    waits             sleep     waits a little, again and again (LuaJIT)
--   known        compute, with 37 coroutines that wait, 5 that have ended, 4 MB of strings, and a collector that rests
--   objects      compute, with more objects than can be looked through in a moment
local how = ...
local kept = {}
if how == "known" then
  for i = 1, 37 do
    kept[i] = coroutine.create(function() coroutine.yield() end)
    coroutine.resume(kept[i])
  end
  for i = 1, 5 do coroutine.resume(coroutine.create(function() end)) end
  for i = 1, 4 do kept[#kept + 1] = string.rep(string.char(64 + i), 1048576) end
elseif how == "objects" then
  for i = 1, 1000000 do kept[i] = {} end
end
if how ~= "garbage" then
  collectgarbage()
  collectgarbage("stop")
end
print("heap " .. string.format("%d", collectgarbage("count") * 1024))
print("ready")
io.stdout:flush()

if how == "compute" or how == "known" or how == "objects" then
  local x = 0
  while true do
    for i = 1, 1000 do x = (x + i * 3) % 1000003 end
  end
elseif how == "c" then
  local text = string.rep("a", 1000000)
  while true do string.find(text, "b", 1, true) end
elseif how == "garbage" then
  local last = {}
  while true do
    for i = 1, 1000 do last[i] = {i} end
  end
elseif how == "kernel" then
  local zero = io.open("/dev/zero")
  zero:setvbuf("no")
  collectgarbage("restart")
  while true do zero:read(1048576) end
elseif how == "sleep" then
  local ffi = require "ffi"
  ffi.cdef "int usleep(unsigned);"
  while true do ffi.C.usleep(1000) end
else
  io.read()
end
