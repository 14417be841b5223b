-- SPDX-License-Identifier: MIT
-- Benchmark program: function calls. Plain and mutual recursion, tail calls, varargs and many tiny leaf functions.

local function fib(n)
  if n < 2 then return n end
  return fib(n - 1) + fib(n - 2)
end

local function nested_average(x, y, z)
  if x <= y then return z end
  return nested_average(nested_average(x - 1, y, z), nested_average(y - 1, z, x), nested_average(z - 1, x, y))
end

-- Two sequences defined through each other (Hofstadter's female and male), not by tail calls.
local male
local function female(n)
  if n == 0 then return 1 end
  return n - male(female(n - 1))
end
function male(n)
  if n == 0 then return 0 end
  return n - female(male(n - 1))
end

-- Mutual tail calls: the stack stays flat.
local is_odd
local function is_even(n)
  if n == 0 then return 1 end
  return is_odd(n - 1)
end
function is_odd(n)
  if n == 0 then return 0 end
  return is_even(n - 1)
end

local function add(a, b) return a + b end
local function twice(x) return add(x, x) end
local function clamp(x, low, high)
  if x < low then return low end
  if x > high then return high end
  return x
end
local function count(...) return select("#", ...) end

local function small_functions(rounds)
  local sum = 0
  for i = 1, rounds do
    sum = add(sum, clamp(twice(i), 10, 2000)) + count(i, sum, nil)
  end
  return sum
end

return function()
  local sum = fib(21)
  sum = sum + nested_average(11, 6, 1)
  sum = sum + female(22) + male(21)
  for n = 300, 310 do sum = sum + is_even(n) end
  return sum + small_functions(9000)
end
