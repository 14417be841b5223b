-- A program that allocates in every way Lua has: for tests in which each of its blocks is followed. Returns functions by name.
local load, unpack = loadstring or load, table.unpack or unpack

local torture = {}

-- Calls itself with 190 locals: the stack is full after some thousand calls, each of which is walked with every block.
local locals = {}
for i = 1, 190 do locals[i] = "v" .. i end
local down = load("local down function down(n) local kept = {n} local " .. table.concat(locals, ", ") ..
  " return down(n + 1) + #kept end return down", "=down")()

-- Not in all(): it takes seconds.
function torture.overflow()
  if rawget(_G, "jit") then -- whose debug.traceback crashes after an overflow, and whose C stack is too small for its own limit
    assert(not pcall(down, 1))
    return
  end
  local function handler(message) return tostring(message) .. #debug.traceback() end
  assert(not xpcall(function() return down(1) end, handler))
  local function in_c(n) return (string.gsub("x", "x", function() return in_c(n + 1) end)) end
  assert(not pcall(in_c, 1)) -- until the C stack does
end

function torture.recursion()
  local function deep(n) local kept = { n } if n == 0 then error(kept) end return deep(n - 1) + #kept end
  assert(not pcall(deep, 400))
  local function in_c(n) return (string.gsub("x", "x", function() return n > 0 and in_c(n - 1) or { n } end)) end
  assert(not pcall(in_c, 30))
end

function torture.errors()
  for i = 1, 200 do
    local ok, message = pcall(error, { code = i })
    assert(not ok and message.code == i)
    assert(not pcall(function() local x = nil; return x.field end))
    assert(not pcall(function() return {} + {} end))
    assert(not pcall(string.rep))
    pcall(pcall, error, setmetatable({}, { __tostring = function() return ("e"):rep(i) end }))
  end
end

