-- SPDX-License-Identifier: MIT
-- Benchmark program: JSON. A small encoder and decoder in plain Lua, run there and back over a document like an API's
-- answer: nested objects, arrays, escapes, numbers.

local encode_value

local escapes = { ['"'] = '\\"', ["\\"] = "\\\\", ["\n"] = "\\n", ["\t"] = "\\t" }
local function encode_string(s) return '"' .. (s:gsub('["\\\n\t]', escapes)) .. '"' end

local function encode_array(array, out)
  out[#out + 1] = "["
  for i = 1, #array do
    if i > 1 then out[#out + 1] = "," end
    encode_value(array[i], out)
  end
  out[#out + 1] = "]"
end

local function encode_object(object, out)
  local keys = {}
  for key in pairs(object) do keys[#keys + 1] = key end
  table.sort(keys)
  out[#out + 1] = "{"
  for i = 1, #keys do
    if i > 1 then out[#out + 1] = "," end
    out[#out + 1] = encode_string(keys[i]) .. ":"
    encode_value(object[keys[i]], out)
  end
  out[#out + 1] = "}"
end

function encode_value(value, out)
  local kind = type(value)
  if kind == "string" then out[#out + 1] = encode_string(value)
  elseif kind == "number" then out[#out + 1] = string.format("%.14g", value)
  elseif kind == "boolean" then out[#out + 1] = tostring(value)
  elseif #value > 0 then encode_array(value, out)
  else encode_object(value, out) end
end

local decode_value

local function skip_space(text, at) return text:find("[^ \n\t]", at) end

local unescapes = { n = "\n", t = "\t", ['"'] = '"', ["\\"] = "\\" }
local function decode_string(text, at)
  local stop = at
  repeat -- the quote that ends the string has an even number of backslashes before it
    stop = text:find('"', stop + 1, true)
    local slashes, before = 0, stop - 1
    while text:byte(before) == 92 do slashes, before = slashes + 1, before - 1 end
  until slashes % 2 == 0
  local raw = text:sub(at + 1, stop - 1):gsub("\\(.)", unescapes)
  return raw, stop + 1
end

local function decode_array(text, at)
  local array = {}
  at = skip_space(text, at + 1)
  while text:byte(at) ~= 93 do -- ]
    array[#array + 1], at = decode_value(text, at)
    at = skip_space(text, at)
    if text:byte(at) == 44 then at = skip_space(text, at + 1) end -- ,
  end
  return array, at + 1
end

local function decode_object(text, at)
  local object = {}
  at = skip_space(text, at + 1)
  while text:byte(at) ~= 125 do -- }
    local key, value
    key, at = decode_value(text, at)
    at = skip_space(text, at)
    value, at = decode_value(text, skip_space(text, at + 1)) -- after the :
    object[key] = value
    at = skip_space(text, at)
    if text:byte(at) == 44 then at = skip_space(text, at + 1) end
  end
  return object, at + 1
end

local function decode_number(text, at)
  local digits = text:match("^[-+%d.eE]+", at)
  return tonumber(digits), at + #digits
end

function decode_value(text, at)
  local first = text:byte(at)
  if first == 34 then return decode_string(text, at)
  elseif first == 123 then return decode_object(text, at)
  elseif first == 91 then return decode_array(text, at)
  elseif first == 116 then return true, at + 4
  elseif first == 102 then return false, at + 5
  else return decode_number(text, at) end
end

local function document()
  local users = {}
  for i = 1, 30 do
    local orders = {}
    for j = 1, 4 do
      orders[j] = { id = i * 100 + j, total = (i * 37 + j * 11) / 4, paid = j % 2 == 0,
                    lines = { "sku-" .. i, "sku-" .. j, "gift \"wrapped\"" } }
    end
    users[i] = { name = "User\t" .. i, email = "user" .. i .. "@example.org", active = i % 3 ~= 0, orders = orders,
                 address = { street = i .. " Main Street\nFloor " .. i, zip = 10000 + i, position = { 1.5 * i, -0.25 * i } } }
  end
  return { version = 3, users = users, next = "/users?page=2" }
end

local original = document()

return function()
  local out = {}
  encode_value(original, out)
  local text = table.concat(out)
  local again = {}
  encode_value((decode_value(text, 1)), again)
  if table.concat(again) ~= text then error("the document changed on its way") end
  return #text + #out
end
