-- Programs live on, whatever they do while they are profiled, and what they did is in the profile.
local t = require "t"
local pulse = require "luapulse"
local host = require "host"

local CPU = { cpu_clock = "cpu", cpu_hz = 1000 } -- walks
local FAST = { cpu_clock = "cpu", cpu_hz = 10000 }
local INTERFACE = { cpu_clock = "cpu", cpu_hz = 1000, cpu_engine = "interface" }
local DENSE = { cpu_clock = "instructions", cpu_sample_mean_instr = 50, cpu_max_samples_per_sec = 0, seed = 3 }
local CLOCKS = { CPU, INTERFACE, DENSE }
local compile = loadstring or load

local function work(n) local x = 0 for i = 1, n or 2000 do x = x + i % 7 end return x end

-- On each clock: body must end well, and the profile must be whole.
local function survives(body, mean)
  for _, options in ipairs { CPU, FAST, INTERFACE, mean and t.exact(mean) or DENSE } do
    pulse.start(options)
    if options == CPU or options == FAST then t.equal(pulse.status().engine, "walk", "engine") end
    body(options)
    work(20000)
    local profile = pulse.stop()
    t.equal(host.hooked(), false, "a hook left behind")
    local stats, sum = profile:stats(), 0
    for _, sample in ipairs(profile:samples()) do sum = sum + sample.samples end
    t.equal(sum, stats.cpu_inclusive_samples_total, "samples")
    if options == DENSE then t.truthy(sum > 300, "samples: " .. sum) end
    t.truthy(#profile:folded() > 0, "folded")
  end
end

-- -- errors ------------------------------------------------------------------------------------------------------------------

t.test("errors_through_pcall", function()
  survives(function()
    for i = 1, 20000 do
      local ok, message = pcall(error, "no " .. i, 0)
      t.equal(message, "no " .. i, "message")
      pcall(function() local x = nil; return x.y end)
      if i % 100 == 0 then pcall(coroutine.wrap(function() work(100) error({}) end)) end
    end
  end)
end)

t.test("recursion_to_overflow", function()
  survives(function()
    local function deep(n) return 1 + deep(n + 1) end
    local function deep_by_pcall(n) return (select(2, pcall(deep_by_pcall_again, n))) end
    function deep_by_pcall_again(n) return deep_by_pcall(n) end
    local function deep_by_meta()
      local meta = {}
      meta.__index = function(_, k) return setmetatable({}, meta)[k + 1] + 1 end
      return setmetatable({}, meta)[1]
    end
    local ok, message = pcall(deep, 1)
    t.equal(ok, false, "pcall")
    t.contains(message, "overflow", "message")
    deep_by_pcall(1)
    t.equal(pcall(deep_by_meta), false, "pcall of metamethods")
    local co = coroutine.create(deep)
    t.equal(coroutine.resume(co, 1), false, "resume")
  end, 20000) -- the deepest stacks cost the most: not too many samples of them
end)

t.test("an_error_that_leaves_a_coroutine", function()
  survives(function()
    for _ = 1, 2000 do
      local outer = coroutine.wrap(function()
        local inner = coroutine.wrap(function() work(50) error("inner", 0) end)
        inner()
      end)
      local ok, message = pcall(outer)
      t.truthy(tostring(message):find("inner", 1, true), "message")
    end
    -- the resumer is known again: what follows is in this function
    for _ = 1, 20 do work(1000) end
  end)
end)

-- -- coroutines ---------------------------------------------------------------------------------------------------------------

t.test("a_hundred_thousand_coroutines", function()
  survives(function()
    local sum, kept = 0, {}
    for i = 1, 100000 do
      local co = coroutine.wrap(function(a) local b = coroutine.yield(a + 1) return a + b end)
      sum = sum + co(i)
      if i % 3 ~= 0 then sum = sum + co(1) end -- every third is abandoned half-way
      if i % 1000 == 0 then kept[#kept + 1] = co end
    end
    t.equal(sum, 100000 * 100001 / 2 + 100000 + (100000 * 100001 / 2 - 3 * 33333 * 33334 / 2) + 66667, "sum")
  end)
end)

t.test("start_inside_a_coroutine", function()
  for _, options in ipairs(CLOCKS) do
    local co = coroutine.wrap(function()
      pulse.start(options)
      coroutine.yield()
      return pulse.stop()
    end)
    co()
    -- the interface of 5.1 has no way to the main thread from a coroutine; a walk finds it
    local blind = _VERSION == "Lua 5.1" and not t.is_luajit and options ~= CPU
    local function in_main()
      if blind then t.burn(0.05) else t.burn_samples(20) end
    end
    in_main()
    local profile = co()
    t.equal(pulse.status().running, false, "running")
    local row = t.functions(profile)["in_main"]
    if not blind then
      t.truthy(row and row.cum > 5, "samples of the main thread on the " .. options.cpu_clock .. " clock")
    end
    t.equal(host.hooked(), false, "a hook left behind")
  end
end)

t.test("stop_inside_another_coroutine", function()
  for _, options in ipairs(CLOCKS) do
    pulse.start(options)
    t.burn_samples(5)
    local profile
    coroutine.wrap(function()
      t.burn_samples(5)
      coroutine.wrap(function() profile = pulse.stop() end)()
      work(10000)
    end)()
    t.truthy(profile:stats().cpu_inclusive_samples_total > 5, "samples")
    t.equal(pulse.status().running, false, "running")
    t.equal(host.hooked(), false, "a hook left behind")
    work(10000)
    pulse.start(options) -- and again
    pulse.stop()
  end
end)

t.test("the_coroutine_that_started_is_collected", function()
  for _, options in ipairs(CLOCKS) do
    coroutine.wrap(function() pulse.start(options) coroutine.yield() end)()
    for _ = 1, 5 do collectgarbage() work() end
    t.burn(0.05)
    pulse.stop()
    collectgarbage()
    work()
  end
end)

-- -- garbage --------------------------------------------------------------------------------------------------------------------

local function with_finalizer(finalizer)
  if _VERSION ~= "Lua 5.1" then return setmetatable({}, { __gc = finalizer }) end
  local object = newproxy(true)
  getmetatable(object).__gc = finalizer
  return object
end

-- How soon the collector begins and how fast it goes, in percent; returns what they were.
local function set_pace(pause, multiplier)
  if t.number >= 5.5 then return collectgarbage("param", "pause", pause), collectgarbage("param", "stepmul", multiplier) end
  return collectgarbage("setpause", pause), collectgarbage("setstepmul", multiplier)
end

t.test("garbage_collection_torture", function()
  survives(function()
    local pause, multiplier = set_pace(50, 1000)
    local finalized, rounds = 0, t.fewer(1500)
    for i = 1, rounds do
      local junk = {}
      for k = 1, 20 do junk[k] = { k, tostring(k), function() return k end } end
      with_finalizer(function() finalized = finalized + 1 work(20) end)
      coroutine.wrap(function() work(20) coroutine.yield() end)()
      if i % 10 == 0 then collectgarbage("step", 10) end
      if i % 200 == 0 then collectgarbage("stop") elseif i % 200 == 50 then collectgarbage("restart") end
      if i % 500 == 0 then collectgarbage("collect") end
    end
    collectgarbage("restart")
    collectgarbage()
    set_pace(pause, multiplier)
    t.truthy(finalized > rounds * 2 / 3, "finalizers ran: " .. finalized)
  end)
end)

t.test("finalizers_that_fail_and_yield_and_profile", function()
  survives(function()
    local ran = 0
    for i = 1, 300 do
      with_finalizer(function()
        ran = ran + 1
        pcall(pulse.status)
        pcall(error, "caught")
        if t.number >= 5.4 then error("a warning, not an error") end
      end)
      work(50)
      if i % 50 == 0 then collectgarbage() end
    end
    t.truthy(ran > 100, "finalizers ran")
  end)
end)

-- Starting makes objects, so collections and finalizers may run inside it: whatever those do.
t.test("finalizers_that_fork_while_a_session_starts", function()
  host.alarm(250) -- a deadlock ends here; a busy machine does not
  for _, options in ipairs(CLOCKS) do
    local forks = 0
    local pause, multiplier = set_pace(1, 10000)
    for _ = 1, t.fewer(100) do
      for _ = 1, 3 do
        with_finalizer(function()
          forks = forks + 1
          local pid = host.fork()
          if pid == 0 then host.exit_now(0) end
          host.wait(pid)
        end)
      end
      pulse.start(options)
      pulse.stop()
    end
    set_pace(pause, multiplier)
    collectgarbage()
    t.truthy(forks > t.fewer(100), "finalizers ran: " .. forks)
  end
  host.alarm(0)
end)

-- -- code that comes and goes -----------------------------------------------------------------------------------------------------

t.test("loading_and_dumping_chunks", function()
  survives(function()
    for i = 1, 3000 do
      local chunk = compile("local a = ... for i = 1, 10 do a = a + i end return a + " .. i, "=chunk" .. i % 50)
      t.equal(chunk(1), 56 + i, "result")
      local again = compile(string.dump(chunk), "=dumped", "b")
      t.equal(again(1), 56 + i, "result of the copy")
      if i % 100 == 0 then collectgarbage() end
    end
    for _ = 1, 200 do t.equal(compile("syntax error here"), nil, "no chunk") end
  end)
end)

local function rows_of(profile, file)
  local names = {}
  for name, row in pairs(t.functions(profile)) do
    if row.file == file and row.defined > 0 then names[#names + 1] = name end
  end
  table.sort(names)
  return names
end

-- Until the session has that many samples more, or once when it counts instructions.
local function call_until(samples, f, n)
  local enough = pulse.status().samples + samples
  repeat f(n) until samples == 0 or pulse.status().samples >= enough
end

t.test("reloaded_code_keeps_apart", function()
  -- the same file, the same lines, other code
  local first = "local M = {}\nfunction M.price(n) local x = 0 for i = 1, n do x = x + i end return x end\nreturn M"
  local second = "local M = {}\nfunction M.price(n) local x = 1 for i = 1, n do x = x * 3 - i % 2 end return x end\nreturn M"
  -- asked by the interface, 5.5 tells nothing of the code without allocating
  for _, options in ipairs(t.number >= 5.5 and { CPU } or { t.exact(), CPU }) do
    local wanted = options == CPU and 50 or 0
    pulse.start(options)
    local shop = compile(first, "=shop.lua")()
    call_until(wanted, shop.price, 20000)
    shop = nil
    collectgarbage()
    shop = compile(second, "=shop.lua")()
    call_until(2 * wanted, shop.price, 40000)
    local profile = pulse.stop()
    local names = rows_of(profile, "shop.lua")
    t.equal(#names, 2, "functions of the reloaded file")
    t.equal(names[2], names[1] .. " [reload 2]", "the name of the later one")
    t.truthy(t.row(profile, names[2]).flat > t.row(profile, names[1]).flat, "the later one ran longer")
  end
end)

t.test("the_same_code_loaded_again_is_one_function", function()
  local source = "local M = {}\nfunction M.price(n) local x = 0 for i = 1, n do x = x + i end return x end\nreturn M"
  for _, options in ipairs { t.exact(), CPU } do
    pulse.start(options)
    local i = 0
    repeat
      i = i + 1
      local shop = compile(source, "=shop.lua")()
      shop.price(options == CPU and 5000 or 200)
      if i % 50 == 0 then collectgarbage() end
    until i >= 1000 and pulse.status().samples >= 200
    local profile = pulse.stop()
    -- the file does not exist, so a walk has no name for it but its place
    local name = options == CPU and "shop.lua:2" or "price"
    t.equal(table.concat(rows_of(profile, "shop.lua"), " "), name, "functions of the file")
    t.truthy(t.row(profile, name).flat > (options == CPU and 50 or 3000), "samples: " .. t.row(profile, name).flat)
  end
end)

-- -- bounds -----------------------------------------------------------------------------------------------------------------------

t.test("memory_is_bounded", function()
  local limit = 524288
  pulse.start { cpu_clock = "instructions", cpu_sample_mean_instr = 20, cpu_max_samples_per_sec = 0, max_memory_bytes = limit }
  local most = 0
  -- stacks by the hundred thousand: each bit of i chooses a function
  local function one(i, d) if d == 0 then return work(2) end if i % 2 == 0 then return (one(math.floor(i / 2), d - 1)) end
    return (two(math.floor(i / 2), d - 1)) end
  function two(i, d) if d == 0 then return work(2) end if i % 2 == 0 then return (one(math.floor(i / 2), d - 1)) end
    return (two(math.floor(i / 2), d - 1)) end
  local i = 0
  repeat
    i = i + 1
    one((i * 7919) % 131072, 17)
    if i % 1000 == 0 then most = math.max(most, pulse.status().memory_bytes) end
  until i >= t.fewer(100000) and pulse.status().overflow > 1000
  local status = pulse.status()
  local profile = pulse.stop()
  t.truthy(status.overflow > 1000, "overflow: " .. status.overflow)
  local stats = profile:stats() -- a few samples later than the status
  t.between(stats.overflow - status.overflow, 0, 10, "overflow in the profile, more than in the status")
  t.equal(t.row(profile, "[overflow]").flat, stats.overflow, "samples of the overflow frame")
  -- the tables' bound and the working memory of a session, which has a fixed size
  pulse.start { max_memory_bytes = 262144 }
  local fixed = pulse.status().memory_bytes
  pulse.stop()
  t.truthy(most <= limit + fixed, "memory " .. most .. " within " .. limit .. " and " .. fixed)
  t.between(stats.cpu_inclusive_samples_total - status.samples, 0, 10, "samples in the profile, more than in the status")
end)

t.test("five_thousand_sessions", function()
  local function cycles(count)
    for i = 1, count do
      pulse.start(CLOCKS[i % 3 + 1])
      work(50)
      if i % 3 == 0 then pulse.snapshot() end
      if i % 7 == 0 then pulse.labels { i = i } end
      pulse.stop()
    end
    collectgarbage()
    collectgarbage()
  end
  cycles(t.fewer(500))
  local fds, signals, memory, mappings = host.fds(), host.signals(), host.memory()
  cycles(t.fewer(4500))
  local memory_after, mappings_after = host.memory()
  t.equal(host.fds(), fds, "descriptors")
  t.equal(host.signals(), signals, "signals")
  t.between(mappings_after - mappings, -20, 20, "mappings more than after 500")
  if t.sanitized then return end -- the address sanitizer holds back freed memory
  t.truthy(memory_after - memory < 4096, "KiB more than after 500: " .. memory_after - memory)
end)

-- -- processes --------------------------------------------------------------------------------------------------------------------

t.test("a_storm_of_forks", function()
  for _, options in ipairs(CLOCKS) do
    pulse.start(options)
    local parent = host.pid()
    for i = 1, t.fewer(250) do
      work(2000)
      local pid = host.fork()
      if pid == 0 then
        local ok = pcall(function()
          assert(host.pid() ~= parent)
          assert(pulse.status().running == false, "a child is not profiled")
          assert(not pcall(pulse.stop))
          work(2000)
          coroutine.wrap(function() work(500) coroutine.yield() end)()
          pcall(error, "x")
          collectgarbage()
        end)
        if i % 2 == 0 then host.exit_now(ok and 0 or 1) else os.exit(ok and 0 or 1) end
      end
      local status, signal = host.wait(pid)
      t.equal(signal, nil, "signal that ended child " .. i)
      t.equal(status, 0, "status of child " .. i)
    end
    t.equal(pulse.status().running, true, "the parent goes on")
    t.burn_samples(10) -- … and is sampled
    t.truthy(pulse.stop():stats().cpu_inclusive_samples_total >= 10, "samples")
  end
end)

t.test("a_child_that_asks_is_profiled", function()
  for _, parents in ipairs { false, CPU, INTERFACE, DENSE } do
    for _, options in ipairs(CLOCKS) do
      if parents then pulse.start(parents) end
      t.burn(0.02)
      local path = os.tmpname()
      local pid = host.fork()
      if pid == 0 then
        local ok = pcall(function()
          pulse.start(options)
          t.burn_samples(5)
          local profile = pulse.stop()
          assert(profile:stats().cpu_inclusive_samples_total >= 5)
          profile:write(path, "folded")
        end)
        host.exit_now(ok and 0 or 1)
      end
      t.equal(host.wait(pid), 0, "status of the child")
      local file = io.open(path)
      t.contains(file:read("*a"), "t.burn", "the child's profile")
      file:close()
      os.remove(path)
      if parents then
        t.burn_samples(5)
        t.truthy(pulse.stop():stats().cpu_inclusive_samples_total >= 5, "the parent's samples")
      end
    end
  end
end)

-- Ends a child in that way while its session is on; it must end as it would have without.
local function ends(way, expected)
  for _, options in ipairs(CLOCKS) do
    local pid = host.fork()
    if pid == 0 then
      pulse.start(options)
      t.burn(0.02)
      way()
      host.exit_now(99)
    end
    local status, signal = host.wait(pid)
    t.equal(status or -signal, expected, "status")
  end
end

t.test("exits_with_a_session_on", function()
  ends(function() os.exit(7) end, 7)
  ends(function() coroutine.wrap(function() os.exit(8) end)() end, 8)
  ends(function() pcall(function() coroutine.wrap(function() pcall(os.exit, 9) end)() end) end, 9)
  if _VERSION ~= "Lua 5.1" then
    ends(function() os.exit(10, true) end, 10) -- closes the state
    ends(function() coroutine.wrap(function() os.exit(true, false) end)() end, 0)
  end
  ends(function() pulse.pause() os.exit(11) end, 11)
end)

-- A whole program, by the same interpreter.
local function run_program(source)
  local path = os.tmpname()
  local file = io.open(path, "w")
  file:write(source)
  file:close()
  local interpreter = arg[-1]
  local pipe = io.popen(interpreter .. " " .. path .. " 2>&1; echo status $?")
  local output = pipe:read("*a")
  pipe:close()
  os.remove(path)
  return output
end

t.test("programs_that_end_with_a_session_on", function()
  for _, options in ipairs { "{ cpu_hz = 1000 }", "{ cpu_hz = 1000, cpu_engine = 'interface' }", "{ cpu_clock = 'instructions' }" } do
    local start = "local pulse = require 'luapulse' pulse.start" .. options .. " for i = 1, 1e6 do end "
    t.equal(run_program(start .. "print 'done'"), "done\nstatus 0\n", "a program that ends")
    t.contains(run_program(start .. "error('broken', 0)"), "broken", "a program that fails")
    t.contains(run_program(start .. "error('broken', 0)"), "status 1", "a program that fails")
    t.equal(run_program(start .. "coroutine.wrap(function() coroutine.yield() end)() print 'done'"), "done\nstatus 0\n", "with a coroutine")
    -- finalizers run at the end, after ours or before
    local finalizer = _VERSION == "Lua 5.1" and "local p = newproxy(true) getmetatable(p).__gc = " or "local p = setmetatable({}, {}) getmetatable(p).__gc = "
    t.equal(run_program(finalizer .. "function() for i = 1, 1e5 do end end " .. start .. "keep = p print 'done'"), "done\nstatus 0\n",
      "with a finalizer")
    t.equal(run_program(start .. "keep = pulse.snapshot() print 'done'"), "done\nstatus 0\n", "with a profile kept")
    t.equal(run_program(start .. "local stop = pulse.stop " .. finalizer .. "function() pcall(stop) pcall(pulse.start) end keep = p print 'done'"),
      "done\nstatus 0\n", "with a finalizer that stops and starts")
  end
end)

-- A program may end LuaJIT's own profiler, on which the interface engine stands, and a VM does so before it closes.
if t.is_luajit then t.test("the_profiler_of_luajit_is_ended_by_others", function()
  pulse.start(INTERFACE)
  require "jit.profile".stop()
  local stop = os.clock() + 0.1
  while os.clock() < stop do end
  pulse.stop()
  jit.off() -- the loops below would be compiled, and call no function of Lua: compiled code tells where it enters one
  pulse.start(INTERFACE)
  local seen = 0
  require "jit.profile".start("i1", function(_, samples) seen = seen + samples end) -- ends ours; its own goes on after us
  pulse.stop()
  repeat until seen > 0
  require "jit.profile".stop()
  pulse.start(INTERFACE) -- and can be used again
  repeat until pulse.status().samples > 0
  pulse.stop()
  jit.on()
end) end

t.run()
