-- SPDX-License-Identifier: MIT
-- Works for ever deep inside a parser by recursive descent, whose functions call each other in turn: what a deep stack costs who walks it.
--   lua bench/descent.lua FRAMES
local frames = tonumber(arg[1])

local function work()
  local s = 0
  while true do
    for i = 1, 1000 do s = s + i % 7 end
  end
end

-- expression: choice { "or" choice }; choice: comparison { "and" comparison }; … group: "(" expression ")"
local expression
local function group(text, at, depth)
  if depth >= frames then work() end
  local value, after = expression(text, at + 1, depth + 1)
  return value, after + 1
end
local function primary(text, at, depth)
  local value, after = group(text, at, depth + 1)
  return value, after
end
local function call(text, at, depth)
  local value, after = primary(text, at, depth + 1)
  return value, after
end
local function unary(text, at, depth)
  local value, after = call(text, at, depth + 1)
  return value, after
end
local function product(text, at, depth)
  local left, after = unary(text, at, depth + 1)
  return left, after
end
local function sum(text, at, depth)
  local left, after = product(text, at, depth + 1)
  return left, after
end
local function comparison(text, at, depth)
  local left, after = sum(text, at, depth + 1)
  return left, after
end
local function choice(text, at, depth)
  local left, after = comparison(text, at, depth + 1)
  return left, after
end
function expression(text, at, depth)
  local left, after = choice(text, at, depth + 1)
  return left, after
end

expression(("("):rep(frames), 1, 4) -- below: the interpreter's own and this chunk; above: work
