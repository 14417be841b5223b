-- Lua code called in the ways that leave frames of their own kind: metamethod, varargs, tail call, pcall, loaded chunk.
-- states 1
-- frame lua @tests/walk/programs/nested.lua:12 13
-- frame lua @tests/walk/programs/nested.lua:15 16
-- frame lua @tests/walk/programs/nested.lua:20 21
-- frame library
-- frame lua @tests/walk/programs/nested.lua:27 28
-- frame lua =loaded:0 2
-- frame lua @tests/walk/programs/nested.lua:0 35
-- frame c
local unpack = unpack or table.unpack
local function spin(n)
  while true do n = 1 - n end
end
local function missing(_, key)
  local result = spin(#key)
  return result
end
local object = setmetatable({}, {__index = missing})
local function indexed(a, ...)
  local result = object.absent
  return result, a, ...
end
local function tail(...) -- leaves no frame
  return indexed(...)
end
local function protected(...)
  local ok, result = pcall(tail, unpack({...}))
  return ok, result
end
local run = (loadstring or load)([[local f = ...
local r = f(1, 2, 3)
return r
]], "=loaded")
local result = run(protected)
return result
