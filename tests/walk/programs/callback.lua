-- Lua called by C functions: a gsub callback that sorts, and the comparator spins.
-- states 1
-- frame lua @tests/walk/programs/callback.lua:11 12
-- frame lua @tests/walk/programs/callback.lua:16 17
-- frame library
-- frame lua @tests/walk/programs/callback.lua:14 16
-- frame library
-- frame lua @tests/walk/programs/callback.lua:21 22
-- frame lua @tests/walk/programs/callback.lua:0 25
-- frame c
local function spin(n)
  while true do n = 1 - n end
end
local function replace(text)
  local list = {4, 3, 2, 1, #text}
  table.sort(list, function(a, b)
    local result = a < b or spin(1)
    return result
  end)
end
local function render(template)
  local result = string.gsub(template, "%w+", replace)
  return result
end
local result = render("a template")
return result
