-- Tracing of C functions. LuaJIT has no event at their end: it is waited for at the instruction that should run next, by writing into
-- LuaJIT's dispatch table. Whatever happens instead, counts and paths are right, times are where they belong, and the VM is as it was.
-- What can be tested on any Lua is.
local t = require "t"
local pulse = require "luapulse"
local host = require "host"
local shared = require "trace"
local trace, path_of, sum_of = shared.of, shared.path_of, shared.sum_of

local function expect_calls(profile, expected)
  for ending, calls in pairs(expected) do
    t.equal(sum_of(profile, "calls", ending), calls, "calls of " .. ending .. " in\n" .. profile:folded())
  end
end

-- A loop that calls nothing: it has no event of its own.
local function spin_length()
  local n, from = 1000, 0
  repeat
    n, from = n * 2, os.clock()
    local x = 0
    for i = 1, n do x = x + i % 7 end
  until os.clock() - from > 0.0005
  return n
end
if t.is_luajit then jit.off(spin_length) end -- as it is when traced

-- -- errors ---------------------------------------------------------------------------------------------------------------------------

-- `many` locals, so that what is called after the error stands higher on the stack than what the error left.
t.test("errors_that_c_functions_raise", function()
  local function after() end
  local ways = {
    assert = function() assert(false, "no") end,
    rep = function() string.rep() end,
    raise = function() host.raise("no") end,
    called = function() host.call(host.raise, "no") end,
    error = function() error("no") end,
    deep = function() host.call(function() host.call(error, "no") end) end,
    sorted = function() table.sort({ 3, 1, 2 }, function() error("no") end) end,
    replaced = function() string.gsub("abc", "%w", function() host.raise("no") end) end,
    indexed = function() local x = setmetatable({}, { __index = host.raise }) return x.y end,
  }
  for name, fails in pairs(ways) do
    local function catcher()
      local ok = pcall(fails)
      local a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p = 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16
      after(ok, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p)
    end
    local profile = trace(function() for _ = 1, 10 do catcher() end end)
    expect_calls(profile, { [";catcher"] = 10, ["catcher;after"] = 10, [";after"] = 10, ["catcher;pcall"] = 10 })
    t.truthy(not profile:folded():find("pcall;.*after"), name .. ": nothing is called from what the error left, in\n" .. profile:folded())
  end
end)

-- What is called after an error may lie on the stack where something lay that the error left: it is no tail call.
t.test("places_that_errors_left", function()
  local function after() end
  local ways = { -- with an instruction to come that the catcher does not have, or one that it has, before
    function() string.rep() return {} end,
    function() error("no") return {} end,
    function() local x = 1 local y = after.x return { x, y } end,
    function() local x = 1 x = math.floor(x) + after return { x } end,
    function() local f = function() local x = 1 string.rep() return { x } end f() return {} end,
  }
  for _, fails in ipairs(ways) do
    for locals = 0, 7 do
      local names = locals == 0 and "" or "local a" .. ("0, a"):rep(locals - 1) .. "0 = 1"
      local text = ("local fails, after = ... return function() pcall(fails) %s after() after() end"):format(names)
      local catcher = (loadstring or load)(text, "=catcher")(fails, after)
      local function outer() catcher() end
      local profile = trace(function() for _ = 1, 3 do outer() end end)
      expect_calls(profile, { [";after"] = 6, ["outer;catcher:1;after"] = 6, ["[tail call];after"] = 0 })
    end
  end
end)

