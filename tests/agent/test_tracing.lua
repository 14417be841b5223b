-- Tracing: every call counted and timed, by path. The programs count their own calls: that is the oracle.
local t = require "t"
local pulse = require "luapulse"
local shared = require "trace"
local heap_of = require "heap"
local path_of, sum_of = shared.path_of, shared.sum_of

local unpack = table.unpack or unpack
local engines = { "auto", "interface" }

-- Calls of the functions by name, over all paths.
local function calls_of(profile)
  local calls = {}
  for _, sample in ipairs(profile:samples()) do
    local name = sample.stack[1].name
    calls[name] = (calls[name] or 0) + sample.calls
  end
  return calls
end

local function trace(body, engine, options)
  options = options or {}
  options.cpu_engine = engine
  return shared.of(body, options)
end

-- body(count): every function in it calls count() once. Calls are compared by the line of definition: which name a function
-- gets is for other tests.
local function check(body, heap)
  for _, engine in ipairs(engines) do
    local expected, all, options = {}, 0, {}
    for name, value in pairs(heap or {}) do options[name] = value end
    local function count()
      local line = debug.getinfo(2, "S").linedefined
      expected[line], all = (expected[line] or 0) + 1, all + 1
    end
    local profile = trace(function() body(count) end, engine, options)
    local calls, counts = {}, 0
    for _, sample in ipairs(profile:samples()) do
      local top = sample.stack[1]
      if top.file:find("test_tracing.lua", 1, true) then calls[top.defined] = (calls[top.defined] or 0) + sample.calls end
      if top.name == "debug.getinfo" then counts = counts + sample.calls end
    end
    for line, wanted in pairs(expected) do
      t.equal(calls[line] or 0, wanted, "calls of the function at line " .. line .. " (" .. engine .. ")")
    end
    t.equal(counts, all, "calls of debug.getinfo by the oracle (" .. engine .. ")")
    t.equal(profile:stats().overflow or 0, 0, "overflow")
    if heap then heap_of.check_whole(profile, engine) end
  end
end

t.test("engine_and_types", function()
  pulse.start { cpu = "tracing" }
  t.equal(pulse.status().engine, "trace", "engine")
  t.equal(pulse.status().note, "", "memory can be read")
  local clock = pulse.status().source
  t.truthy(clock == "tsc" or clock == "vdso", "the clock, " .. clock)
  local profile = pulse.stop()
  local sample = profile:samples()[1]
  for _, name in ipairs { "calls", "exclusive", "inclusive", "exclusive_raw", "inclusive_raw", "min", "max" } do
    t.equal(type(sample[name]), "number", name)
  end
end)

-- The room for paths is a part of max_memory_bytes, up to a bound.
t.test("any_bound_of_memory", function()
  local function deep(n) return n > 0 and 1 + deep(n - 1) or 0 end
  for _, bytes in ipairs { 2 ^ 32, 2 ^ 40, 3 * 2 ^ 40 } do
    local ok, message = pcall(pulse.start, { cpu = "tracing", max_memory_bytes = bytes, max_process_memory_bytes = bytes })
    if ok then
      for _ = 1, 20 do deep(50) end
      local stats = pulse.stop():stats()
      t.equal(stats.overflow or 0, 0, "overflow within " .. bytes)
    else
      t.truthy(message:find("no memory", 1, true), message) -- where the system does not give so much
    end
  end
end)

t.test("calls_and_recursion", function()
  check(function(count)
    local function leaf() count() end
    local function middle() count() leaf() leaf() end
    local function fib(n) count() if n < 2 then return n end return fib(n - 1) + fib(n - 2) end
    local function even(n) count() if n == 0 then return true end local r = odd_of_test(n - 1) return r end
    function odd_of_test(n) count() if n == 0 then return false end local r = even(n - 1) return r end
    for _ = 1, 100 do middle() end
    fib(12)
    even(20)
    odd_of_test = nil
  end)
end)

