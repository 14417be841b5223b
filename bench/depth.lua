-- SPDX-License-Identifier: MIT
-- Works for ever at the bottom of so many different functions: what a stack of that depth costs who walks it.
--   lua bench/depth.lua FRAMES
local frames = tonumber(arg[1])
local function work()
  local s = 0
  while true do
    for i = 1, 1000 do s = s + i % 7 end
  end
end
local f = work
for _ = 1, frames - 4 do -- the interpreter's own, this chunk's, the last call's and work's
  f = (loadstring or load)("local f = ... return function() local r = f() return r end")(f)
end
f()