t.test("time_after_an_error_is_the_catchers", function()
  local length = spin_length()
  local ways = { -- and an instruction that the catcher does not have
    ["error"] = function() error("no") return {} end,
    ["assert"] = function() assert(false, "no") return {} end,
    ["string.rep"] = function() string.rep() return {} end,
    ["error by C"] = function() host.call(error, "no") return {} end,
    ["at the end"] = function() string.rep() end,
    ["index by Lua"] = function() local x local y = x.y return { y } end,
    ["arithmetic by Lua"] = function() local x = {} x = x + 1 return { x } end,
    ["call by Lua"] = function() local x = 5 x() return {} end,
    ["comparison by Lua"] = function(x) if x < 5 then return {} end return x end,
  }
  local function after() end
  for name, fails in pairs(ways) do
    local function catcher()
      pcall(fails)
      local x = 0
      for i = 1, length do x = x + i % 7 end
      after()
      return x
    end
    local profile = trace(function() for _ = 1, 100 do catcher() end end)
    local own, below = sum_of(profile, "exclusive_raw", ";catcher"), 0
    for _, sample in ipairs(profile:samples()) do
      if path_of(sample):find(";catcher;", 1, true) then below = below + sample.exclusive_raw end
    end
    expect_calls(profile, { [";catcher"] = 100, ["catcher;after"] = 100, [";after"] = 100, ["catcher;pcall"] = 100 })
    -- The first time it is not known that the function raises an error. LuaJIT has no event when it raises one itself: if the instruction that
    -- is waited for has run already, all is the time of the function that was left, up to the next event, the call of after().
    local exact = not (t.is_luajit and name:find("by Lua", 1, true))
    t.truthy(not exact or below < own / 8, name .. ": time of the catcher " .. own .. ", of what it called " .. below .. " in\n" .. profile:folded())
  end
end)

t.test("errors_that_c_code_catches", function()
  local function after() end
  local function fails() error("no") end
  local function indexes() local x return x.y end
  local profile = trace(function()
    for _ = 1, 10 do
      t.equal(host.pcall(fails), false)
      after()
      t.equal(host.pcall(indexes), false)
      after()
      t.equal(host.pcall(after), true)
    end
  end)
  local calls = 0
  for _, sample in ipairs(profile:samples()) do if sample.stack[1].name == "after" then calls = calls + sample.calls end end
  t.equal(calls, 30, "calls of after in\n" .. profile:folded())
end)

t.test("handlers_of_errors", function()
  local function fails() error("no") end
  local function indexes() local x return x.y end
  local function handler(m) return m end
  local function after() end
  local function catcher()
    xpcall(fails, debug.traceback) after()
    xpcall(indexes, debug.traceback) after()
    xpcall(fails, handler) after()
    xpcall(indexes, handler) after()
  end
  local profile = trace(function() for _ = 1, 10 do catcher() end end)
  expect_calls(profile, { ["catcher;after"] = 40, [";after"] = 40, ["catcher;xpcall"] = 40, [";handler"] = 20, [";debug.traceback"] = 20 })
end)

-- -- callbacks ---------------------------------------------------------------------------------------------------------------------------

t.test("callbacks", function()
  local compared, replaced = 0, 0
  local function less(a, b) compared = compared + 1 return a < b end
  local function replace(s) replaced = replaced + 1 local upper = s:upper() return upper end
  local function last() end
  local function body()
    table.sort({ 5, 3, 9, 1, 7, 2 }, less)
    string.gsub("hello", "%w", replace)
    string.gsub("hello", "%w", string.upper)
    pcall(string.rep, "x", 3)
    pcall(pcall, string.rep, "x", 3)
    host.call(string.rep, "x", 3)
    host.call(host.call, host.call, last)
    last()
  end
  local profile = trace(function() for _ = 1, 20 do body() end end)
  expect_calls(profile, {
    ["body;table.sort;less"] = compared,
    ["body;string.gsub;replace"] = replaced,
    ["replace;string.upper"] = 100,
    ["body;string.gsub;string.upper"] = 100,
    ["body;pcall;string.rep"] = 20,
    ["body;pcall;pcall;string.rep"] = 20,
    ["body;pcall"] = 40,
    ["body;last"] = 20,
  })
  t.equal(sum_of(profile, "calls", ";last"), 40, "calls of last in\n" .. profile:folded())
end)

-- Between what a C function calls it runs itself: its time must not go to those.
t.test("time_between_callbacks", function()
  local length = spin_length()
  local function quick(s) return s end
  local function slow()
    string.gsub("x", "x", quick)
    local x = 0
    for i = 1, length do x = x + i % 7 end
    return x
  end
  local profile = trace(function() for _ = 1, 20 do slow() end end)
  local own, gsub = sum_of(profile, "exclusive_raw", ";slow"), sum_of(profile, "exclusive_raw", ";string.gsub")
  t.truthy(gsub < own / 10, "time of slow " .. own .. ", of string.gsub " .. gsub)
end)