t.test("tail_calls", function()
  check(function(count)
    local function last() count() return 1 end
    local function chain(n) count() if n == 0 then return last() end return chain(n - 1) end
    local function into_c(n) count() return math.floor(n) end
    local function after() count() last() return last() end
    for _ = 1, 20 do
      chain(30)
      into_c(2.5)
      local value = chain(1) + after()
      assert(value == 2)
    end
  end)
end)

t.test("tail_frames_show_as_such", function()
  local function last() local x = 0 for i = 1, 100 do x = x + i end return x end
  local function first() return last() end
  local profile = trace(function() for _ = 1, 50 do first() end end)
  t.equal(sum_of(profile, "calls", "[tail call];last"), 50, "calls of last below a tail frame in\n" .. profile:folded())
  t.equal(sum_of(profile, "calls", ";first"), 50, "calls of first")
  t.equal(sum_of(profile, "calls", "first;last"), 0, "first is gone while last runs")
end)

t.test("variable_arguments", function()
  local function last() t.burn(0.0005) end
  local function many(...) last() return select("#", ...) end
  local function tail(...) return many(...) end
  local function after() t.burn(0.001) end
  local profile = trace(function() for i = 1, 20 do many(1, 2, 3) after() tail(i, i) after() end end)
  local calls = calls_of(profile)
  t.equal(calls.many, 40, "calls of many")
  t.equal(calls.after, 40, "calls of after")
  t.equal(sum_of(profile, "calls", "[tail call];many"), 20, "tail calls of many in\n" .. profile:folded())
  t.equal(sum_of(profile, "calls", "many;last"), 40, "calls of last by many")
  t.equal(sum_of(profile, "calls", "many;after"), 0, "many has returned when after runs")
end)

t.test("errors", function()
  check(function(count)
    local function thrower() count() error("no") end
    local function indexer() count() local x return x.y end
    local function deep(n) count() if n == 0 then thrower() end deep(n - 1) end
    local function handler(m) count() return m end
    local function quiet() count() end
    local function rethrows() count() local ok, m = pcall(thrower) quiet() error(m, 0) end
    for _ = 1, 30 do
      assert(not pcall(thrower))
      quiet()
      assert(not pcall(indexer))
      quiet()
      assert(not pcall(deep, 10))
      assert(not xpcall(thrower, handler))
      assert(not xpcall(indexer, handler))
      quiet()
      assert(not pcall(rethrows))
      assert(not pcall(pcall)) -- an error of the library's own
    end
  end)
end)

t.test("callers_after_errors", function()
  local function thrower() error("no") end
  local function deep(n) if n == 0 then thrower() end deep(n - 1) end
  local function after() end
  local function catcher() pcall(deep, 5) after() end
  local profile = trace(function() for _ = 1, 10 do catcher() end end)
  t.equal(sum_of(profile, "calls", "catcher;after"), 10, "calls of after by catcher in\n" .. profile:folded())
end)

-- Errors that Lua itself raises, in functions that were called and have called nothing since, or have.
t.test("callers_of_what_lua_stops", function()
  local function leaf() end
  local function indexes(x) return x.y end
  local function adds(x) leaf() return x + 1 end
  local function caller(f) local y = f() return y end
  local function after() end
  for _, engine in ipairs(engines) do
    local profile = trace(function()
      for _ = 1, 10 do
        pcall(caller, indexes)
        after()
        pcall(caller, adds)
        after()
      end
    end, engine)
    local function calls(line, below)
      local sum = 0
      for _, sample in ipairs(profile:samples()) do
        local fits = sample.stack[1].defined == line and (not below or sample.stack[2].defined == below)
        if fits then sum = sum + sample.calls end
      end
      return sum
    end
    local line = debug.getinfo(leaf, "S").linedefined
    for i, expected in ipairs { 10, 10, 10 } do -- leaf below adds, indexes and adds below caller
      local below = i == 1 and line + 2 or line + 3
      t.equal(calls(line + i - 1, below), expected, "calls at line " .. line + i - 1 .. " by that at " .. below .. " (" .. engine .. ") in\n" .. profile:folded())
    end
    t.equal(calls(line + 4), 20, "calls of after")
  end
end)

