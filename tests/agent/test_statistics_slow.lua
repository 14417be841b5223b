-- What a profile says in numbers is true: shares, totals, gaps. Bounds are 4 sigma of the statistics of the method itself.
local t = require "t"
local pulse = require "luapulse"
local host = require "host"

local clock = os.clock
local floor, sqrt, abs = math.floor, math.sqrt, math.abs

-- -- a split of 50 / 30 / 20 --------------------------------------------------------------------------------------------

-- On the cpu clock: each burns until its own moment of the process's CPU time. The moments are set one after the other, so
-- what one oversteps is taken from the next: in the mean the shares are exactly those asked for.
-- Between two looks at the clock, which are all kernel time, some of their own.
local SPIN = t.is_luajit and 2000 or 100
local function half(moment) while clock() < moment do for _ = 1, SPIN do end end return moment end
local function third(moment) while clock() < moment do for _ = 1, SPIN do end end return moment end
local function fifth(moment) while clock() < moment do for _ = 1, SPIN do end end return moment end

-- Rounds of random length, 0.5 to 3.5 ms: the kernel's own tick, which CPU timers wait for, must find no rhythm here.
local function burn_by_time(enough)
  local moment = clock()
  while not enough() do
    for _ = 1, 200 do
      local unit = 50e-6 + math.random() * 300e-6
      moment = half(moment + 5 * unit)
      moment = third(moment + 3 * unit)
      moment = fifth(moment + 2 * unit)
    end
    moment = clock()
  end
end

-- Ticks come at the kernel's pace, 4 ms or more of CPU time each. The clock and the weights are the same code for every runtime:
-- all samples on one of each kind, a third, with the wider bounds of fewer samples, on the others.
local function by_runtime(samples)
  if t.is_luajit or t.number >= 5.4 then return samples end
  return math.ceil(samples / 3)
end

local function check_split(profile, names, least)
  local counts, n = {}, 0
  for i, name in ipairs(names) do
    counts[i] = t.row(profile, name).cum
    n = n + counts[i]
  end
  t.truthy(n >= least, "samples in the three functions: " .. n .. " >= " .. least)
  for i, p in ipairs { 0.5, 0.3, 0.2 } do t.share(counts[i], n, p, names[i]) end
end

t.test("split_and_total_of_the_cpu_clock", function()
  math.randomseed(1)
  pulse.start { cpu_clock = "cpu", cpu_hz = 1000 }
  local before = host.cpu()
  burn_by_time(function() return pulse.status().samples >= by_runtime(4600) end)
  local spent = host.cpu() - before
  local profile = pulse.stop()
  check_split(profile, { "half", "third", "fifth" }, by_runtime(4500))
  local total = profile:stats().cpu_inclusive_ns_total * 1e-9
  t.between(total / spent, 0.95, 1.05, "profiled CPU time by getrusage")
  t.equal(profile:stats().dropped, 0, "dropped")
end)

-- Beside a profile of the heap, where one of the three does nothing but allocate. Each looks at the clock every ten microseconds or so: in one
-- that did it more often more of the time would be the kernel's, of which there are fewer and heavier samples.
local TEN = t.is_luajit and 30000 or 2000
local function computes(moment) while clock() < moment do for _ = 1, TEN do end end return moment end
local function allocates(moment)
  local kept = {}
  while clock() < moment do for i = 1, 100 do kept[i % 16] = { i } end end
  return moment
end
local function computes_too(moment) while clock() < moment do for _ = 1, TEN do end end return moment end

-- The profile of so many seconds of CPU time beside the heap, and the share of it that is in the profile.
local function beside_the_heap(options, seconds)
  options.cpu, options.cpu_hz = "sampling", 1000
  math.randomseed(1)
  pulse.start(options)
  local before = host.cpu()
  local moment = clock()
  local last = moment + seconds
  while clock() < last do
    moment = clock()
    for _ = 1, 50 do
      local unit = 50e-6 + math.random() * 300e-6
      moment = computes(moment + 5 * unit)
      moment = allocates(moment + 3 * unit)
      moment = computes_too(moment + 2 * unit)
    end
  end
  local spent = host.cpu() - before
  local profile = pulse.stop()
  return profile, profile:stats().cpu_inclusive_ns_total * 1e-9 / spent
