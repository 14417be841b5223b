-- One loop for ever. Each of three lines does much more than the line of the loop itself.
local t = {}
local function work()
  local s = 0
  for i = 1, 1e6 do
    s = s + i % 7 + i % 5 + i % 3 + i % 11 + i % 13 + i % 17
    t[i % 64] = s; t[i % 32] = s; t[i % 16] = s; t[i % 8] = s; t[i % 4] = s
    s = i * 2 - s % 3 + i * 5 - i % 7 + i * 3 - i % 19 + i * 7 - i % 23
  end
  return s
end
print "ready"
io.stdout:flush()
while true do work() end