t.test("coroutines", function()
  check(function(count)
    local function work() count() end
    local function body(n) count() for _ = 1, n do work() coroutine.yield() end work() return "end" end
    local function dies() count() work() coroutine.yield() error("in a coroutine") end
    local function outer() count() local inner = coroutine.wrap(body) for _ = 1, 3 do inner(3) work() coroutine.yield() end end
    for _ = 1, 20 do
      local co = coroutine.create(body)
      while coroutine.status(co) ~= "dead" do assert(coroutine.resume(co, 4)) work() end
      assert(not coroutine.resume(co))
      local bad = coroutine.create(dies)
      assert(coroutine.resume(bad))
      assert(not coroutine.resume(bad))
      local step = coroutine.wrap(outer)
      for _ = 1, 3 do step() end -- and left half-way
      work()
    end
  end)
end)

t.test("coroutines_made_before_start", function()
  local worked = 0
  local function work() worked = worked + 1 end
  local function body() while true do work() coroutine.yield() end end
  local wrapped, created = coroutine.wrap(body), coroutine.create(body)
  wrapped()
  coroutine.resume(created)
  worked = 0
  local profile = trace(function()
    for _ = 1, 10 do wrapped() assert(coroutine.resume(created)) end
  end)
  t.equal(worked, 20)
  t.equal(calls_of(profile).work, 20, "calls in coroutines older than the session")
end)

-- All of the above at once, while every allocation is counted as well.
t.test("beside_the_heap", function()
  local function program(count)
    local function leaf() count() return { {}, "x" .. tostring({}) } end
    local function fib(n) count() leaf() if n < 2 then return n end return fib(n - 1) + fib(n - 2) end
    local function chain(n) count() local _ = { n } if n == 0 then return leaf() end return chain(n - 1) end
    local function fails(n) count() local _ = { n } if n == 0 then error({}) end fails(n - 1) end
    local function body(n) count() for _ = 1, n do leaf() coroutine.yield({}) end end
    local function text(s) count() return s .. #s end
    local object = setmetatable({}, { __index = function(_, k) count() return { k } end, __add = function() count() return {} end })
    for i = 1, 10 do
      fib(5)
      chain(10)
      assert(not pcall(fails, 5))
      local co = coroutine.create(body)
      for _ = 1, i do coroutine.resume(co, 4) end -- to its end, or left half-way
      string.gsub("hello", "%w", text)
      local _ = object.x, object + 1
    end
  end
  check(program, { heap = "sampling", heap_sample_mean_bytes = 1 })
  check(program, { heap = "tracing" })
end)

t.test("time_stays_with_the_path_that_resumed", function()
  local function body() while true do t.burn(0.002) coroutine.yield() end end
  local step = coroutine.wrap(body)
  local function by_day() step() end
  local function by_night() step() end
  local profile = trace(function() for _ = 1, 5 do by_day() end for _ = 1, 15 do by_night() end end)
  local function time_below(path)
    local sum = 0
    for _, sample in ipairs(profile:samples()) do
      if path_of(sample):find(path, 1, true) then sum = sum + sample.exclusive_raw end
    end
    return sum
  end
  local day, night = time_below("by_day;coroutine.wrap;body"), time_below("by_night;coroutine.wrap;body")
  t.equal(sum_of(profile, "calls", "by_day;coroutine.wrap;body;t.burn"), 5, "calls by day in\n" .. profile:folded())
  t.equal(sum_of(profile, "calls", "by_night;coroutine.wrap;body;t.burn"), 15, "calls by night")
  t.truthy(day >= 5 * 2e6 * 0.9 and night >= 15 * 2e6 * 0.9, "time by night, " .. night .. ", and by day, " .. day)
  for _, sample in ipairs(profile:samples()) do
    if path_of(sample):find("coroutine.wrap;body", 1, true) then
      t.contains(sample.labels.coroutine or "none", "test_tracing.lua:", "label coroutine")
    else
      t.equal(sample.labels.coroutine, nil, "label coroutine of " .. path_of(sample))
    end
  end
end)

