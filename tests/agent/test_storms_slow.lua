-- Storms: ticks as fast as they come while stacks move, coroutines come and go, the collector runs and code is reloaded. The
-- program gets its results, nothing crashes, and every stack that could not be read is counted with its reason.
local t = require "t"
local pulse = require "luapulse"

-- Runs `round` until enough ticks have struck; STORM_SECONDS of CPU time in a soak.
local SECONDS = tonumber(os.getenv("STORM_SECONDS") or 1.5)

-- 1 in 50 is far more than was ever seen (1 in 140, LuaJIT): of a few hundred chance may make it more, of thousands it cannot.
local function rejected_of(status)
  local rejected = 0
  for _, count in pairs(status.rejects) do rejected = rejected + count end
  return rejected
end

local function is_decided(status)
  return status.samples >= 200 and (rejected_of(status) * 50 <= status.samples or status.samples >= 4000)
end

local function storm(round)
  pulse.start { cpu = "sampling", cpu_hz = 10000 }
  t.equal(pulse.status().engine, "walk", "engine")
  local stop, rounds = os.clock() + SECONDS, 0
  repeat
    rounds = rounds + 1
    round(rounds)
  until os.clock() > stop and is_decided(pulse.status())
  local status = pulse.status()
  local profile = pulse.stop()
  for reason, count in pairs(status.rejects) do
    t.truthy(type(reason) == "string" and count > 0, "a reason and how often")
  end
  local rejected = rejected_of(status)
  -- all of it is Lua: what is not attributed was rejected
  t.equal(status.unattributed, rejected, "samples without a stack, by reason")
  t.truthy(rejected * 50 <= status.samples, rejected .. " of " .. status.samples .. " stacks could not be read")
  return profile
end

local function depth(n)
  if n == 0 then return 0 end
  return 1 + depth(n - 1)
end

t.test("stacks_that_move", function()
  local profile = storm(function(i)
    -- a new coroutine starts with a small stack, which is moved again and again as it grows, and shrinks with the collector
    local co = coroutine.create(function(n)
      local got = depth(n)
      coroutine.yield(got)
      return depth(n * 2)
    end)
    local n = 50 + i * 37 % 1500
    local ok, got = coroutine.resume(co, n)
    t.truthy(ok and got == n, "the depth")
    if i % 20 == 0 then collectgarbage() end
    local again, twice = coroutine.resume(co)
    t.truthy(again and twice == 2 * n, "twice the depth")
  end)
  t.truthy(t.functions(profile)["depth"], "samples of depth")
end)

t.test("coroutines_that_come_and_go", function()
  local made = 0
  local function body(n)
    made = made + 1
    local s = 0
    for i = 1, n do s = s + i end
    local inner = coroutine.wrap(function(m)
      local v = coroutine.yield(m + 1)
      return v + 1
    end)
    local a = inner(s)
    coroutine.yield(a)
    return inner(a)
  end
  storm(function(i)
    local all = {}
    for k = 1, 20 do all[k] = coroutine.wrap(body) end
    for k = 1, 20 do t.equal(all[k](k), k * (k + 1) / 2 + 1, "first result") end
    for k = 1, 20, 2 do t.equal(all[k](), k * (k + 1) / 2 + 2, "second result") end
  end)
  t.truthy(made > 20, "coroutines")
end)

t.test("the_collector_at_work", function()
  local finalized, metatable = 0, {}
  function metatable.__gc() finalized = finalized + 1 end
  local function mortal()
    if newproxy then
      local proxy = newproxy(true)
      getmetatable(proxy).__gc = metatable.__gc
      return proxy
    end
    return setmetatable({}, metatable)
  end
  storm(function(i)
    local list = {}
    for k = 1, 200 do list[k] = { tostring(k), mortal(), function() return k end } end
    for k = 1, 200, 7 do t.equal(list[k][3](), k, "what a closure keeps") end
    collectgarbage("step", 100)
    if i % 10 == 0 then collectgarbage() end
  end)
  t.truthy(finalized > 0, "finalizers ran")
end)

t.test("code_that_is_reloaded", function()
  local load = loadstring or load
  local profile = storm(function(i)
    local version = i % 5
    local chunk = load("local M = {} function M.work(n) local s = 0 for i = 1, n do s = s + i % "
      .. (version + 2) .. " end " .. ("s = s + 0 "):rep(version) .. " return s end return M", "=reloaded")
    local module = chunk()
    local s = module.work(2000)
    t.truthy(s > 0, "the work")
    if i % 50 == 0 then collectgarbage() end
  end)
  -- the five versions stand at one place and are kept apart
  local versions = 0
  for name in pairs(t.functions(profile)) do
    if name:find("^M%.work") or name:find("^reloaded:1") then versions = versions + 1 end
  end
  t.truthy(versions >= 5, versions .. " versions of the function in\n" .. profile:folded())
end)

t.test("errors_through_everything", function()
  local function fail(n)
    if n == 0 then error({}) end
    return fail(n - 1) + 1
  end
  storm(function(i)
    for k = 1, 50 do
      local ok = pcall(fail, k)
      t.equal(ok, false, "an error")
      local co = coroutine.wrap(function() return fail(k) end)
      t.equal(pcall(co), false, "an error in a coroutine")
    end
    t.equal(pcall(function() local function f() return f() + 1 end return f() end), false, "no stack without end")
  end)
end)

t.run(arg)
