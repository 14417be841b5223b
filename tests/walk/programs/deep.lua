-- More frames than a walk takes: it is cut at 1024, and says so.
-- states 1
-- truncated
-- frame lua @tests/walk/programs/deep.lua:6 7
-- frame lua @tests/walk/programs/deep.lua:6 8 x1023
local function down(n)
  while n == 0 do end
  local result = down(n - 1)
  return result
end
local result = down(1500)
return result
