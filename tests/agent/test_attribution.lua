-- Time goes to the function it was spent in, under the name a reader knows it by.
local t = require "t"
local pulse = require "luapulse"
local host = require "host"

local FILE = "tests/agent/test_attribution.lua"

local function place(f) return FILE .. ":" .. debug.getinfo(f, "S").linedefined end

-- about 3,000 instructions in the function that calls it inline: every test has its own copy, so that flat means itself
local function loop(n) local x = 0 for i = 1, n or 1000 do x = x + i % 7 end return x end

-- -- calls -------------------------------------------------------------------------------------------------------------

t.test("local_functions_are_called_by_the_name_of_the_local", function()
  local function outer() local r = 0 for _ = 1, 50 do r = r + loop() end return r end
  local profile = t.profile(t.exact(), outer)
  t.truthy(t.samples_with(profile, "loop") > 1000, "samples in loop")
  t.equal(t.row(profile, "loop").file, FILE, "file")
  t.equal(t.row(profile, "loop").defined, debug.getinfo(loop, "S").linedefined, "line of definition")
  -- `outer` was called under another name (body) by t.profile: a function has one name, that of the first caller seen
  t.truthy(t.samples_with(profile, "body;loop") + t.samples_with(profile, "outer;loop") > 1000, "samples in loop by outer")
end)

t.test("frames_carry_the_line_of_execution", function()
  local function two_lines()
    local x = 0
    for i = 1, 5000 do
      x = x + i % 7
    end
    return x
  end
  local profile = t.profile(t.exact(), function() for _ = 1, 5 do two_lines() end end)
  local info = debug.getinfo(two_lines, "S")
  local row = t.row(profile, "two_lines")
  t.equal(row.defined, info.linedefined, "line of definition")
  t.truthy(row.lines[info.linedefined + 3], "samples on the line of the loop's body")
  for line in pairs(row.lines) do t.between(line, info.linedefined, info.lastlinedefined, "line") end
end)

t.test("a_tail_call_replaces_its_caller", function()
  local function work(n) local x = 0 for i = 1, n do x = x + i % 7 end return x end
  local function trampoline(n) return work(n) end
  local profile = t.profile(t.exact(), function() for _ = 1, 20 do trampoline(5000) end end)
  local row = t.row(profile, place(work)) -- who calls it by which name is lost with the caller
  t.truthy(row.flat > 1000, "samples in the function that was tail-called: " .. row.flat)
  t.equal(t.samples_with(profile, "trampoline;" .. place(work)), 0, "samples with the caller that is gone")
end)

