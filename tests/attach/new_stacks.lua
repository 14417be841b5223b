-- Functions that nobody has seen before, forty deep, all the time: each stack is new, with names and a file of its own; they live long enough to be
-- read. Prints "ready" and never ends.
--   lua new_stacks.lua [MODULES]     with so many modules of 500 functions each, which have names there
local load = loadstring or load
for m = 1, tonumber(arg[1] or 0) do
  local module = {}
  for i = 1, 500 do module[("function_with_a_rather_long_name_%d_%d"):format(m, i)] = load("return function() end", "=made")() end
  package.loaded["module" .. m] = module
end
local DEPTH, WORK, KEPT = 40, 30000, 1000
local own = tostring({}):gsub("[^%w]", "_")
local kept = {}
io.write("ready\n")
io.flush()
for n = 1, math.huge do
  local text = { ("local function f_0() local x = 0 for i = 1, %d do x = x + i end return x end"):format(WORK) }
  for i = 1, DEPTH do text[#text + 1] = ("local function f_%d_of_%d() return 1 + f_%s() end"):format(i, n, i == 1 and 0 or (i - 1) .. "_of_" .. n) end
  text[#text + 1] = ("return f_%d_of_%d()"):format(DEPTH, n)
  kept[n % KEPT] = load(table.concat(text, "\n"), ("=%s_a_source_whose_name_is_long_%d"):format(own, n))
  kept[n % KEPT]()
end