end

local function samples_beside(profile)
  local counts, n = {}, 0
  for i, name in ipairs { "computes", "allocates", "computes_too" } do
    counts[i] = t.row(profile, name).cum
    n = n + counts[i]
  end
  t.truthy(n >= 100, "samples in the three functions: " .. n)
  return counts, n
end

t.test("split_of_the_cpu_clock_beside_heap_sampling", function()
  local profile, told = beside_the_heap({ heap = "sampling" }, 1)
  local counts, n = samples_beside(profile)
  for i, p in ipairs { 0.5, 0.3, 0.2 } do t.share(counts[i], n, p, "function " .. i) end
  t.between(told, 0.85, 1.15, "profiled CPU time by getrusage") -- of one second, of which a tick on a busy machine may be some hundredths
  t.between(profile:stats().dropped, 0, n / 25, "ticks in the allocator's wrapper") -- one in a hundred on LuaJIT, which makes most blocks
  t.truthy(profile:stats().heap_alloc_objects_total > 10000, "blocks were seen")
end)

-- Ticks in the wrapper's own work are dropped, and their time is on the next sample, which may be another function's.
t.test("split_of_the_cpu_clock_beside_heap_tracing", function()
  local profile, told = beside_the_heap({ heap = "tracing" }, 1)
  local counts, n = samples_beside(profile)
  local dropped = profile:stats().dropped
  t.truthy(dropped > n / 100, "ticks in the allocator's wrapper: " .. dropped)
  t.between(counts[2] / n, 0, 0.3 + 4 * sqrt(0.3 * 0.7 / n), "share of what allocates")
  t.share(counts[1], counts[1] + counts[3], 5 / 7, "of what does not, the first")
  -- of the ticks, all that were dropped are missing where it allocates
  t.share(counts[2] + dropped, n + dropped, 0.3, "share of what allocates, with what was dropped")
  t.between(told, 0.85, 1.15, "profiled CPU time by getrusage")
end)

-- By instructions: the same loop three times.
local function five(n) local x = 0 for i = 1, n do x = x + i % 7 end return x end
local function three(n) local x = 0 for i = 1, n do x = x + i % 7 end return x end
local function two(n) local x = 0 for i = 1, n do x = x + i % 7 end return x end

local function burn_by_instructions(rounds)
  for _ = 1, rounds do
    five(500)
    three(300)
    two(200)
  end
end

t.test("split_on_the_instructions_clock", function()
  for seed = 1, 3 do
    local profile = t.profile(t.exact(1000, { seed = seed }), burn_by_instructions, 2500)
    check_split(profile, { "five", "three", "two" }, 4500)
  end
end)

-- -- totals of the instructions clock -------------------------------------------------------------------------------------

local function count_instructions(body, ...)
  local count = 0
  if t.is_luajit then jit.off() jit.flush() end
  debug.sethook(function() count = count + 1 end, "", 1)
  body(...)
  debug.sethook()
  if t.is_luajit then jit.on() end
  return count
end

-- Each sample stands for the mean gap, so the total is a count of samples: of n instructions, n / mean with a sigma of its root.
t.test("instructions_agree_with_a_count_hook", function()
  local mean = 100
  local executed = count_instructions(burn_by_instructions, 300)
  local expected = executed / mean
  for seed = 1, 5 do
    local stats = t.profile(t.exact(mean, { seed = seed }), burn_by_instructions, 300):stats()
    t.between(stats.cpu_inclusive_samples_total, expected - 4 * sqrt(expected), expected + 4 * sqrt(expected), "samples")
    t.equal(stats.cpu_inclusive_instructions_total, stats.cpu_inclusive_samples_total * mean, "instructions")
  end
end)

