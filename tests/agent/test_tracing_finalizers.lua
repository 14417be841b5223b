-- Tracing while the collector runs. Lua turns hooks off in finalizers: their calls are not seen, their time is that of the function they
-- interrupted, and nothing else is any different. What coroutines do that they resume is seen on PUC Lua, where hooks are off in the
-- coroutine that collects alone.
local t = require "t"
local pulse = require "luapulse"
local shared = require "trace"
local path_of, sum_of, timed = shared.path_of, shared.sum_of, shared.timed

if t.number >= 5.4 then warn("@off") end -- an error in a finalizer is a warning there, up to 5.3 one of whoever allocates

local function finalized_by(finalizer)
  if not newproxy then return setmetatable({}, { __gc = finalizer }) end
  local object = newproxy(true)
  getmetatable(object).__gc = finalizer
  return object
end

local function calls_at(profile, line)
  local calls = 0
  for _, sample in ipairs(profile:samples()) do
    local top = sample.stack[1]
    if top.defined == line and top.file:find("test_tracing_finalizers.lua", 1, true) then calls = calls + sample.calls end
  end
  return calls
end

local function line_of(f) return debug.getinfo(f, "S").linedefined end

local function collections() -- by name: how to have the collector run in that way
  local ways = { incremental = function() if t.number >= 5.4 then collectgarbage("incremental") end end }
  if t.number >= 5.4 then ways.generational = function() collectgarbage("generational") end end
  return ways
end

-- A program that makes garbage in all it does; half of its finalizers fail. Its counts are kept where nothing is allocated: an error of a
-- finalizer may come out of any allocation.
local function garbage(n)
  local failing = false
  local hidden = function() n.hidden = n.hidden + 1 end
  local function finalizer()
    n.finalizer = n.finalizer + 1
    hidden()
    pcall(hidden)
    if failing and n.finalizer % 2 == 0 then error("in a finalizer") end
  end
  local function leaf() n.leaf = n.leaf + 1 return { {}, {} } end
  local function make() n.make = n.make + 1 local object = finalized_by(finalizer) leaf() return object ~= nil end
  local function down(k) n.down = n.down + 1 make() if k > 0 then down(k - 1) end end
  local function last() n.last = n.last + 1 return make() end
  local function chain(k) n.chain = n.chain + 1 local _ = { k } if k == 0 then return last() end return chain(k - 1) end
  local function body() n.body = n.body + 1 make() coroutine.yield({}) make() end
  local function resumes() n.resumes = n.resumes + 1 local step = coroutine.wrap(body) step() step() end
  local function text(s) n.text = n.text + 1 return s .. #s end
  local function replaces() n.replaces = n.replaces + 1 return (("abc"):gsub("%w", text)) end
  local functions = { finalizer = finalizer, leaf = leaf, make = make, down = down, last = last, chain = chain, body = body, resumes = resumes, text = text, replaces = replaces, hidden = hidden }
  for name in pairs(functions) do n[name] = 0 end
  return functions, function()
    failing = true
    pcall(down, 5)
    pcall(chain, 5)
    pcall(resumes)
    pcall(replaces)
    if t.number < 5.4 then pcall(collectgarbage, "step", 20) end -- after an error it rests until memory has doubled
    failing = false
  end
end

for name, prepare in pairs(collections()) do
  t.test("counts_while_the_collector_is_" .. name, function()
    for _, engine in ipairs { "auto", "interface" } do
      local n = {}
      local functions, work = garbage(n)
      collectgarbage()
      prepare()
      for k in pairs(n) do n[k] = 0 end -- of objects that came before
      local seen
      local profile = timed(function()
        local rounds = 0
        repeat
          work()
          rounds = rounds + 1
        until rounds >= t.fewer(300) and n.finalizer > t.fewer(500) or rounds > 20000
        seen = n.finalizer
      end, { cpu_engine = engine })
      t.truthy(seen > t.fewer(500), "finalizers that ran while it was traced: " .. seen)
      t.truthy(n.hidden > seen, "calls in them: " .. n.hidden)
      for what, f in pairs(functions) do
        local expected = (what == "finalizer" or what == "hidden") and 0 or n[what]
        t.equal(calls_at(profile, line_of(f)), expected, "calls of " .. what .. " (" .. engine .. ")")
      end
      t.equal(profile:stats().overflow, 0, "overflow")
    end
  end)
end

t.test("time_of_finalizers", function()
  local function burner() t.burn(0.004) end
  local function interrupted() finalized_by(burner) collectgarbage() end
  local function allocates(done) -- and calls nothing
    finalized_by(function() burner() done[1] = true end)
    while not done[1] do local _ = {} end
  end
  collectgarbage()
  local profile, elapsed = timed(function() for _ = 1, 5 do interrupted() allocates({}) end end)
  local inside = 0
  for _, sample in ipairs(profile:samples()) do
    if path_of(sample):find("burn", 1, true) then inside = inside + sample.calls end
  end
  t.equal(inside, 0, "calls in finalizers")
  t.truthy(sum_of(profile, "exclusive_raw", "interrupted;collectgarbage") >= 5 * 4e6 * 0.9, "time of what the first interrupted")
  t.truthy(sum_of(profile, "exclusive_raw", ";allocates") >= 5 * 4e6 * 0.9, "time of what the second interrupted")
  shared.expect_elapsed(shared.total(profile, "exclusive_raw"), elapsed, "raw time")
end)