t.test("metamethods_of_c", function()
  local function after() end
  local object = setmetatable({}, { __index = rawget, __add = math.max, __concat = rawequal, __lt = rawequal, __le = rawequal, __eq = rawequal, __newindex = rawset })
  local other = setmetatable({}, getmetatable(object))
  local function body()
    local x = object.field after()
    x = object .. other after()
    x = object < other after()
    x = object <= other after()
    x = object == other after()
    object.field = nil after()
    return x
  end
  local profile = trace(function() for _ = 1, 10 do body() end end)
  expect_calls(profile, { ["body;after"] = 60, [";after"] = 60 })
end)

-- -- coroutines ------------------------------------------------------------------------------------------------------------------------------

t.test("coroutines_inside", function()
  local function inner() coroutine.yield(1) coroutine.yield(2) end
  local function compare(a, b)
    local co = coroutine.wrap(inner)
    co()
    co()
    return a < b
  end
  local compared = 0
  local function counted(a, b) compared = compared + 1 return compare(a, b) end
  local function after() end
  local function body() table.sort({ 3, 1, 2 }, counted) after() end
  local profile = trace(function() for _ = 1, 10 do body() end end)
  expect_calls(profile, { ["body;after"] = 10, [";after"] = 10, [";inner"] = compared, ["inner;coroutine.yield"] = 2 * compared })
end)

t.test("c_functions_that_yield", function()
  local length = spin_length()
  local function body() while true do host.yield() end end
  local step = coroutine.wrap(body)
  local function after() end
  local function driver()
    step()
    local x = 0
    for i = 1, length do x = x + i % 7 end
    after()
    return x
  end
  local profile = trace(function() for _ = 1, 100 do driver() end end)
  expect_calls(profile, { ["driver;after"] = 100, [";after"] = 100, [";host.yield"] = 100 })
  local own, inside = sum_of(profile, "exclusive_raw", ";driver"), 0
  for _, sample in ipairs(profile:samples()) do
    if path_of(sample):find(";driver;", 1, true) then inside = inside + sample.exclusive_raw end
  end
  t.truthy(inside < own / 8, "time of the driver " .. own .. ", of what it called " .. inside .. " in\n" .. profile:folded())
end)

t.test("time_after_a_coroutine_has_ended", function()
  local length = spin_length()
  local suspended = coroutine.create(function() while true do coroutine.yield() local _ = {} end end)
  local ways = {
    function(other) return other end, -- with a coroutine where the function that resumes has its own
    function() return suspended end,
    function() error("no") end,
    function() host.raise("no") return {} end,
    function() coroutine.yield() end,
  }
  for i, body in ipairs(ways) do
    coroutine.resume(suspended)
    local function driver()
      local co = coroutine.create(body)
      coroutine.resume(co, suspended)
      local x = 0
      for k = 1, length do x = x + k % 7 end
      return x
    end
    local profile = trace(function() for _ = 1, 100 do driver() end end)
    local own, below = sum_of(profile, "exclusive_raw", ";driver"), 0
    for _, sample in ipairs(profile:samples()) do
      if path_of(sample):find(";driver;", 1, true) then below = below + sample.exclusive_raw end
    end
    t.truthy(below < own / 8, i .. ": time of the driver " .. own .. ", of what it called " .. below .. " in\n" .. profile:folded())
  end
end)

t.test("an_error_ends_a_coroutine", function()
  local function body() coroutine.yield() host.raise("no") end
  local function after() end
  local profile = trace(function()
    for _ = 1, 10 do
      local co = coroutine.create(body)
      assert(coroutine.resume(co))
      assert(not coroutine.resume(co))
      after()
    end
  end)
  t.equal(sum_of(profile, "calls", ";after"), 10)
  t.truthy(not profile:folded():find("body;.*after"), "nothing is called from the coroutine that ended, in\n" .. profile:folded())
end)

-- -- the VM is as it was -----------------------------------------------------------------------------------------------------------------------

