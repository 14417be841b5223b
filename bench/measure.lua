-- SPDX-License-Identifier: MIT
-- What the two overhead drivers (overhead.lua, lockstep.lua) share: arguments, the program under test, the profiler's
-- session, the estimate with its interval, and the rule that ends a measurement.
local measure = { folder = arg[0]:match("^(.*)/") or "." }

local HALF_WIDTH = 0.002 -- the interval is good enough when it is this narrow each way
local FEWEST_PAIRS = 6 -- with fewer there is no 95 % interval at all: these are taken even when the time is over
local MIN_PAIRS = 20 -- before looking at the interval: stopping on an early lucky streak would make it too narrow

function measure.fail(message)
  io.stderr:write("bench: ", message, "\n")
  os.exit(1)
end
local fail = measure.fail

-- PROGRAM [hz] [max_seconds] [clock] [--control] [--check] [--seed=N]; the clock may be heap-sampling or heap-tracing: then the
-- heap is profiled instead, and hz is without meaning; or wrapper: an allocator that only hands on (bench/wrapper.c); or record-bpf,
-- record-ptrace: the process is looked at from outside (bench/recorder.lua); or cpu-over-ticks: what is compared with has as many ticks, whose
-- handler does nothing (bench/bare.c)
function measure.options(arguments)
  local options, plain = { control = false, check = false, seed = os.time() }, {}
  for _, word in ipairs(arguments) do
    if word == "--control" then options.control = true
    elseif word == "--check" then options.check = true
    elseif word:match("^%-%-seed=%d+$") then options.seed = tonumber(word:match("%d+"))
    elseif word:match("^%-") then fail("unknown option " .. word)
    else plain[#plain + 1] = word end
  end
  options.program = plain[1] or fail("which program? (a name from bench/programs)")
  options.hz = tonumber(plain[2] or 100) or fail("not a rate: " .. plain[2])
  options.max_seconds = tonumber(plain[3] or 80) or fail("not a number of seconds: " .. plain[3])
  options.clock = plain[4] or "cpu"
  if plain[5] then fail("too many arguments, from " .. plain[5]) end
  return options
end

-- All of a file, "" when there is none.
function measure.read(path)
  local file = io.open(path)
  local text = file and file:read("*a") or ""
  if file then file:close() end
  return text
end

function measure.runtime()
  return jit and "luajit" or (_VERSION:lower():gsub(" ", ""))
end

-- A function that does `units` of the program's work, and checks each result against the first.
function measure.worker(folder, program)
  local chunk, missing = loadfile(folder .. "/programs/" .. program .. ".lua")
  local unit = (chunk or fail(missing))()
  local expected = unit()
  return function(units)
    for _ = 1, units do
      if unit() ~= expected then fail(program .. " gave another result than at first") end
    end
    return expected
  end
end

-- The profiler, toggled. begin(true) leaves it running, begin(false) leaves it stopped; both start it, and both flush
-- LuaJIT's traces (start and stop may do it anyway), so that what follows has the same history either way.
-- finish() returns the samples taken since begin(true). With --control the module is not even loaded.
function measure.session(options)
  local pulse, running
  local engine = options.clock:match("^record%-(%a+)$")
  if engine then return dofile(measure.folder .. "/recorder.lua")(measure.read, engine, options.hz, options.control) end
  if not options.control then
    local found, module = pcall(require, "luapulse")
    if not found then fail("no module for " .. measure.runtime() .. ": build it, set LUA_CPATH\n" .. module) end
    pulse = module
  end
  local session = {}
  local wrapper = options.clock == "wrapper" and require "wrapper"
  local heap = options.clock:match("^heap%-(%a+)$")
  local aside = heap and options.toggled and require "aside"
  local bare = options.clock == "cpu-over-ticks" and require "bare"
  if bare then bare(options.hz) end
  function session.begin(profiled)
    if wrapper then
      wrapper(profiled)
      running = profiled
    elseif pulse then
      local ok, message = pulse.start(heap and { heap = heap, max_memory_bytes = 2 ^ 28, max_process_memory_bytes = 2 ^ 29 }
        or { cpu = "sampling", cpu_clock = bare and "cpu" or options.clock, cpu_hz = options.hz })
      if not ok and message then fail("start: " .. tostring(message)) end
      if not profiled then pulse.stop() end
      running = profiled
    end
    if jit then jit.flush() end
  end
  local switched = 0
  function session.pause(paused)
    switched = switched + 1
    if wrapper then wrapper(not paused)
    elseif aside then aside(paused)
    elseif pulse then
      if bare and not paused then bare(false) end
      (paused and pulse.pause or pulse.resume)()
      if bare and paused then bare(true) end
    end
  end
  function session.samples() -- a wrapper takes none: how often it was in place stands for them
    return wrapper and switched or pulse and pulse.status().samples or 0
  end
  function session.finish()
    if not running then return 0 end
    running = false
    if wrapper then
      wrapper(false)
      return 1
    end
    local samples = pulse.status().samples
    pulse.stop()
    return samples
  end
  return session
end

-- Park and Miller's generator as a coin: the same on every runtime, and math.random stays the program's own.
function measure.coin(seed)
  local state = seed % 2147483646 + 1
  local function toss()
    state = state * 16807 % 2147483647
    return state > 1073741823
  end
  for _ = 1, 10 do toss() end -- neighbouring seeds start alike
  return toss
end

local function median(values)
  local sorted = {}
  for i = 1, #values do sorted[i] = values[i] end
  table.sort(sorted)
  return sorted[math.ceil(#sorted / 2)]
end

-- The mean, values beyond four robust standard deviations pulled in to there: a pre-empted turn does not count for
-- hundreds, and (unlike with a median) a cost that only every third turn bears does count.
function measure.clipped_mean(values)
  local CLIP = 4 * 1.4826 -- of the median absolute deviation: four standard deviations of a normal distribution
  local middle, distances, sum = median(values), {}, 0
  for i = 1, #values do distances[i] = math.abs(values[i] - middle) end
  local reach = CLIP * median(distances)
  for i = 1, #values do sum = sum + math.max(middle - reach, math.min(middle + reach, values[i])) end
  return sum / #values
end

-- Hodges and Lehmann's estimate of the centre of `values`: the median of the averages of all pairs (Walsh averages),
-- with the 95 % interval that inverts Wilcoxon's signed-rank test (normal approximation, good from 20 values on).
-- Why this one: a log-ratio of two timings in random order is symmetric about the true value, which is all the test
-- asks; it ignores outliers (up to 29 % of the pairs may be wild), where a mean follows them; and on clean data it
-- needs 5 % more pairs than the mean, where the median needs 57 % more.
function measure.centre(values)
  local n, walsh = #values, {}
  for i = 1, n do
    for j = i, n do walsh[#walsh + 1] = (values[i] + values[j]) / 2 end
  end
  table.sort(walsh)
  local count = #walsh
  local spread = 1.959964 * math.sqrt(n * (n + 1) * (2 * n + 1) / 24)
  local rank = math.max(1, math.floor(count / 2 - spread))
  local middle = math.floor((count + 1) / 2)
  return (walsh[middle] + walsh[count + 1 - middle]) / 2, walsh[rank], walsh[count + 1 - rank]
end

-- Calls pair() -> log-ratio, samples until the interval is narrow enough or the (wall) time is over; prints the result:
-- program runtime hz ratio low high pairs reached|not-reached samples
function measure.report(options, pair)
  local log_ratios, look_at, samples = {}, MIN_PAIRS, 0
  local ratio, low, high, reached
  local deadline = os.time() + options.max_seconds
  repeat
    local log_ratio, new_samples = pair()
    log_ratios[#log_ratios + 1] = log_ratio
    samples = samples + new_samples
    local late = os.time() >= deadline and #log_ratios >= FEWEST_PAIRS
    if #log_ratios >= look_at or late then
      local middle, below, above = measure.centre(log_ratios)
      ratio, low, high = math.exp(middle), math.exp(below), math.exp(above)
      reached = #log_ratios >= MIN_PAIRS and (high - low) / 2 <= HALF_WIDTH
      look_at = math.ceil(#log_ratios * 1.1) -- few looks: each is a chance to stop on luck, and its cost is quadratic
    end
  until reached or late
  if not options.control and samples == 0 then fail("the profiler took no sample: there is nothing to measure") end
  print(string.format("%s %s %g %.4f %.4f %.4f %d %s %.0f", options.program, measure.runtime(), options.hz, ratio, low,
    high, #log_ratios, reached and "reached" or "not-reached", samples))
end

return measure
