-- SPDX-License-Identifier: MIT
-- Works for ever at the bottom of so many different functions: what a stack of that depth costs who walks it.
--   lua bench/depth.lua FRAMES [FILES]
-- They are of one file, or of so many, whose functions call each other in turn. A file makes its own one after the other, as modules do.
local frames, files = tonumber(arg[1]), tonumber(arg[2] or 1)
local load = loadstring or load
local function work()
  local s = 0
  while true do
    for i = 1, 1000 do s = s + i % 7 end
  end
end
local others = frames - 4 -- the interpreter's own, this chunk's, the last call's and work's
local each = math.ceil(others / files)
local made = {}
for file = 1, files do
  local text = { "local made = {}" }
  for i = 1, each do
    text[#text + 1] = ("made[%d] = function(f) return function() local r = f() return r end end"):format(i)
  end
  text[#text + 1] = "return made"
  made[file] = load(table.concat(text, "\n"), "@depth" .. file .. ".lua")()
end
local f = work
for i = 0, others - 1 do f = made[i % files + 1][math.floor(i / files) + 1](f) end
f()