-- LuaJIT's dispatch tables: in what lies behind its main thread, the longest row of words that point to code. A list of them, and
-- where it begins.
local function tables()
  local ranges = {}
  for line in io.lines("/proc/self/maps") do
    local from, to = line:match("^(%x+)%-(%x+) r%-x")
    if from then ranges[#ranges + 1] = { tonumber(from, 16), tonumber(to, 16) } end
  end
  local function is_code(word)
    for _, range in ipairs(ranges) do if word >= range[1] and word < range[2] then return true end end
  end
  local bytes, longest, first, row = host.state_bytes(7000), {}, nil, {}
  for at = 1, #bytes - 7, 8 do
    local word = 0
    for i = 7, 0, -1 do word = word * 256 + bytes:byte(at + i) end
    if is_code(word) then row[#row + 1] = word else row = {} end
    if #row > #longest then longest, first = row, at - 8 * #row end
  end
  return longest, first
end

-- body() starts and stops sessions; nothing in the tables may be different afterwards.
local function leaves_the_tables(body)
  if not t.is_luajit then return body() end
  jit.off()
  jit.flush()
  local before, first = tables()
  t.truthy(#before > 170, "entries of the dispatch tables: " .. #before)
  body()
  jit.off()
  jit.flush()
  local after, again = tables()
  t.equal(again, first, "where they begin")
  t.equal(#after, #before, "entries")
  for i = 1, #before do t.equal(after[i], before[i], "entry " .. i - 1) end
  t.equal(debug.gethook(), nil, "no hook is left")
end

local function work()
  for i = 1, 50 do
    local _ = math.floor(i) + #string.rep("x", i)
    pcall(error, "no")
    table.sort({ 3, 1, 2 }, function(a, b) return a < b end)
  end
end

t.test("tables_after_stop", function()
  leaves_the_tables(function() trace(work) end)
end)

t.test("tables_after_stop_in_a_callback", function()
  leaves_the_tables(function()
    pulse.start { cpu = "tracing" }
    local stopped
    table.sort({ 3, 1, 2 }, function(a, b)
      if not stopped then stopped = pulse.stop() end
      return a < b
    end)
    t.truthy(stopped, "stopped")
    pulse.start { cpu = "tracing" }
    local ok = pcall(string.gsub, "abc", "%w", function() pulse.stop() error("no") end)
    t.equal(ok, false)
    pulse.start { cpu = "tracing" }
    host.call(host.call, pulse.stop)
    work()
  end)
end)

t.test("tables_after_stop_in_a_coroutine", function()
  leaves_the_tables(function()
    pulse.start { cpu = "tracing" }
    coroutine.wrap(function() work() coroutine.yield() end)()
    coroutine.wrap(function() string.gsub("abc", "b", function() work() pulse.stop() end) end)()
    work()
  end)
end)

t.test("tables_after_errors", function()
  leaves_the_tables(function()
    pulse.start { cpu = "tracing" }
    pcall(function() assert(false) end)
    pulse.stop()
    pulse.start { cpu = "tracing" }
    pcall(function() string.gsub("abc", "%w", function() string.rep() end) end)
    pulse.stop()
    work()
  end)
end)

t.test("tables_in_a_pause", function()
  leaves_the_tables(function()
    pulse.start { cpu = "tracing" }
    work()
    host.call(pulse.pause)
    work()
    host.call(pulse.resume)
    work()
    pulse.pause()
    pulse.stop()
    work()
  end)
end)

t.test("tables_in_a_forked_child", function()
  leaves_the_tables(function()
    pulse.start { cpu = "tracing" }
    work()
    local pid = host.fork()
    if pid == 0 then
      local ok, message = pcall(work)
      if ok and host.hooked() then ok, message = false, "still hooked" end
      if not ok then io.stderr:write("child: ", tostring(message), "\n") end
      host.exit_now(ok and 0 or 1)
    end
    work()
    t.equal(host.wait(pid), 0, "status of the child")
    local profile = pulse.stop()
    t.truthy(profile)
  end)
end)

t.test("the_program_sets_a_hook_meanwhile", function()
  local function events(body, at_the_end)
    local seen = { call = 0, ["return"] = 0 }
    local function hook(event) seen[event] = (seen[event] or 0) + 1 end
    local function set() debug.sethook(hook, "cr") end -- a return is what follows
    if at_the_end then set() else debug.sethook(hook, "cr") end
    body()
    debug.sethook()
    return seen
  end
  local function returns() return 1 end
  local function nothing() end
  local function body()
    for i = 1, 20 do
      local x = returns(i)
      nothing(x)
      math.floor(i)
    end
  end
  if t.is_luajit then jit.off() end
  for _, at_the_end in ipairs { false, true } do
    local alone = events(body, at_the_end)
    leaves_the_tables(function()
      pulse.start { cpu = "tracing" }
      work()
      local seen = events(body, at_the_end)
      local profile = pulse.stop()
      t.equal(seen.call, alone.call, "calls that the program's hook saw")
      t.equal(seen["return"], alone["return"], "returns that the program's hook saw")
      t.truthy(profile)
    end)
  end
end)

t.test("hooks_put_aside_and_back", function()
  local function counted() end
  local function uncounted() end
  leaves_the_tables(function()
    local profile = trace(function()
      for _ = 1, 10 do
        host.put_hook_aside(uncounted)
        counted()
        math.floor(1.5)
        counted()
      end
    end)
    expect_calls(profile, { [";counted"] = 20, [";math.floor"] = 10, [";uncounted"] = 0 })
  end)
end)

-- By the library's own function, kept from before start, which is told what is there.
t.test("what_the_program_sees_of_the_hook", function()
  local gethook = debug.gethook
  pulse.start { cpu = "tracing" }
  local hook, mask, count = gethook()
  local seen = {}
  table.sort({ 2, 1 }, function(a, b) seen = { gethook() } return a < b end)
  t.equal((debug.gethook()), nil, "a hook of the program's")
  hook, mask, count = gethook()
  pulse.stop()
  t.equal(hook, "external hook")
  t.equal(mask, "cr")
  t.equal(count, t.is_luajit and 1 or 0) -- that of the count hook
  for i, value in ipairs { hook, mask, count } do t.equal(seen[i], value) end
  t.equal(debug.gethook(), nil)
end)

t.test("the_jit_is_turned_on_meanwhile", function()
  if not t.is_luajit then return end
  local function add(a, b) return a + b end
  local function sum(n) local x = 0 for i = 1, n do x = add(x, math.floor(i)) end return x end
  leaves_the_tables(function()
    for _, change in ipairs { jit.on, jit.off, jit.flush } do
      pulse.start { cpu = "tracing" }
      for round = 1, 20 do
        t.equal(sum(200), 20100, "the program's result")
        if round % 4 == 0 then change() end
        t.equal(select(2, string.gsub("abc", "%w", function(s) change() return s end)), 3)
      end
      t.truthy(pulse.stop())
    end
  end)
  -- where no code is compiled counts stay exact, and not every instruction goes the long way from then on
  local most
  local profile = trace(function()
    for _ = 1, 100 do jit.off() add(1, 2) jit.flush() add(1, 2) end
    local count = {}
    for _, word in ipairs((tables())) do count[word] = (count[word] or 0) + 1 end
    most = 0
    for _, n in pairs(count) do most = math.max(most, n) end
  end)
  expect_calls(profile, { [";add"] = 200 })
  t.between(most, 40, 80, "entries of the dispatch table that are the same: those of calls, not those of instructions")
end)

t.test("luajits_own_profiler_runs_meanwhile", function()
  local found, profiler = pcall(require, "jit.profile")
  if not t.is_luajit or not found then return end
  leaves_the_tables(function()
    local samples, calls = 0, 0
    local function called() calls = calls + 1 return math.floor(calls) end
    profiler.start("i1", function(_, n) samples = samples + n end)
    local profile = trace(function()
      local stop = os.clock() + 0.3
      repeat for _ = 1, 100 do called() end until os.clock() > stop
    end)
    profiler.stop()
    expect_calls(profile, { [";called"] = calls, ["called;math.floor"] = 0 })
    t.equal(sum_of(profile, "calls", "[tail call];math.floor"), calls)
    t.truthy(samples > 0, "samples of LuaJIT's profiler: " .. samples)
  end)
end)

t.test("a_vm_closes_while_it_is_traced", function()
  for _ = 1, 20 do
    local vm = host.vm_open()
    host.vm_run(vm, [[
      package.cpath = "]] .. package.cpath .. [["
      local pulse = require "luapulse"
      pulse.start { cpu = "tracing" }
      for i = 1, 10 do local _ = math.floor(i) end
      table.sort({ 3, 1, 2 }, function(a, b) return a < b end)
      return "done"]])
    host.vm_close(vm)
  end
end)

t.run()
