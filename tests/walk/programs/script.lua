-- A script that redis-server runs (EVAL): its Lua is 5.1 with tables of its own.
-- states 1
-- frame lua @user_script:8 9
-- frame lua @user_script:11 12
-- frame library
-- frame lua @user_script:15 16
-- frame lua @user_script:0 19
local function spin(n)
  while true do n = 1 - n end
end
local function inner(n)
  local result = spin(n)
  return result
end
local function protected(n)
  local ok, result = pcall(inner, n)
  return ok, result
end
local ok = protected(1)
return ok
