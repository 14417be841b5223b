-- SPDX-License-Identifier: MIT
-- Works for ever at the bottom of so many different functions: what a stack of that depth costs who walks it.
--   lua bench/depth.lua FRAMES [apart]
-- They are of one file, which made them one after the other, as modules do; or each of a file of its own (apart).
local frames, apart = tonumber(arg[1]), arg[2] == "apart"
local load = loadstring or load
local function work()
  local s = 0
  while true do
    for i = 1, 1000 do s = s + i % 7 end
  end
end
local others = frames - 4 -- the interpreter's own, this chunk's, the last call's and work's
local f = work
if apart then
  for i = 1, others do
    f = load("local f = ... return function() local r = f() return r end", "@depth" .. i .. ".lua")(f)
  end
else
  local text = { "local f, M = ..., {}" }
  for i = 1, others do
    text[#text + 1] = ("do local f = f function M.f%d() local r = f() return r end end f = M.f%d"):format(i, i)
  end
  text[#text + 1] = "return f"
  f = load(table.concat(text, "\n"), "@depth.lua")(f)
end
f()
