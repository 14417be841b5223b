-- A program to profile: burns CPU for arg[1] seconds in known functions, then ends in the way arg[2] names.
local seconds, ending = tonumber(arg[1] or "0.5"), arg[2] or "normal"
local function inner(n) local s = 0 for i = 1, n do s = s + i % 7 end return s end
function outer() return (inner(2000)) end -- global: named by where it is held
local stop = os.clock() + seconds
while os.clock() < stop do outer() end
io.stdout:write("out\n")
io.stderr:write("err\n")
if ending == "exit" then
  os.exit(7)
elseif ending == "error" then
  error("boom")
elseif ending == "forever" then
  io.stdout:flush()
  while true do outer() end
end
