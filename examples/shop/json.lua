-- SPDX-License-Identifier: MIT
-- Reads JSON. Slow on purpose: white space is skipped one character at a time, each as a new string.
local json = {}

local parse_value

local function skip_space_char_by_char(text, at)
  while true do
    local char = text:sub(at, at)
    if char ~= " " and char ~= "\n" and char ~= "\t" and char ~= "\r" then return at, char end
    at = at + 1
  end
end

local function expect(text, at, wanted)
  local position, char = skip_space_char_by_char(text, at)
  if char ~= wanted then error("expected " .. wanted .. " at position " .. position) end
  return position + 1
end

local function parse_string(text, at)
  local stop = at + 1
  while text:sub(stop, stop) ~= '"' do
    stop = text:sub(stop, stop) == "\\" and stop + 2 or stop + 1
  end
  local value = text:sub(at + 1, stop - 1):gsub("\\(.)", "%1")
  return value, stop + 1
end

local function parse_number(text, at)
  local digits = text:match("^-?[%d.eE+-]+", at)
  if not digits then error("no value at position " .. at) end
  return tonumber(digits), at + #digits
end

-- Members up to the closing bracket; member(at) reads one and returns the position after it.
local function parse_members(text, at, closing, member)
  local position, char = skip_space_char_by_char(text, at + 1)
  while char ~= closing do
    position, char = skip_space_char_by_char(text, member(position))
    if char == "," then position, char = skip_space_char_by_char(text, position + 1) end
  end
  return position + 1
end

local function parse_array(text, at)
  local array = {}
  return array, parse_members(text, at, "]", function(position)
    local value
    value, position = parse_value(text, position)
    array[#array + 1] = value
    return position
  end)
end

local function parse_object(text, at)
  local object = {}
  return object, parse_members(text, at, "}", function(position)
    local key, value
    key, position = parse_string(text, position)
    value, position = parse_value(text, expect(text, position, ":"))
    object[key] = value
    return position
  end)
end

function parse_value(text, at)
  local position, char = skip_space_char_by_char(text, at)
  if char == "{" then return parse_object(text, position) end
  if char == "[" then return parse_array(text, position) end
  if char == '"' then return parse_string(text, position) end
  if text:find("^true", position) then return true, position + 4 end
  if text:find("^false", position) then return false, position + 5 end
  return parse_number(text, position)
end

function json.parse(text) return (parse_value(text, 1)) end

return json
