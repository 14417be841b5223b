-- SPDX-License-Identifier: MIT
-- Workloads that are always inside Lua, and their grammars: who may call whom. With them a stack can be told right or wrong, from
-- root to leaf.
--   local workloads = dofile "bench/workloads.lua"     .run(name, seconds)  .is_right(name, stack)
--   lua bench/workloads.lua NAME SECONDS               runs one, for who looks at it from outside

-- -- the workloads: ordinary functions whose names the grammar knows -------------------------------------------------

local workloads, grammar = {}, {}

-- grammar[workload][callee] = set of callers; "" is the root, "*" any function, but not the root. Functions of the driver are known to all.
local function rules(workload, text)
  local callers = {}
  for line in text:gmatch("[^\n]+") do
    local callee, list = line:match("^%s*(%S+)%s*<%-%s*(.-)%s*$")
    if callee then
      callers[callee] = {}
      for caller in list:gmatch("%S+") do callers[callee][caller] = true end
    end
  end
  grammar[workload] = callers
end

local function spin(n)
  local s = 0
  for i = 1, n do s = s + i % 7 end
  return s
end

local function third(n) local s = spin(n) return s end
local function second(n) local s = third(n) + third(n) return s end
local function first(n) local s = second(n) + spin(n) return s end

function workloads.plain(more)
  while more() do local s = first(300) end
end
rules("plain", [[
  workloads.plain <- run
  first <- workloads.plain
  second <- first
  third <- second
  spin <- first third
]])

local function inner_body()
  while true do
    local s = third(200)
    coroutine.yield(s)
  end
end

local function outer_body()
  local inner = coroutine.create(inner_body)
  while true do
    local s = second(50)
    for _ = 1, 3 do coroutine.resume(inner) end
    coroutine.yield(s)
  end
end

function workloads.coroutines(more)
  local resume = coroutine.wrap(outer_body)
  while more() do
    resume()
    local s = first(50)
  end
end
rules("coroutines", [[
  workloads.coroutines <- run
  coroutine.wrap <- workloads.coroutines
  coroutine.create <- outer_body
  outer_body <- coroutine.wrap
  coroutine.resume <- outer_body
  coroutine.yield <- outer_body inner_body
  inner_body <- coroutine.resume
  first <- workloads.coroutines
  second <- first outer_body
  third <- second inner_body
  spin <- first third
]])

local function compare(a, b) return a < b end
local function replace(word) return word .. "!" end

local function sorting()
  local list = {}
  for i = 1, 60 do list[i] = i * 7919 % 101 end
  table.sort(list, compare)
  return list
end

local function replacing()
  local text = ("some words in a row "):rep(4)
  local result = text:gsub("%a+", replace)
  return result
end

local function finalizer() spin(20) end
local finalized = { __gc = finalizer }

local function collected()
  if newproxy then
    local proxy = newproxy(true)
    getmetatable(proxy).__gc = finalizer
  else
    setmetatable({}, finalized)
  end
end

local function allocating()
  local keep
  for i = 1, 40 do keep = { i, { i } } end
  collected()
  return keep
end

local function failing(x)
  if x > 0 then error("no") end
end

local function protecting()
  for i = 1, 10 do
    local ok = pcall(failing, i % 2)
  end
end

local function deep(n)
  if n == 0 then return spin(100) end
  local s = deep(n - 1)
  return s + 1
end

local vector = {}
local function add(a, b) return a.x + b.x + spin(5) end
vector.__add = add

local function adding()
  local a, s = setmetatable({ x = 1 }, vector), 0
  for _ = 1, 10 do s = s + (a + a) end
  return s
end

function workloads.mix(more)
  while more() do
    local l = sorting()
    local t = replacing()
    local k = allocating()
    protecting()
    local d = deep(60)
    local v = adding()
  end
end
rules("mix", [[
  workloads.mix <- run
  sorting <- workloads.mix
  replacing <- workloads.mix
  allocating <- workloads.mix
  protecting <- workloads.mix
  adding <- workloads.mix
  deep <- workloads.mix deep
  table.sort <- sorting
  compare <- table.sort
  string.rep <- replacing
  string.gsub <- replacing
  replace <- string.gsub
  collected <- allocating
  newproxy <- collected
  getmetatable <- collected
  setmetatable <- collected adding
  finalizer <- *
  pcall <- protecting
  failing <- pcall
  error <- failing
  add <- adding
  spin <- deep add finalizer
]])

-- -- the check -------------------------------------------------------------------------------------------------------

-- stack: leaf first, each frame with a name and a file.
local function is_right(workload, stack)
  local callers, caller = grammar[workload], ""
  for i = #stack, 1, -1 do
    local name = stack[i].name
    if name == "main chunk" then
      if caller ~= "" then return false end
    elseif name == "run" then
      if caller ~= "main chunk" then return false end
    elseif name == "more" then
      if not caller:match("^workloads%.") then return false end
    elseif name == "os.clock" then
      if caller ~= "more" then return false end
    else
      local allowed = callers[name]
      if not allowed then
        if not (i == #stack and stack[i].file == "[C]") then return false end -- the interpreter's own entry
        name = ""
      elseif not (allowed[caller] or (allowed["*"] and caller ~= "")) then
        return false
      end
    end
    caller = name
  end
  return caller ~= ""
end

local function run(name, seconds)
  local clock, turns, stop = os.clock, 0, os.clock() + seconds
  local function more()
    turns = turns + 1
    return turns % 16 ~= 0 or clock() < stop
  end
  workloads[name](more)
end

if arg and arg[0] and arg[0]:match("workloads%.lua$") then run(arg[1], tonumber(arg[2])) end
return { run = run, is_right = is_right, names = workloads }
