-- A finalizer, called by the collector in the middle of a Lua function.
-- states 1
-- frame lua @tests/walk/programs/finalizer.lua:7 8
-- frame lua @tests/walk/programs/finalizer.lua:18 20
-- frame lua @tests/walk/programs/finalizer.lua:0 23
-- frame c
local function finalize()
  local n = 0 while true do n = 1 - n end
end
local function prepare()
  if newproxy then -- 5.1: only userdata have finalizers
    getmetatable(newproxy(true)).__gc = finalize
  else
    setmetatable({}, {__gc = finalize})
  end
end
local sink
local function allocate()
  local n = 0
  while true do sink = {n} end
end
prepare()
local result = allocate()
return result
