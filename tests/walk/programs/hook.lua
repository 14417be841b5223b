-- A debug hook written in Lua, called between two instructions of a Lua function.
-- states 1
-- frame lua @tests/walk/programs/hook.lua:7 8
-- frame lua @tests/walk/programs/hook.lua:10 12
-- frame lua @tests/walk/programs/hook.lua:0 16
-- frame c
local function hook()
  local n = 0 while true do n = 1 - n end
end
local function work()
  local n = 0
  while true do n = 1 - n end
end
collectgarbage()
debug.sethook(hook, "", 1000) -- instructions: deep in the loop
local result = work()
return result