t.test("suspended_time_is_nobodys", function()
  local function body() while true do coroutine.yield() end end
  local step = coroutine.wrap(body)
  local profile = trace(function() for _ = 1, 5 do step() t.burn(0.01) end end)
  local inside, burnt = sum_of(profile, "exclusive_raw", "body") + sum_of(profile, "exclusive_raw", "coroutine.yield"),
    0
  for _, sample in ipairs(profile:samples()) do
    if path_of(sample):find("t.burn", 1, true) then burnt = burnt + sample.exclusive_raw end
  end
  t.truthy(burnt >= 45e6, "time burnt: " .. burnt)
  t.truthy(inside < burnt / 10, "time in a coroutine that only yields: " .. inside)
end)

t.test("c_functions_and_callbacks", function()
  check(function(count)
    local function less(a, b) count() return a < b end
    local function replace(s) count() return s end
    local function once() count() end
    for _ = 1, 10 do
      table.sort({ 5, 3, 9, 1, 7, 2 }, less)
      string.gsub("hello world", "%w", replace)
      once()
      pcall(once)
      select(2, 1, once())
    end
  end)
  local profile = trace(function() for _ = 1, 25 do string.rep("x", 3) math.floor(1.5) end end)
  local calls = calls_of(profile)
  t.equal(calls["string.rep"], 25, "calls of string.rep")
  t.equal(calls["math.floor"], 25, "calls of math.floor")
end)

t.test("metamethods_and_iterators", function()
  check(function(count)
    local meta = {
      __index = function() count() return 1 end,
      __newindex = function() count() end,
      __call = function() count() return 2 end,
      __add = function() count() return 3 end,
      __eq = function() count() return true end,
      __lt = function() count() return true end,
      __concat = function() count() return "" end,
      __unm = function() count() return 0 end,
      __tostring = function() count() return "object" end,
    }
    local a, b = setmetatable({}, meta), setmetatable({}, meta)
    local function iterate()
      count()
      local n = 0
      return function()
        count()
        n = n + 1
        if n < 4 then return n end
      end
    end
    for _ = 1, 10 do
      local _ = a.x, a(1), a + b, a == b, a < b, a .. b, -a
      a.y = 1
      tostring(a)
      for _ in iterate() do end
    end
  end)
end)

t.test("a_hook_of_the_host", function()
  local seen = {}
  local function hook(event) seen[event] = (seen[event] or 0) + 1 end
  local function called() end
  local function body() for _ = 1, 100 do called() math.floor(1.5) end end
  if t.is_luajit then jit.off() end -- compiled code calls no hooks
  for _, way in ipairs { { "cl", 100 }, { "crl", 0 }, { "", 50 }, { "r", 0 } } do
    local mask, count = way[1], way[2]
    local function under(profiled)
      seen = {}
      debug.sethook(hook, mask, count)
      if profiled then pulse.start { cpu = "tracing" } end
      local before = {}
      for event, n in pairs(seen) do before[event] = n end
      body()
      local events = {}
      for event, n in pairs(seen) do events[event] = n - (before[event] or 0) end
      local profile = profiled and pulse.stop()
      local kept, its_mask, its_count = debug.gethook()
      debug.sethook()
      t.equal(kept, hook, "the hook is the host's again")
      t.equal(its_mask, mask, "its mask")
      t.equal(its_count, count, "its count")
      return events, profile
    end
    local alone = under(false)
    local with, profile = under(true)
    local what = (" (mask %q, count %d)"):format(mask, count)
    t.equal(calls_of(profile).called, 100, "calls" .. what)
    t.equal(calls_of(profile)["math.floor"], 100, "calls of C" .. what)
    for event, n in pairs(alone) do t.between(with[event] or 0, n - 5, n + 5, event .. " events that the host's hook saw" .. what) end
    for event in pairs(with) do t.truthy(alone[event], "events that it did not ask for: " .. event .. what) end
    t.truthy(mask == "r" or (alone.line or 0) + (alone.count or 0) >= 10, "it saw some" .. what)
  end
end)