t.test("a_million_tail_calls", function()
  local function countdown(n) if n == 0 then return 0 end return countdown(n - 1) end
  local profile = t.profile(t.exact(2000), function() countdown(1000000) end)
  local total = profile:stats().cpu_inclusive_samples_total
  t.truthy(total > 500, "samples")
  local row = t.functions(profile)["countdown"] or t.row(profile, place(countdown))
  t.truthy(row.flat >= total - 5, "all samples are in the function")
  for _, sample in ipairs(profile:samples()) do t.truthy(#sample.stack < 50, "depth " .. #sample.stack) end
  t.equal(profile:stats().truncated, 0, "truncated")
end)

t.test("protected_calls_and_errors", function()
  local function fails(n) loop(n) error("no") end
  local function handler(message) loop(2000) return message end
  local profile = t.profile(t.exact(), function()
    for _ = 1, 20 do
      t.truthy(not pcall(fails, 2000), "pcall")
      t.truthy(not xpcall(function() fails(2000) end, handler), "xpcall")
    end
  end)
  t.truthy(t.row(profile, "fails").cum > 500, "samples in the failing function")
  t.truthy(t.samples_with(profile, "fails;loop") > 500, "samples below it")
  t.truthy(t.samples_with(profile, "pcall;fails") + t.samples_with(profile, "pcall;" .. place(fails)) > 200, "… by pcall")
  t.truthy(t.row(profile, "xpcall").cum > 500, "samples below xpcall")
  -- the message handler runs on top of the failed function
  t.truthy(t.row(profile, t.functions(profile)["handler"] and "handler" or place(handler)).cum > 200, "samples in the handler")
end)

t.test("recursion", function()
  local function fib(n) if n < 2 then return n end return fib(n - 1) + fib(n - 2) end
  local profile = t.profile(t.exact(), function() fib(20) end)
  local row, total = t.row(profile, "fib"), profile:stats().cpu_inclusive_samples_total
  t.truthy(row.cum > 1000 and row.cum <= total, "counted once for each sample")
  local depth = 0
  for _, sample in ipairs(profile:samples()) do
    local here = 0
    for _, frame in ipairs(sample.stack) do if frame.name == "fib" then here = here + 1 end end
    if here > depth then depth = here end
  end
  t.between(depth, 12, 20, "deepest recursion seen")
end)

t.test("deep_recursion_is_cut_and_counted", function()
  local function deep(n) if n == 0 then return loop(50000) end return 1 + deep(n - 1) end
  local profile = t.profile(t.exact(1000), function() deep(5000) end)
  local cut = 0
  for _, sample in ipairs(profile:samples()) do
    t.truthy(#sample.stack <= 1025, "frames: " .. #sample.stack)
    local root = sample.stack[#sample.stack]
    if root.name == "[truncated]" then
      t.equal(#sample.stack, 1025, "frames of a stack that was cut, with its mark")
      cut = cut + sample.samples
    end
  end
  t.truthy(cut > 50, "stacks cut: " .. cut)
  t.equal(profile:stats().truncated, cut, "truncated")
end)

-- -- C functions ---------------------------------------------------------------------------------------------------------

-- the cpu clock sees inside C functions
local function on_the_cpu_clock(body)
  pulse.start { cpu_hz = 500 }
  repeat body() until pulse.status().samples >= 40
  return pulse.stop()
end

t.test("c_functions_have_their_library_name", function()
  local long, parts = ("x"):rep(200000), {}
  for i = 1, 20000 do parts[i] = "part" end
  for name, body in pairs {
    ["string.rep"] = function() local s = ("abc"):rep(300000) return s end,
    ["string.find"] = function() local at = long:find("y", 1) or long:find("[yz]") return at end,
    ["table.concat"] = function() local s = table.concat(parts, ", ") return s end,
  } do
    local profile = on_the_cpu_clock(body)
    local row = t.functions(profile)[name]
    if t.is_luajit then
      -- LuaJIT calls back at the next instruction, when a C function has returned: the time is its caller's
      t.truthy(t.functions(profile)["body"] or row, "samples where " .. name .. " is called")
    else
      t.truthy(row and row.flat > 0, name .. " has samples of its own in\n" .. profile:folded())
      t.equal(row.file, "[C]", "file of " .. name)
    end
  end
end)

t.test("callbacks_of_c_functions", function()
  local function compare(a, b) loop(10) return a < b end
  local function replace(word) loop(10) return word:upper() end
  local text = ("some words "):rep(300)
  local profile = t.profile(t.exact(), function()
    local list = {}
    for i = 1, 500 do list[i] = (i * 7919) % 1009 end
    table.sort(list, compare)
    text:gsub("%a+", replace)
  end)
  local compare_name = t.functions(profile)["compare"] and "compare" or place(compare)
  local replace_name = t.functions(profile)["replace"] and "replace" or place(replace)
  t.truthy(t.samples_with(profile, "table.sort;" .. compare_name .. ";loop") > 300, "samples below table.sort")
  t.truthy(t.samples_with(profile, "string.gsub;" .. replace_name .. ";loop") > 100, "samples below string.gsub")
end)

-- -- metamethods and finalizers --------------------------------------------------------------------------------------------

t.test("metamethods", function()
  local meta = {
    __index = function() loop(2000) return 1 end,
    __newindex = function() loop(2000) end,
    __call = function() loop(2000) return 1 end,
    __add = function() loop(2000) return 1 end,
    __concat = function() loop(2000) return 1 end,
    __unm = function() loop(2000) return 1 end,
    __lt = function() loop(2000) return true end,
    __eq = function() loop(2000) return true end,
  }
  local a, b = setmetatable({}, meta), setmetatable({}, meta)
  local profile = t.profile(t.exact(), function()
    for _ = 1, 20 do
      local x = a.missing
      a.missing = x
      x = a + b
      x = a .. b
      x = -a
      x = a < b
      x = a == b
      x = a(1)
    end
  end)
  for _, name in ipairs { "__index", "__newindex", "__add", "__concat", "__unm", "__lt", "__eq" } do
    -- 5.1 does not tell how metamethods are called: they have their place
    local row = t.functions(profile)[name] or t.functions(profile)[place(meta[name])]
    t.truthy(row, name .. " in\n" .. profile:folded())
    t.truthy(row.cum > 200, "samples in " .. name .. ": " .. row.cum)
    if _VERSION ~= "Lua 5.1" then t.truthy(t.functions(profile)[name], name .. " is called so") end
  end
  t.truthy(t.samples_with(profile, "loop") > 3000, "samples below metamethods")
end)

-- Every Lua keeps debug hooks out of finalizers, LuaJIT also its profiler: their time is seen after they have returned, and goes to
-- the function that set off the collection. None of it is lost.
t.test("finalizers", function()
  local runs = 0
  local function finalize() runs = runs + 1 t.burn(0.01) end
  local function garbage()
    if _VERSION == "Lua 5.1" then
      local object = newproxy(true)
      getmetatable(object).__gc = finalize
    else
      setmetatable({}, { __gc = finalize })
    end
  end
  local function collector() garbage() collectgarbage() t.burn(0.01) end
  pulse.start { cpu_hz = 500 }
  local before = host.cpu()
  repeat collector() until runs >= 40 and pulse.status().samples >= 30
  local spent = host.cpu() - before
  local profile = pulse.stop()
  t.truthy(runs >= 40, "finalizers ran")
  local row = t.row(profile, "collector")
  t.truthy(row.cum > 20, "samples where the collection was set off: " .. row.cum)
  local time = 0
  for _, sample in ipairs(profile:samples()) do
    for _, frame in ipairs(sample.stack) do
      if frame.name == "collector" then time = time + sample.cpu break end
    end
  end
  t.between(time * 1e-9 / spent, 0.8, 1.05, "time of the collector, finalizers included, by CPU time")
end)

-- -- coroutines ------------------------------------------------------------------------------------------------------------

t.test("coroutines_continue_below_their_resumer", function()
  local function innermost() for _ = 1, 10 do loop(1000) coroutine.yield() end end
  local function middle() local step = coroutine.wrap(innermost) for _ = 1, 10 do step() coroutine.yield() end end
  local function outermost()
    local co = coroutine.create(middle)
    for _ = 1, 10 do assert(coroutine.resume(co)) coroutine.yield() end
  end
  local profile = t.profile(t.exact(), function()
    local step = coroutine.wrap(outermost)
    for _ = 1, 10 do step() end
  end)
  local total = t.row(profile, place(innermost)).cum
  t.truthy(total > 200, "samples in the innermost coroutine")
  for _, sample in ipairs(profile:samples()) do
    local path = {}
    for _, frame in ipairs(sample.stack) do path[#path + 1] = frame.name end
    local text = table.concat(path, " ") .. " "
    if sample.stack[1].name == "loop" then
      t.contains(text, place(innermost), "stack of the innermost coroutine")
      t.equal(text:find(place(middle), 1, true) ~= nil, not t.is_luajit, "its resumer is below")
      t.equal(text:find(place(outermost), 1, true) ~= nil, not t.is_luajit, "… and that one's")
      t.equal(text:find("main chunk", 1, true) ~= nil, not t.is_luajit, "… down to the main chunk")
    end
  end
end)

t.test("coroutines_on_the_cpu_clock", function()
  local function worker() while true do t.burn(0.002) coroutine.yield() end end
  pulse.start { cpu_hz = 500 }
  local step = coroutine.wrap(worker)
  repeat step() until pulse.status().samples >= 30
  local profile = pulse.stop()
  local samples = t.samples_with(profile, "t.burn") + t.samples_with(profile, "t.burn;os.clock")
  t.truthy(samples > 20, "samples in the coroutine")
  t.truthy(t.row(profile, place(worker)).cum >= t.row(profile, "t.burn").cum, "all of them below its function")
end)

-- -- names -------------------------------------------------------------------------------------------------------------------

function GlobalFunction() local x = 0 for i = 1, 20000 do x = x + i % 7 end return x end
local GlobalTable = { nested = { deep = function() local x = 0 for i = 1, 20000 do x = x + i % 7 end return x end } }
local Account = {}
Account.__index = Account
function Account:deposit() local x = 0 for i = 1, 20000 do x = x + i % 7 end return x end

t.test("names_of_globals_modules_and_methods", function()
  package.loaded["shop.cart"] = { total = function() local x = 0 for i = 1, 20000 do x = x + i % 7 end return x end }
  _G.GlobalTable = GlobalTable
  local cart, alias, deep = package.loaded["shop.cart"], GlobalFunction, GlobalTable.nested.deep
  local account = setmetatable({}, Account)
  local profile = t.profile(t.exact(), function()
    cart.total()
    alias() -- the name in package.loaded or the globals beats that of the call
    deep()
    account:deposit();
    (function() local x = 0 for i = 1, 20000 do x = x + i % 7 end return x end)()
  end)
  for _, name in ipairs { "shop.cart.total", "GlobalFunction", "GlobalTable.nested.deep", "deposit" } do
    t.truthy(t.row(profile, name).flat > 300, "samples in " .. name)
  end
  t.equal(t.functions(profile)["alias"], nil, "the name of the call")
  local anonymous = 0
  for name, row in pairs(t.functions(profile)) do
    if name == FILE .. ":" .. row.defined and row.flat > 300 then anonymous = anonymous + 1 end
  end
  t.equal(anonymous, 1, "functions known by their place alone")
end)

t.test("a_module_function_is_known_by_its_module", function()
  local profile = t.profile(t.exact(), function() t.burn(0.02) end)
  t.truthy(t.row(profile, "t.burn").flat > 0, "samples in t.burn")
  t.equal(t.row(profile, "t.burn").file, "tests/agent/t.lua", "file")
end)

t.test("the_main_chunk", function()
  local chunk = (loadstring or load)("local x = 0 for i = 1, 20000 do x = x + i % 7 end", "=some chunk")
  local profile = t.profile(t.exact(), chunk)
  local found = 0
  for _, sample in ipairs(profile:samples()) do
    local leaf = sample.stack[1]
    if leaf.file == "some chunk" then
      t.equal(leaf.name, "main chunk", "name")
      t.equal(leaf.defined, 0, "line of definition")
      t.equal(leaf.line, 1, "line")
      found = found + sample.samples
    end
  end
  t.truthy(found > 300, "samples in the chunk")
end)

t.test("names_and_chunks_of_any_bytes", function()
  local source = "local x = 0 for i = 1, 20000 do x = x + i % 7 end"
  for _, name in ipairs { "=semi;colon", "=new\nline", "=\255\254 not UTF-8", "=" .. ("long"):rep(200), "", "=", "@" } do
    local chunk = (loadstring or load)(source, name)
    local profile = t.profile(t.exact(), chunk)
    t.truthy(#profile:folded() > 0, "folded")
    t.truthy(profile:stats().cpu_inclusive_samples_total > 300, "samples")
    local kind = name:sub(1, 1)
    if kind == "=" or kind == "@" then
      local found
      for _, sample in ipairs(profile:samples()) do found = found or sample.stack[1].file == name:sub(2) end
      t.truthy(found, "the file is what the chunk was named: " .. name:sub(2, 20))
    end
  end
end)

t.test("upvalues_share_code_but_not_more", function()
  -- ten closures of one function are one function
  local closures = {}
  for i = 1, 10 do closures[i] = function() local x = i for k = 1, 2000 do x = x + k % 7 end return x end end
  local profile = t.profile(t.exact(), function() for _, f in ipairs(closures) do f() end end)
  local rows, flat = 0, 0
  for _, row in pairs(t.functions(profile)) do
    if row.defined == debug.getinfo(closures[1], "S").linedefined then rows, flat = rows + 1, flat + row.flat end
  end
  t.equal(rows, 1, "functions")
  t.truthy(flat > 300, "samples")
end)

t.run()
