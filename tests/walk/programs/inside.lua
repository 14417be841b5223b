-- A C function that does not come back: a pattern that takes ages to fail, searched in a coroutine.
-- states 2
-- vmstate c
-- frame library
-- frame lua @tests/walk/programs/inside.lua:10 11
-- frame lua @tests/walk/programs/inside.lua:15 16
-- frame library
-- frame lua @tests/walk/programs/inside.lua:0 19
-- frame c
local function search(text, pattern)
  local from, to = string.find(text, pattern)
  return from, to
end
local text, pattern = string.rep("a", 100), string.rep("a*", 10) .. "b"
local body = function()
  local from, to = search(text, pattern)
  return from, to
end
local result = coroutine.wrap(body)()
return result