-- Coroutines too short for a gap of their own are still counted: each has the same chance for each instruction.
t.test("short_coroutines_are_not_lost", function()
  local mean, coroutines = 300, 3000
  local function short() local x = 0 for i = 1, 20 do x = x + i % 7 end return x end
  local function body() for _ = 1, coroutines do coroutine.wrap(short)() end end
  local one = count_instructions(short)
  local samples = 0
  for seed = 1, 5 do
    local profile = t.profile(t.exact(mean, { seed = seed }), body)
    for _, sample in ipairs(profile:samples()) do
      if sample.stack[1].defined == debug.getinfo(short, "S").linedefined then samples = samples + sample.samples end
    end
  end
  local expected = 5 * coroutines * one / mean
  -- a count hook sees a handful of instructions around the call that are not the function's
  t.between(samples, expected * (one - 6) / one - 4 * sqrt(expected), expected + 4 * sqrt(expected), "samples in short coroutines")
end)

t.test("a_rate_limit_loses_samples_but_no_instructions", function()
  local mean = 500
  pulse.start(t.exact(mean, { cpu_max_samples_per_sec = 1000 }))
  local rounds = 0
  repeat
    burn_by_instructions(10)
    rounds = rounds + 10
  until pulse.status().samples >= 100
  local stats = pulse.stop():stats()
  t.truthy(stats.rate_limited > stats.cpu_inclusive_samples_total, "more were lost than taken: " .. stats.rate_limited)
  -- kept samples carry the weight of those that were not. The bound is not derived: over 30 seeds the ratio had a sigma of 0.09
  -- to 0.12, of which this is four.
  local executed = count_instructions(burn_by_instructions, rounds)
  t.between(stats.cpu_inclusive_instructions_total / executed, 0.5, 1.5, "instructions of the profile by instructions executed")
end)

-- -- gaps are exponential -------------------------------------------------------------------------------------------------

-- A function whose every line is one instruction: the line of a sample is the number of instructions before it.
local function straight_line(lines)
  return assert((loadstring or load)("local x\n" .. ("x=1\n"):rep(lines) .. "return", "=straight"))
end

-- Upper tail of the chi-square distribution by Wilson and Hilferty: good to a few per cent of the exponent far out.
local function chi_square_too_big(value, degrees)
  local z = ((value / degrees) ^ (1 / 3) - (1 - 2 / (9 * degrees))) / sqrt(2 / (9 * degrees))
  return z > 4.27 -- once in 100,000
end