t.test("pause_and_resume", function()
  local function counted() end
  local function uncounted() end
  local profile = trace(function()
    local function body() for _ = 1, 10 do counted() end end
    body()
    pulse.pause()
    for _ = 1, 10 do uncounted() end
    t.burn(0.05)
    pulse.resume()
    body()
  end)
  local calls = calls_of(profile)
  t.equal(calls.counted, 20, "calls outside the pause")
  t.equal(calls.uncounted, nil, "calls within it")
  t.equal(sum_of(profile, "exclusive_raw", "t.burn"), 0, "time within it")
end)

t.test("pause_in_a_coroutine", function()
  local function counted() end
  local co = coroutine.wrap(function()
    pulse.pause()
    coroutine.yield()
    pulse.resume()
    counted()
    coroutine.yield()
  end)
  local profile = trace(function()
    co()
    for _ = 1, 10 do counted() end -- not seen
    co()
    for _ = 1, 10 do counted() end
  end)
  t.equal(calls_of(profile).counted, 11, "calls after the pause")
end)

t.test("labels", function()
  local function called() end
  local profile = trace(function()
    pulse.labels { request = "a" }
    for _ = 1, 3 do called() end
    pulse.labels { request = "b" }
    for _ = 1, 4 do called() end
    pulse.labels()
    for _ = 1, 5 do called() end
  end)
  local by = {}
  for _, sample in ipairs(profile:samples()) do
    if sample.stack[1].name == "called" then
      local label = sample.labels.request or "none"
      by[label] = (by[label] or 0) + sample.calls
    end
  end
  t.equal(by.a, 3) t.equal(by.b, 4) t.equal(by.none, 5)
end)

t.test("finalizers_disturb_nothing", function()
  local finalized, called = 0, 0
  local function finalizer() finalized = finalized + 1 if finalized % 2 == 0 then error("in a finalizer") end end
  local function make() if newproxy then local p = newproxy(true) getmetatable(p).__gc = finalizer return p end return setmetatable({}, { __gc = finalizer }) end
  local function work() called = called + 1 local _ = {} end
  if t.number >= 5.4 then warn("@off") end
  pulse.start { cpu = "tracing" }
  for _ = 1, 200 do
    make()
    work()
    pcall(collectgarbage) -- up to 5.3 an error in a finalizer is an error of the collection
  end
  local profile = pulse.stop()
  t.truthy(finalized > 50, "finalizers run: " .. finalized)
  t.equal(calls_of(profile).work, called, "calls of work")
end)

t.test("a_million_tail_calls", function()
  local function chain(n) if n == 0 then return 0 end return chain(n - 1) end
  local profile = trace(function()
    chain(1000)
    local before = pulse.status().memory_bytes
    chain(1000000)
    t.equal(pulse.status().memory_bytes, before, "memory after a million tail calls")
  end)
  t.equal(calls_of(profile).chain, 1001002, "calls of chain")
end)

t.test("recursion_to_the_limit", function()
  local depth = 0
  local function down() depth = depth + 1 return 1 + down() end
  local function after() end
  for _, engine in ipairs(engines) do
    depth = 0
    local profile = trace(function() assert(not pcall(down)) after() end, engine)
    local calls = calls_of(profile)
    t.equal(calls.down, depth, "calls down to the limit")
    t.equal(calls.after, 1, "calls afterwards")
    t.truthy(profile:stats().truncated > 0, "deeper calls are told as truncated")
  end
end)

