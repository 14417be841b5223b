-- Functions without a source and in no table, each called in another way, the last one at work. Prints what debug.getinfo has for
-- names, from the leaf to the root, then "ready".
local load = loadstring or load
local many = {}
for i = 1, 300 do many[i] = "x = 'constant " .. i .. "'" end
local text = [[
local x, say = nil, ...
local function anonymous(f) return (function() return f end)() end
local objects = {}

local function leaf() say() while true do x = 1 end end
objects.plain = anonymous(function() leaf() return 1 end)
objects.method = anonymous(function(self, ...) self.plain(...) return 1 end)
local upvalue = anonymous(function() objects:method(1, 2) return 1 end)
local function by_upvalue(n) if n > 0 then by_upvalue = nil end upvalue() return 1 end
local function tail_called() by_upvalue(0) return 1 end
local function tail_calls() return tail_called() end
local function by_pcall() tail_calls() return 1 end
local function calls_pcall() pcall(by_pcall) return 1 end
local function one_of_two(a) local r = calls_pcall() return r end
local function chooses(a) local r = (a and one_of_two or anonymous)(a) return r end
local function iterate() chooses(true) return nil end
local function loops() for i = 1, 2 do for x in iterate do return x end end end
local function captures()
  local a, b, c = loops, x, objects
  local inner = function() a(b, c, x) return 1 end
  inner(a, b, c)
end
global_function = anonymous(function() captures() return 1 end)
local function vararg(...) local a, b = ... global_function(...) return a end
local t = setmetatable({}, {
  __index = anonymous(function() vararg(1, 2, 3) return 1 end),
  __newindex = anonymous(function(t) local r = t.nothing return r end),
  __unm = anonymous(function(t) t.nothing = 1 return 1 end),
  __sub = anonymous(function(t) local r = -t return r end),
  __lt = anonymous(function(t) local r = t - 1 return r end),
  __eq = anonymous(function(t) local r = t < t return true end),
  __call = anonymous(function(t) local r = t == setmetatable({}, getmetatable(t)) return r end),
})
local function nested() local r = objects.plain == 1 or t() return r end
local record = { deep = { er = anonymous(function() nested() return 1 end) } }
local function chain() if x == 1 then x = nil else record.deep.er() end return 1 end
do local hidden = 1 end
local function recursive(n) if n == 0 then chain() else recursive(n - 1) end return 1 end
local last = anonymous(function() recursive(2) return 1 end)
local list = { 1, 2, 3, last, leaf }
]] .. table.concat(many, " ") .. [[

objects.past_many_constants = function() last() return 1 end
objects.past_many_constants(list)
]]

local function say()
  for level = 2, 100 do
    local info = debug.getinfo(level, "nS")
    if not info then break end
    if info.short_src == "nowhere" and info.what ~= "main" then
      local name = info.name
      if name == "(for generator)" then name = "for iterator" end -- 5.1
      if info.namewhat == "metamethod" then name = "__" .. name:gsub("^__", "") end
      if info.linedefined == 14 then name = nil end -- 5.1 takes one of the two
      print("name " .. (name or "function <nowhere:" .. info.linedefined .. ">"))
    end
  end
  print("ready")
  io.flush()
end
assert(load(text, "=nowhere"))(say)