t.test("many_finalizers_that_fail", function()
  local failed, failing = 0, false
  local function fails() if failing then failed = failed + 1 local _ = nil + 1 end end
  local function collect() failing = true collectgarbage("step", 100) end
  local function round(n) for _ = 1, n do finalized_by(fails) pcall(collect) failing = false end end
  local failed_before, grown
  local profile = timed(function()
    round(500)
    failed_before = failed
    local before = pulse.status().memory_bytes
    round(t.fewer(20000))
    grown = pulse.status().memory_bytes - before
  end)
  t.truthy(failed - failed_before > t.fewer(5000), "finalizers that failed: " .. failed - failed_before)
  t.equal(grown, 0, "memory of the session after them, in more bytes than before")
  t.equal(calls_at(profile, line_of(round)), 2, "calls of round")
end)

-- -- coroutines that finalizers resume -----------------------------------------------------------------------------------------------

t.test("coroutines_in_finalizers", function()
  local function inner() end
  local function yields() inner() coroutine.yield() inner() end
  local function fails() inner() error("in a coroutine") end
  local function after() end
  local older = coroutine.wrap(function() while true do inner() coroutine.yield() end end)
  local ways = { -- and the calls of inner() in each
    ["ends"] = { 2, function() local step = coroutine.wrap(yields) step() t.burn(0.002) step() end },
    ["is left half-way"] = { 1, function() coroutine.wrap(yields)() end },
    ["fails"] = { 1, function() coroutine.wrap(fails)() end },
    ["was there before"] = { 1, function() older() end },
  }
  for name, way in pairs(ways) do
    for _, engine in ipairs { "auto", "interface" } do
      collectgarbage()
      local function finalizer() t.burn(0.002) way[2]() t.burn(0.002) end
      local function interrupted() finalized_by(finalizer) pcall(collectgarbage) after() end
      local profile, elapsed = timed(function()
        older()
        for _ = 1, 5 do interrupted() after() end
      end, { cpu_engine = engine })
      local what = name .. ", " .. engine .. ", in\n" .. profile:folded()
      local below, inside, own = 0, 0, 0
      for _, sample in ipairs(profile:samples()) do
        local path = path_of(sample)
        if path:find("interrupted;pcall;collectgarbage;.*inner$") then below = below + sample.calls end
        if (path .. ";"):find(";finalizer;", 1, true) then inside = inside + sample.calls end
        if path:find("interrupted;pcall;collectgarbage$") then own = own + sample.exclusive_raw end
      end
      t.equal(below, t.is_luajit and 0 or 5 * way[1], "calls in coroutines that the finalizers resumed: " .. what)
      t.equal(inside, 0, "calls in the finalizers: " .. what)
      t.equal(sum_of(profile, "calls", "interrupted;after"), 5, "calls that follow: " .. what)
      t.equal(sum_of(profile, "calls", ";after"), 10, "calls that follow: " .. what)
      shared.expect_elapsed(shared.total(profile, "exclusive_raw"), elapsed, "raw time: " .. what)
      local burnt = name == "fails" and 2 or name == "ends" and 6 or 4 -- an error has no event: what follows is still the coroutine's
      if engine == "auto" then t.truthy(own >= 5 * burnt * 1e6 * 0.9, "time of the finalizers, " .. own .. ": " .. what) end
    end
  end
end)

-- Not what a finalizer is for, but nothing breaks by it.
t.test("sessions_in_finalizers", function()
  local function after() end
  local function now(f) finalized_by(f) collectgarbage() end
  if t.is_luajit then
    now(function() t.fails("call start elsewhere", pulse.start, { cpu = "tracing" }) end)
    t.equal(jit.status(), true, "the JIT is on")
    t.equal(pulse.status().running, false, "running")
    jit.off()
  end
  for _, engine in ipairs { "auto", "interface" } do
    for _ = 1, 10 do
      local profile
      now(function() pulse.start { cpu = "tracing", cpu_engine = engine } end)
      for _ = 1, 5 do after() end
      now(function() pulse.pause() end)
      now(function() pulse.resume() end)
      for _ = 1, 5 do after() end
      now(function() pulse.pause() pulse.resume() end)
      coroutine.wrap(function() now(function() profile = pulse.snapshot() end) after() end)()
      now(function() profile = pulse.stop() end)
      t.truthy(profile, "stopped in a finalizer")
      t.equal(sum_of(profile, "calls", ";after"), 11, "calls between, in\n" .. profile:folded())
      t.equal(debug.gethook(), nil, "no hook is left")
    end
  end
end)

t.run()
