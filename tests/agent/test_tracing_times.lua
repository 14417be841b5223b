-- Times of tracing: they add up to what passed, corrected ones come near to what the program takes untraced, and the JIT is off for as long
-- as it is traced, and no longer.
local t = require "t"
local pulse = require "luapulse"
local host = require "host"
local shared = require "trace"
local path_of, sum_of, trace = shared.path_of, shared.sum_of, shared.of

local function spin(n) local x = 0 for i = 1, n do x = x + i % 7 end return x end
if t.is_luajit then jit.off(spin) end -- as it is when traced

-- Steps of spin() that take at least half a millisecond.
local function spin_length()
  local n, from = 1000, 0
  repeat
    n, from = n * 2, host.clock()
    spin(n)
  until host.clock() - from > 5e5
  return n
end

local function below(profile, name, value)
  local sum = 0
  for _, sample in ipairs(profile:samples()) do
    if (path_of(sample) .. ";"):find(";" .. name .. ";", 1, true) then sum = sum + sample[value] end
  end
  return sum
end

local function root(profile, value)
  local sum = 0
  for _, sample in ipairs(profile:samples()) do if #sample.stack == 1 then sum = sum + sample[value] end end
  return sum
end

-- Few and long calls: what an event costs is next to nothing, and so is the correction. What is measured is a round in which no path is seen
-- for the first time: that takes as long as the machine wants, and is taken off.
t.test("time_adds_up", function()
  local length = spin_length()
  local function inner() spin(3 * length) end
  local function outer() inner() spin(length) end
  local function round() for _ = 1, 10 do outer() end end
  local most, least, first, last, corrected, raw
  local profile, elapsed = shared.timed(function()
    round()
    host.clock()
    pulse.snapshot()
    local before = host.clock()
    first = pulse.snapshot()
    local from = host.clock()
    round()
    local to = host.clock()
    last = pulse.snapshot()
    least, most = to - from, host.clock() - before
  end)
  shared.expect_elapsed(shared.total(profile, "exclusive_raw"), elapsed, "raw time, and elapsed time")
  corrected = shared.total(last, "exclusive") - shared.total(first, "exclusive")
  raw = shared.total(last, "exclusive_raw") - shared.total(first, "exclusive_raw")
  shared.expect_elapsed(raw, { least = least, most = most }, "raw time of a round, and elapsed time")
  t.between(corrected, least * 0.98, most * 1.001, "corrected time of a round, and elapsed time")
  t.between(corrected, raw * 0.98, raw, "corrected time of a round, and raw time")
  for _, one in ipairs { profile, first, last } do
    t.equal(root(one, "inclusive"), shared.total(one, "exclusive"), "inclusive time of the root, and the sum of exclusive times")
    t.equal(root(one, "inclusive_raw"), shared.total(one, "exclusive_raw"), "the same as measured")
    t.equal(sum_of(one, "inclusive", ";outer"), below(one, "outer", "exclusive"), "inclusive time of outer")
  end
  -- the shortest is that of one call, and so is the longest
  local shortest, longest = sum_of(profile, "min", ";outer"), sum_of(profile, "max", ";outer")
  local mean = sum_of(profile, "inclusive", ";outer") / sum_of(profile, "calls", ";outer")
  t.truthy(shortest > 0 and shortest <= mean and mean <= longest, ("calls of outer: %.0f, %.0f, %.0f"):format(shortest, mean, longest))
  t.truthy(shortest > sum_of(profile, "min", ";inner"), "a call of outer takes longer than one of inner")
end)

t.test("recursive_inclusive_time_counts_once", function()
  local function down(n) t.burn(0.001) if n > 0 then down(n - 1) end end
  local profile = trace(function() for _ = 1, 3 do down(5) end end)
  local total, inclusive = 0, 0
  for _, sample in ipairs(profile:samples()) do
    if (path_of(sample) .. ";"):find(";down;", 1, true) then total = total + sample.exclusive end
    if sample.stack[1].name == "down" then inclusive = inclusive + sample.inclusive end
  end
  t.equal(inclusive, total, "inclusive time of down over its paths")
end)

-- Nothing but calls. What an event costs is measured at start, by calls of a short function in a loop; how much of it the processor does beside the
-- program's own work depends on the program. So of what tracing adds to fib the correction takes off two thirds (Lua 5.1, 5.2) to five
-- quarters (LuaJIT): half to one and a half times of it is allowed. That is a ratio of times that are measured within some ten milliseconds, of
-- many the middle one: a machine that is busy with other things is so in all of them, or in a few.
t.test("corrected_time_of_many_calls", function()
  local function fib(n) if n < 2 then return n end return fib(n - 1) + fib(n - 2) end
  local function run() local from = host.clock() fib(16) return host.clock() - from end
  if t.is_luajit then jit.off() end
  local shares, rounds = {}, 15
  for i = 1, rounds do
    local plain, raw, corrected = run(), 0, 0
    local profile = trace(run)
    plain = (plain + run()) / 2
    raw, corrected = below(profile, "fib", "exclusive_raw"), below(profile, "fib", "exclusive")
    shares[i] = (raw - corrected) / (raw - plain)
  end
  table.sort(shares)
  local text = {}
  for i, share in ipairs(shares) do text[i] = ("%.2f"):format(share) end
  -- sanitizers have costs of their own, in the hook and not in Lua
  if not t.sanitized then t.between(shares[(rounds + 1) / 2], 0.5, 1.5, "share of what tracing adds that is taken off, of " .. table.concat(text, " ")) end
end)

-- -- the JIT -----------------------------------------------------------------------------------------------------------------------------

local function traces() -- how many pieces of compiled code there are
  local count, info = 0, require "jit.util".traceinfo
  for number = 1, 1000 do if info(number) then count = count + 1 end end
  return count
end
if t.is_luajit then jit.off(traces) end -- its own loop would be one

t.test("the_jit_is_off_while_tracing", function()
  if not t.is_luajit then return end
  local function called(x) return x + 1 end
  local function hot() local x = 0 for _ = 1, 10000 do x = called(x) end return x end
  local function said(profile) return table.concat(profile:stats().comments, "\n"):find("JIT compiler was turned off while tracing", 1, true) ~= nil end
  jit.on()
  for _ = 1, 3 do
    for _ = 1, 20 do hot() end
    t.truthy(traces() > 0, "code was compiled")
    pulse.start { cpu = "tracing" }
    t.equal((jit.status()), false, "jit.status() while tracing")
    t.equal(traces(), 0, "compiled code while tracing, to begin with")
    for _ = 1, 3 do hot() end
    t.equal(traces(), 0, "compiled code while tracing")
    local profile = pulse.stop()
    t.equal((jit.status()), true, "jit.status() after")
    t.equal(sum_of(profile, "calls", "hot;called"), 30000, "calls of a function that was compiled")
    t.truthy(said(profile), "the profile says so")
  end
  t.fails("timeline", pulse.start, { cpu = "tracing", trace_events = 100000000 })
  t.equal((jit.status()), true, "jit.status() after a start that failed")
  jit.off()
  pulse.start { cpu = "tracing" }
  local profile = pulse.stop()
  t.equal((jit.status()), false, "it stays off where it was")
  t.truthy(not said(profile), "and then the profile says nothing of it")
end)

t.run()