function torture.coroutines()
  for i = 1, 100 do
    local dead = coroutine.create(function() error { i } end)
    assert(not coroutine.resume(dead))
    local asleep = coroutine.create(function() local kept = { i } coroutine.yield(kept) end)
    coroutine.resume(asleep)
    local function nest(depth)
      if depth == 0 then return { depth } end
      return coroutine.wrap(function() coroutine.yield(nest(depth - 1)) end)()
    end
    nest(10)
    for n, text in coroutine.wrap(function() for n = 1, 10 do coroutine.yield(n, ("t"):rep(n + i)) end end) do
      assert(#text == n + i)
    end
  end
end

function torture.chunks()
  for i = 1, 50 do
    local body = {}
    for line = 1, 40 do body[line] = ("local v%d = {%d, 'text %d', function() return %d end}"):format(line, i, i * line, line) end
    local chunk = assert(load(table.concat(body, "\n") .. "\nreturn v1", "=chunk" .. i))
    assert(chunk()[1] == i)
    assert(load(string.dump(chunk), "dumped", "b") or load(string.dump(chunk)))()
    assert(not load("return ((("))
    assert(not load("x = 'open"))
  end
  local part = 0
  if _VERSION ~= "Lua 5.1" or rawget(_G, "jit") then
    rawget(_G, "load")(function() part = part + 1 return part < 30 and "local x" .. part .. " = {} " or nil end)()
  end
end

local graves = {}
function torture.finalizers()
  local function finalized(n)
    local made = { n, ("f"):rep(n % 50) }
    graves[n % 17] = made -- what it makes stays for a while
  end
  for i = 1, 300 do
    if newproxy then
      local proxy = newproxy(true)
      getmetatable(proxy).__gc = function(self) finalized(i) graves[i % 7] = self end
    else
      setmetatable({ i }, { __gc = function(self) finalized(i) graves[self[1] % 7] = self end })
    end
    if i % 50 == 0 then collectgarbage() end
  end
  collectgarbage()
  for k in pairs(graves) do graves[k] = nil end
end

-- Up to 5.3 the collection that runs them ends with their error; later ones run the others. Not on LuaJIT, which crashes of some hundreds of
-- them by itself, with no profiler in the process.
function torture.finalizers_with_errors()
  local ran = 0
  if rawget(_G, "warn") then rawget(_G, "warn")("@off") end -- 5.5 says it on stderr
  local function finalized() local made = { ran } ran = ran + 1 error { made } end
  collectgarbage("stop")
  for _ = 1, 30 do
    if newproxy then
      getmetatable(newproxy(true)).__gc = finalized
    else
      setmetatable({}, { __gc = finalized })
    end
  end
  for _ = 1, 100 do if ran < 30 then pcall(collectgarbage) end end
  assert(ran >= 25, ran) -- some may be on the stack still
  for _ = 1, 5 do pcall(collectgarbage) end
  collectgarbage("restart")
end

function torture.metamethods()
  local mt = {}
  for _, event in ipairs { "add", "sub", "mul", "div", "mod", "pow", "unm", "concat", "len", "call", "idiv", "band", "shl" } do
    mt["__" .. event] = function(...) return setmetatable({ event, select("#", ...) }, mt) end
  end
  mt.__eq = function(a, b) return #{ a, b } == 2 end
  mt.__lt = function(a, b) return #{ a, b } == 2 end
  mt.__le = mt.__lt
  mt.__index = function(_, key) return { key } end
  mt.__newindex = function(self, key, value) rawset(self, key, { value }) end
  mt.__tostring = function() return ("s"):rep(20) .. tostring({}) end
  for i = 1, 100 do
    local a, b = setmetatable({}, mt), setmetatable({}, mt)
    local r = { a + b, a - b, a * b, a / b, a % b, a ^ b, -a, a .. b, a .. "x", a(b, i), a == b, a < b, a <= b, a.key, tostring(a) }
    a.field = r
    assert(a.field[1] ~= nil)
  end
  local sorted = {}
  for i = 1, 200 do sorted[i] = tostring((i * 7919) % 1009) end
  table.sort(sorted, function(a, b) return #{ a } + #a < #{ b } + #b end)
end

function torture.strings()
  for i = 1, 60 do
    local text = ("abc" .. i):rep(i * 7)
    text:gsub("%w", function(c) return c .. i end)
    text:gsub("b", { b = "long replacement " .. i })
    local joined = {}
    for word in text:gmatch("%a+") do joined[#joined + 1] = word:upper():reverse() end
    assert(#table.concat(joined, ", ") > 0)
    assert(#("%s %q %5.2f %s"):format(text, text, i, text:rep(20)) > 0)
    local grown = ""
    for n = 1, 40 do grown = grown .. n .. "," end
    assert(#tostring(i) > 0 and text:find("c", 1, true) and text:byte(1, 3))
  end
end

function torture.tables()
  local big = {}
  for i = 1, 30000 do big[i] = i end
  for i = 1, 30000, 2 do big[i] = nil end
  local keys = {}
  for i = 1, 3000 do keys["a long key that is not interned with the others, number " .. i] = { i } end
  for key in pairs(keys) do keys[key] = nil end
  local deep = {}
  local at = deep
  for i = 1, 500 do at["k" .. i] = {} at = at["k" .. i] end
  for i = 1, 100 do table.insert(big, 1, i) end
  local weak = setmetatable({}, { __mode = "kv" })
  for i = 1, 500 do weak[{}] = {} weak[i] = { i } end
  return { unpack(big, 1, 150) }
end

-- Not in all(), as torture.overflow. A million entries in an array, then as many elsewhere.
function torture.huge_tables()
  local list, map = {}, {}
  for i = 1, 1e6 do list[i] = i end
  for i = 1, 1e6 do map[i * 16 + 0.5] = list end
  for i = 1, 1e6 do list[i] = nil end
  list.name, map.name = map, list -- which makes the empty one shrink
  collectgarbage()
end

function torture.varargs()
  local function pass(...) return { ... }, select("#", ...), ... end
  local many = {}
  for i = 1, 220 do many[i] = i end
  for _ = 1, 50 do
    pass(unpack(many))
    local kept = {}
    for i = 1, 10 do local captured = i kept[i] = function() captured = captured + 1 return captured end end
    for i = 1, 10 do assert(kept[i]() == i + 1) end
    local function tail(n, ...) if n == 0 then return { ... } end return tail(n - 1, n, ...) end
    tail(100)
  end
  if _VERSION ~= "Lua 5.1" or rawget(_G, "jit") then
    assert(load("local i = 0 ::again:: local f = function() return i end i = i + 1 if i < 50 then goto again end return f"))()
  end
end

function torture.debugging()
  local function deep(n) if n == 0 then return debug.traceback("here", 1) end return (deep(n - 1)) end
  assert(#deep(60) > 100)
  for level = 0, 3 do debug.getinfo(level, "nSlufL") end
  debug.sethook(function() local made = { 1 } return made end, "crl", 7)
  deep(20)
  debug.sethook()
end

function torture.memory_errors()
  for i = 1, 100 do pcall(error, { i }) end
  -- more than there can be: the VM says so by itself or the allocator refuses
  for _, size in ipairs { 2 ^ 40, 2 ^ 62 } do pcall(string.rep, "x", size) end
end

torture.names = {}
for name, body in pairs(torture) do
  local apart = name == "overflow" or name == "huge_tables" or (jit and name == "finalizers_with_errors")
  if type(body) == "function" and not apart then torture.names[#torture.names + 1] = name end
end
table.sort(torture.names)

function torture.all()
  for _, name in ipairs(torture.names) do torture[name]() end
end

return torture
