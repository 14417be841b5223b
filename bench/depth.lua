-- SPDX-License-Identifier: MIT
-- Works for ever at the bottom of so many different functions: what a stack of that depth costs who walks it.
--   lua bench/depth.lua FRAMES [apart]
-- They are of one file, or as if each was of a file of its own (apart).
local frames, apart = tonumber(arg[1]), arg[2] == "apart"
local function work()
  local s = 0
  while true do
    for i = 1, 1000 do s = s + i % 7 end
  end
end
local f = work
for i = 1, frames - 4 do -- the interpreter's own, this chunk's, the last call's and work's
  local file = "@depth" .. (apart and i or "") .. ".lua"
  f = (loadstring or load)("local f = ... return function() local r = f() return r end", file)(f)
end
f()