local function gaps_of(profile, count)
  local lines = {}
  for _, sample in ipairs(profile:samples()) do
    local leaf = sample.stack[1]
    if leaf.file == "straight" and leaf.line > 1 and leaf.line <= count + 1 then
      t.equal(sample.samples, 1, "samples on one instruction")
      lines[#lines + 1] = leaf.line
    end
  end
  table.sort(lines)
  local gaps = {}
  for i = 2, #lines do
    gaps[#gaps + 1] = lines[i] - lines[i - 1]
  end
  return gaps
end

local function check_geometric(gaps, mean)
  local q, bins = 1 - 1 / mean, 40
  -- bins of about equal chance on 1, 2, 3 …: bin i ends at ends[i]
  local ends, last = {}, 0
  for i = 1, bins - 1 do
    local at = floor(math.log(1 - i / bins) / math.log(q) + 0.5)
    if at > last then ends[#ends + 1], last = at, at end
  end
  ends[#ends + 1] = math.huge
  local counts = {}
  for _, gap in ipairs(gaps) do
    local bin = 1
    while gap > ends[bin] do bin = bin + 1 end
    counts[bin] = (counts[bin] or 0) + 1
  end
  local chi, from = 0, 0
  for bin, to in ipairs(ends) do
    local expected = #gaps * (q ^ from - (to == math.huge and 0 or q ^ to))
    chi = chi + ((counts[bin] or 0) - expected) ^ 2 / expected
    from = to
  end
  if chi_square_too_big(chi, #ends - 1) then
    error(("gaps are not exponential: chi-square %.1f with %d degrees of freedom"):format(chi, #ends - 1), 2)
  end
end

t.test("gaps_are_exponential", function()
  local lines, mean = 200000, 50
  local body = straight_line(lines)
  for _, seed in ipairs { 20, 0 } do
    local gaps = gaps_of(t.profile(t.exact(mean, { seed = seed }), body), lines)
    t.between(#gaps, lines / mean - 4 * sqrt(lines / mean), lines / mean + 4 * sqrt(lines / mean), "gaps")
    check_geometric(gaps, mean)
    -- neighbours know nothing of each other: the correlation of n pairs has a sigma of 1 / sqrt n
    local sum, square, product = 0, 0, 0
    for i = 1, #gaps do sum, square = sum + gaps[i], square + gaps[i] ^ 2 end
    local average = sum / #gaps
    for i = 2, #gaps do product = product + (gaps[i] - average) * (gaps[i - 1] - average) end
    local correlation = product / (square - #gaps * average ^ 2)
    t.between(abs(correlation) * sqrt(#gaps), 0, 4, "correlation of neighbouring gaps in sigmas")
  end
end)

t.test("a_wrong_distribution_would_be_seen", function()
  local regular, mean = {}, 50
  for i = 1, 4000 do regular[i] = 25 + i % 51 end -- jitter instead of exponential gaps
  t.fails("not exponential", check_geometric, regular, mean)
end)

t.test("a_mean_of_one_samples_every_instruction", function()
  local gaps = gaps_of(t.profile(t.exact(1), straight_line(100)), 100)
  t.equal(#gaps, 99, "gaps")
  for _, gap in ipairs(gaps) do t.equal(gap, 1, "gap") end
end)

-- -- reproducible -----------------------------------------------------------------------------------------------------------

-- Stacks and numbers of a profile as text that does not depend on the order of tables.
local function fingerprint(profile)
  local rows = {}
  for _, sample in ipairs(profile:samples()) do
    local row = { sample.samples, sample.vm_instructions }
    for _, frame in ipairs(sample.stack) do row[#row + 1] = frame.name .. "@" .. frame.file .. ":" .. frame.line end
    rows[#rows + 1] = table.concat(row, " ")
  end
  table.sort(rows)
  return table.concat(rows, "\n")
end

t.test("the_same_seed_gives_the_same_profile", function()
  local prints = {}
  for i, seed in ipairs { 7, 7, 8 } do
    prints[i] = fingerprint(t.profile(t.exact(300, { seed = seed }), burn_by_instructions, 200))
  end
  t.equal(prints[1], prints[2], "the second profile of seed 7")
  t.truthy(prints[1] ~= prints[3], "another seed gives another profile")
end)

-- -- a periodic program -------------------------------------------------------------------------------------------------------

-- Two phases of 20 ms by CPU time, sampled every 40 ms. A multiple of 8 ms, because kernels look at CPU timers at their own tick
-- only (here every 4 ms): whatever the phase of that tick, half of its moments fall into each phase of the program.
local function black(moment) while clock() < moment do end return moment end
local function white(moment) while clock() < moment do end return moment end

t.test("a_periodic_program_does_not_lock_the_cpu_clock", function()
  pulse.start { cpu_clock = "cpu", cpu_hz = 25 }
  local moment = clock()
  while pulse.status().samples < by_runtime(200) do moment = white(black(moment + 0.020) + 0.020) end
  local profile = pulse.stop()
  local a, b = t.row(profile, "black").cum, t.row(profile, "white").cum
  t.truthy(a + b >= by_runtime(190), "samples in the two phases: " .. a + b)
  t.share(a, a + b, 0.5, "the first phase")
end)

-- The loop is as long as the mean gap, in two halves of the same length.
t.test("a_periodic_program_does_not_lock_the_instructions_clock", function()
  local body = (loadstring or load)("local x for i = 1, 4600 do\n" .. ("x=1 "):rep(500) .. "\n" .. ("x=2 "):rep(500) .. "\nend", "=periodic")
  local first, second = 0, 0
  for _, sample in ipairs(t.profile(t.exact(1000), body):samples()) do
    if sample.stack[1].file == "periodic" and sample.stack[1].line == 2 then first = first + sample.samples end
    if sample.stack[1].file == "periodic" and sample.stack[1].line == 3 then second = second + sample.samples end
  end
  t.truthy(first + second >= 4500 - 4 * sqrt(4600), "samples")
  t.share(first, first + second, 0.5, "the first half of the loop")
end)

t.run()