-- Recursion through C functions and metamethods, to where Lua has no more C stack. LuaJIT has no such limit, but its stack has: there gsub and
-- coroutines inside coroutines end the process, traced or not, before that is reached.
t.test("recursion_through_c_to_the_limit", function()
  local entered
  local function after() end
  local function replaces(s) entered = entered + 1 return (s:gsub(".", replaces)) end
  local function resumes() entered = entered + 1 local inner = coroutine.wrap(resumes) inner() end
  local function catches() entered = entered + 1 local _, message = pcall(catches) error(message, 0) end
  local function indexed(x, k) entered = entered + 1 return x[k .. "x"] .. "y" end
  local function shown(x) entered = entered + 1 return tostring(x) .. "" end
  local function less(a, b) entered = entered + 1 table.sort({ 3, 1, 2 }, less) return a < b end
  local object = setmetatable({}, { __index = indexed, __tostring = shown })
  local ways = { -- the function that recurs, and what sets it going
    { catches, function() catches() end },
    { indexed, function() local _ = object.a end },
  }
  if not t.is_luajit then
    ways[3] = { shown, function() tostring(object) end }
    ways[4] = { less, function() table.sort({ 3, 1, 2 }, less) end }
    ways[5] = { replaces, function() replaces("x") end }
    ways[6] = { resumes, function() resumes() end }
  end
  for i, way in ipairs(ways) do
    local engine, ok = engines[i % 2 + 1], nil
    entered = 0
    local profile = trace(function() ok = pcall(way[2]) after() after() end, engine)
    local what = ("way %d, %s: "):format(i, engine)
    local line, calls, afterwards = debug.getinfo(way[1], "S").linedefined, 0, 0
    for _, sample in ipairs(profile:samples()) do
      local top = sample.stack[1]
      if top.defined == line and top.file:find("test_tracing.lua", 1, true) then calls = calls + sample.calls end
      if top.name == "after" then
        afterwards = afterwards + sample.calls
        t.truthy(#sample.stack < 20, what .. "calls afterwards stand where they belong: " .. path_of(sample))
      end
    end
    t.equal(ok, false, what .. "it ends in an error")
    t.truthy(entered > 150, what .. "depth " .. entered)
    -- LuaJIT may find that its stack is full when it has told of a call, and before the function has begun
    t.between(calls, entered, entered + (t.is_luajit and 1 or 0), what .. "calls")
    t.equal(afterwards, 2, what .. "calls afterwards")
    t.equal(profile:stats().overflow, 0, what .. "overflow")
  end
end)

t.test("many_coroutines_left_half_way", function()
  local entered, resumed = 0, 0
  local function again() resumed = resumed + 1 end
  local function body() entered = entered + 1 coroutine.yield() again() end
  pulse.start { cpu = "tracing" }
  local kept = {}
  local function round(n, keep)
    for i = 1, n do
      local co = coroutine.create(body)
      coroutine.resume(co)
      if keep then kept[i] = co end
    end
    collectgarbage()
  end
  round(20000, true) -- as many as are followed at once, and more
  local before = pulse.status().memory_bytes
  for _ = 1, 4 do round(20000) end
  t.equal(pulse.status().memory_bytes, before, "memory after more coroutines")
  -- those that were kept go on, most of which are not followed any more
  local function finish() for i = 1, #kept do assert(coroutine.resume(kept[i])) end end
  finish()
  t.equal(pulse.status().memory_bytes, before, "memory after those that were kept have ended")
  local profile = pulse.stop()
  t.equal(entered, 100000)
  t.equal(resumed, 20000)
  t.equal(calls_of(profile).body, entered, "calls of body")
  t.equal(calls_of(profile).again, resumed, "calls in coroutines that went on")
  t.equal(sum_of(profile, "calls", "finish;coroutine.resume;body;again"), resumed, "calls below who resumed them")
  t.equal(profile:stats().overflow, 0, "overflow")
end)

-- The open frames of all coroutines together take 16 MiB at most, which is some 500000 of them.
t.test("too_many_open_frames", function()
  local entered, left, ended = 0, 0, 0
  local function last() left = left + 1 coroutine.yield() end
  local function down(n)
    entered = entered + 1
    if n == 0 then last() else down(n - 1) end
    ended = ended + 1
  end
  local least, most, overflow
  local profile = trace(function()
    local kept = {}
    least = pulse.status().memory_bytes
    for i = 1, 4000 do
      kept[i] = coroutine.create(down)
      coroutine.resume(kept[i], 129)
    end
    most, overflow = pulse.status().memory_bytes, pulse.status().overflow
    for i = 1, 4000 do assert(coroutine.resume(kept[i])) end
  end, nil, { max_process_memory_bytes = 2 ^ 30 })
  local calls = calls_of(profile)
  t.equal(ended, 520000, "the program's own count")
  t.between(most - least, 8 * 2 ^ 20, 18 * 2 ^ 20, "memory that the frames took")
  t.truthy(overflow > 0, "frames that were given up are told as overflow: " .. overflow)
  t.equal(calls.down, entered, "calls of down")
  t.equal(calls.last, left, "calls of last")
end)

t.test("paths_beyond_the_room_overflow", function()
  pulse.start { cpu = "tracing", max_memory_bytes = 262144 }
  local load = loadstring or load
  local made = {}
  for i = 1, 4000 do made[i] = load("return function() end", "=chunk" .. i)() end
  for i = 1, 4000 do made[i]() end
  for i = 1, 200 do load("local f = ... return f()", "=tail" .. i)(made[i]) end
  local function chain(n) if n == 0 then return 0 end return chain(n - 1) end
  made[1](chain(10))
  local status = pulse.status()
  local profile = pulse.stop()
  t.truthy(status.overflow > 0, "overflow is counted")
  t.contains(profile:folded(), "[overflow]")
  local all = 0
  for _, sample in ipairs(profile:samples()) do all = all + sample.calls end
  t.truthy(all >= 8000, "no call is lost: " .. all)
end)

t.test("reloaded_code_keeps_apart", function()
  local load = loadstring or load
  pulse.start { cpu = "tracing" }
  for i = 1, 20 do
    local f = load("local n = ... for i = 1, 10 do n = n + " .. i .. " end return n", "=module")
    f(1)
    f = nil
    collectgarbage()
  end
  local profile = pulse.stop()
  local functions, calls = {}, 0
  for _, sample in ipairs(profile:samples()) do
    local top = sample.stack[1]
    if top.file == "module" then functions[top.name] = true calls = calls + sample.calls end
  end
  t.equal(calls, 20, "calls of the module's chunk")
end)

t.test("start_and_stop_again", function()
  local function called() end
  for _ = 1, 200 do
    pulse.start { cpu = "tracing" }
    called()
    local profile = pulse.stop()
    t.equal(calls_of(profile).called, 1)
  end
  t.equal(debug.gethook(), nil, "no hook is left")
end)

t.test("regions", function()
  local function work(a, b) t.burn(0.001) return a, nil, b, nil end
  local function count_results(...) return select("#", ...), ... end
  local profile = trace(function()
    for _ = 1, 3 do
      local n, a, _, b = count_results(pulse.region("checkout", work, 1, 2))
      assert(n == 4 and a == 1 and b == 2, "results are handed on")
    end
    pulse.region("other work", function() pulse.region("checkout", work) end)
    local co = coroutine.wrap(function() pulse.region("yielding", coroutine.yield, 5) return 6 end)
    assert(co() == 5 and co() == 6, "a region may yield")
    local ok, message = pcall(pulse.region, "failing", error, "from inside", 0)
    assert(not ok and message == "from inside", "errors pass through: " .. tostring(message))
  end)
  t.equal(calls_of(profile)["[region checkout]"], 4, "calls of the region in\n" .. profile:folded())
  t.equal(sum_of(profile, "calls", "[region checkout];work"), 4, "calls below it")
  t.contains(profile:folded(), "[region other work]")
  t.fails("the name of a region must be a string", pulse.region, {}, work)
  t.fails("no line breaks", pulse.region, "a\nb", work)
end)

t.test("regions_in_samples", function()
  local function work() t.burn(0.005) end
  for _, engine in ipairs(engines) do
    pulse.start { cpu_hz = 250, cpu_engine = engine }
    repeat pulse.region("busy", work) until pulse.status().samples >= 20
    local profile = pulse.stop()
    t.truthy(t.samples_with(profile, "[region busy]") > 10, "samples within the region in\n" .. profile:folded())
  end
end)

t.test("too_many_regions", function() -- the last: names are kept for good
  local names = 0
  local profile = trace(function() for i = 1, 1100 do pulse.region("name " .. i, function() end) end end)
  for name in pairs(calls_of(profile)) do if name:find("^%[region name") then names = names + 1 end end
  t.between(names, 980, 1000, "names")
  t.truthy(calls_of(profile)["[region other]"] >= 100, "the rest share one")
end)

t.test("options", function()
  t.fails("cpu_clock is for sampling", pulse.start, { cpu = "tracing", cpu_clock = "wall" })
end)

t.run()
