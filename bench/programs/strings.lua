-- SPDX-License-Identifier: MIT
-- Benchmark program: strings. Concatenation, patterns (find, match, gmatch, gsub), format, byte and char, and a
-- word count; much of the time is in the C library of Lua, not in its bytecode.

local words = {}
for i = 1, 480 do
  local letters = {}
  for j = 1, 3 + i % 6 do letters[j] = string.char(97 + (i * 7 + j * 11 + i % 5 * j) % 26) end
  words[i] = table.concat(letters)
end
local text = table.concat(words, " ")

local function concatenate(rounds)
  local line = ""
  for i = 1, rounds do line = line .. words[i % #words + 1] .. "," end
  return #line
end

local function capitalise(source)
  return (source:gsub("(%a)(%a*)", function(first, rest) return first:upper() .. rest end))
end

local function expand(template, values) return (template:gsub("%${(%w+)}", values)) end

local function count_words(source)
  local counts, distinct = {}, 0
  for word in source:gmatch("%a+") do
    local seen = counts[word]
    if not seen then distinct = distinct + 1 end
    counts[word] = (seen or 0) + 1
  end
  return distinct
end

local function rotate(source, by)
  local out = {}
  for i = 1, #source do
    local code = source:byte(i)
    if code >= 97 and code <= 122 then code = (code - 97 + by) % 26 + 97 end
    out[i] = string.char(code)
  end
  return table.concat(out)
end

local function checksum(source)
  local sum = 0
  for i = 1, #source do sum = (sum * 31 + source:byte(i)) % 1000003 end
  return sum
end

local function log_lines(count)
  local errors = 0
  for i = 1, count do
    local level = i % 7 == 0 and "ERROR" or "info"
    local line = string.format("%05d %-5s %s took %.2f ms (0x%x)", i, level, words[i % #words + 1], i / 8, i)
    local number, name = line:match("^(%d+) (%u+) ")
    if name == "ERROR" then errors = errors + tonumber(number) end
    if line:find("ms (0x", 1, true) then errors = errors + 1 end
  end
  return errors
end

return function()
  local sum = concatenate(400) + count_words(text) + log_lines(1000)
  local page = capitalise(text) .. expand("${a} and ${b}; ${c}", { a = words[1], b = words[2] })
  local secret = rotate(text, 13)
  if rotate(secret, 13) ~= text then error("rotate is not its own inverse") end
  return sum + checksum(page) + checksum(secret:reverse():upper())
end
