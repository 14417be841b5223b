-- The module's functions: what they take, what they refuse and in which words, what they return.
local t = require "t"
local pulse = require "luapulse"

local function work(n) local x = 0 for i = 1, n or 20000 do x = x + i % 7 end return x end

local function folder()
  local path = os.tmpname()
  os.remove(path)
  return path
end

local function read(path)
  local file = assert(io.open(path, "rb"))
  local text = file:read("*a")
  file:close()
  return text
end

-- -- options -----------------------------------------------------------------------------------------------------------------

t.test("unknown_options_are_errors", function()
  t.fails('unknown option "cpu_herz"', pulse.start, { cpu_herz = 100 })
  t.fails("cpu_hz", pulse.start, { cpu_herz = 100 }) -- the known ones are named
  t.fails('unknown option "hz"', pulse.start, { hz = 100 })
  t.fails('unknown option ""', pulse.start, { [""] = 100 })
  t.fails('unknown option "cpu,"', pulse.start, { ["cpu,"] = 100 })
  t.fails('unknown option "cpu, heap"', pulse.start, { ["cpu, heap"] = 100 })
  t.fails("unknown option", pulse.start, { ["cpu_hz\0"] = 100 })
  t.fails("options are named", pulse.start, { "cpu" })
  t.fails("table expected", pulse.start, "cpu")
  t.fails("table expected", pulse.start, 100)
  t.equal(pulse.status().running, false, "running")
end)

t.test("impossible_values_are_errors", function()
  for _, case in ipairs {
    { { cpu = "tracking" }, 'option cpu must be "sampling"', '"tracking"' },
    { { cpu = true }, "option cpu must be", "boolean" },
    { { cpu = 1 }, "option cpu must be", "1" },
    { { heap = 3 }, "option heap must be", "3" },
    { { cpu = false }, "nothing to profile" },
    { { cpu_clock = "sundial" }, 'option cpu_clock must be "cpu", "wall" or "instructions"', '"sundial"' },
    { { cpu_clock = 1 }, "option cpu_clock must be", "1" },
    { { cpu_engine = "steam" }, 'option cpu_engine must be "auto", "walk" or "interface"', '"steam"' },
    { { cpu_engine = 1 }, "option cpu_engine must be", "1" },
    { { cpu_engine = true }, "option cpu_engine must be", "boolean" },
    { { layout = 5 }, "option layout must be the name of a layout file", "5" },
    { { layout = {} }, "option layout must be the name of a layout file", "table" },
    { { layout = "no/such.layout" }, "stacks cannot be walked here: layout file no/such.layout: cannot be read" },
    { { layout = "tests/agent/t.lua" }, "stacks cannot be walked here: layout file tests/agent/t.lua: " },
    { { layout = "src/walk/" .. (t.is_luajit and "puc" or "luajit") .. ".layout" }, "no layout in it is for this Lua" },
    { { cpu_hz = 0 }, "option cpu_hz must be a whole number from 1 to 10000", "got 0" },
    { { cpu_hz = -1 }, "option cpu_hz must be" },
    { { cpu_hz = 10001 }, "option cpu_hz must be", "10001" },
    { { cpu_hz = 99.5 }, "option cpu_hz must be a whole number", "99.5" },
    { { cpu_hz = "100" }, "option cpu_hz must be", '"100"' },
    { { cpu_hz = {} }, "option cpu_hz must be", "table" },
    { { cpu_hz = 0 / 0 }, "option cpu_hz must be" },
    { { cpu_hz = math.huge }, "option cpu_hz must be" },
    { { cpu_sample_mean_instr = 0 }, "option cpu_sample_mean_instr must be a whole number from 1" },
    { { cpu_sample_mean_instr = 1e10 }, "option cpu_sample_mean_instr must be" },
    { { cpu_max_samples_per_sec = -1 }, "option cpu_max_samples_per_sec must be a whole number from 0 (no limit)" },
    { { max_memory_bytes = 1000 }, "option max_memory_bytes must be", "at least 262144" },
    { { max_memory_bytes = 1e18 }, "option max_memory_bytes must be" },
    { { max_process_memory_bytes = 10 }, "option max_process_memory_bytes must be", "at least 262144" },
    { { heap_sample_mean_bytes = -5 }, "option heap_sample_mean_bytes must be" },
    { { heap = "sometimes" }, "option heap must be \"sampling\", \"tracing\" or false, got \"sometimes\"" },
    { { heap = "sampling", gc = "later" }, "option gc must be true, false or \"completed\", got \"later\"" },
    { { gc = true }, "gc is for the heap" },
    { { cpu = false, heap = false }, "nothing to profile" },
    { { cpu = "sampling", cpu_clock = "wall", cpu_engine = "interface", heap = "sampling" }, "the wall clock walks stacks" },
    { { seed = -1 }, "option seed must be" },
    { { seed = "x" }, "option seed must be" },
  } do
    for i = 2, #case do t.fails(case[i], pulse.start, case[1]) end
    t.fails("luapulse: ", pulse.start, case[1])
    t.equal(pulse.status().running, false, "running after " .. case[2])
  end
end)

-- Given options that a metamethod makes up as they are read, when those read later let the collector run, then the name of the
-- layout file is still what was said.
t.test("options_out_of_a_metamethod", function()
  local name, kept = "no/such/folder/", {}
  local made_up = { layout = function() return name .. ("q"):rep(60) .. #kept end }
  function made_up.seed()
    collectgarbage()
    collectgarbage()
    for i = 1, 200 do kept[i] = ("Z"):rep(50 + i % 60) .. i end -- where the name was
  end
  local options = setmetatable({}, { __index = function(_, key) return made_up[key] and made_up[key]() end })
  t.fails("layout file " .. name .. ("q"):rep(60) .. "0: cannot be read", pulse.start, options)
end)

t.test("a_budget_too_small_for_the_tables", function()
  t.fails("max_process_memory_bytes (262144)", pulse.start, { max_process_memory_bytes = 262144 })
  t.equal(pulse.status().running, false, "running")
  pulse.start() -- nothing is left behind that would be in the way
  pulse.stop()
end)

t.test("start_twice_and_stop_without_start", function()
  t.fails("this VM is not being profiled; call start first", pulse.stop)
  t.fails("call start first", pulse.snapshot)
  t.fails("call start first", pulse.pause)
  t.fails("call start first", pulse.resume)
  t.fails("call start first", pulse.labels, { a = "b" })
  pulse.start()
  t.fails("this VM is being profiled already; call stop first", pulse.start)
  t.fails("unknown option", pulse.start, { nonsense = 1 })
  t.equal(pulse.status().running, true, "running")
  pulse.stop()
  t.fails("call start first", pulse.stop)
end)

t.test("defaults", function()
  pulse.start()
  local profile = pulse.stop()
  local stats = profile:stats()
  t.equal(stats.period, 10000000, "period: 100 Hz in nanoseconds")
  t.contains(stats.comments[1], "cpu clock at 100 Hz", "comment")
  t.contains(stats.comments[1], "luapulse " .. pulse.version, "comment")
  pulse.start { cpu_clock = "instructions" }
  stats = pulse.stop():stats()
  t.equal(stats.period, 20000, "mean gap")
  t.contains(stats.comments[1], "at most 200 samples a second", "comment")
  pulse.start { cpu = "sampling", heap = false, seed = 9007199254740 }
  pulse.stop()
end)

-- -- status --------------------------------------------------------------------------------------------------------------------

t.test("status", function()
  local status = pulse.status()
  t.equal(status.running, false, "running")
  t.equal(status.samples, nil, "samples")
  pulse.start(t.exact())
  work()
  status = pulse.status()
  t.equal(status.running, true, "running")
  t.equal(status.paused, false, "paused")
  t.equal(status.engine, "count", "engine")
  t.truthy(status.samples > 300, "samples")
  for _, field in ipairs { "overflow", "truncated", "unattributed", "dropped", "rate_limited" } do
    t.equal(status[field], 0, field)
  end
  t.between(status.memory_bytes, 1, 33554432, "memory_bytes")
  t.equal(status.source, "", "source: nothing ticks")
  t.equal(status.rate, 0, "rate")
  t.equal(status.note, "", "note")
  t.equal(next(status.rejects), nil, "rejects")
  pulse.stop()
  t.equal(pulse.status().running, false, "running")
end)

-- Whatever this machine has, the rate is that of what ticks.
local function check_source(status, asked)
  t.truthy(status.source == "perf" or status.source == "timer", "source " .. status.source)
  if status.source == "perf" then t.equal(status.rate, asked, "rate of perf events") end
  t.between(status.rate, 1, asked, "rate")
end

-- No fallback: this is the test that fails when the walker does not know a runtime any more.
t.test("every_runtime_is_walked_by_default", function()
  for _, options in ipairs { {}, { cpu_clock = "cpu" }, { cpu_engine = "auto" }, { cpu_engine = "walk", cpu_hz = 1000 } } do
    pulse.start(options)
    local status = pulse.status()
    t.equal(status.engine, "walk", "engine (" .. tostring(status.note) .. ")")
    t.equal(status.note, "", "note")
    check_source(status, options.cpu_hz or 100)
    t.burn_samples(10)
    status = pulse.status()
    local profile = pulse.stop()
    t.contains(profile:stats().comments[1], "engine walk", "comment")
    t.truthy(t.row(profile, "t.burn").cum >= 8, "samples in t.burn in\n" .. profile:folded())
    -- rejects are what was seen and could not be told
    local rejects = 0
    for reason, count in pairs(status.rejects) do
      t.truthy(type(reason) == "string" and #reason > 0 and count > 0, "a reject has a reason")
      rejects = rejects + count
    end
    t.equal(rejects, status.unattributed, "rejects by reason, in all")
  end
  pulse.start()
  t.equal(pulse.status().engine, "walk", "engine with no options")
  pulse.stop()
end)

-- The kernel's own tick gives 250; a sanitizer makes samples dear, and the throttle may act.
t.test("perf_events_reach_1_khz", function()
  if t.sanitized then return end
  pulse.start { cpu_hz = 1000, cpu_max_samples_per_sec = 0 }
  local start = os.clock()
  t.burn(0.4)
  local spent, status = os.clock() - start, pulse.status()
  pulse.stop()
  if status.source ~= "perf" then return end
  t.between(status.samples / spent, 800, 1200, "samples in a second of CPU time")
end)

t.test("the_interface_when_asked_for", function()
  pulse.start { cpu_engine = "interface", cpu_hz = 200 }
  local status = pulse.status()
  t.equal(status.engine, t.is_luajit and "luajit" or "hook", "engine")
  t.equal(status.note, "", "note: nobody asked for a walk")
  check_source(status, 200)
  t.burn_samples(5)
  local profile = pulse.stop()
  t.contains(profile:stats().comments[1], t.is_luajit and "engine luajit" or "engine hook", "comment")
  t.truthy(t.row(profile, "t.burn").cum > 0, "samples in t.burn")
end)

-- -- pause, snapshot --------------------------------------------------------------------------------------------------------------

local function before_pause() return work(20000) end
local function while_paused() local x = 0 for i = 1, 200000 do x = x + i % 5 end return x end
local function after_pause() return work(20000) end

t.test("time_while_paused_is_not_counted", function()
  local whole = t.profile(t.exact(), function() before_pause() after_pause() end):stats().cpu_inclusive_instructions_total
  pulse.start(t.exact())
  before_pause()
  pulse.pause()
  t.equal(pulse.status().paused, true, "paused")
  pulse.pause() -- again is no harm
  local samples = pulse.status().samples
  while_paused()
  t.equal(pulse.status().samples, samples, "samples taken while paused")
  pulse.resume()
  pulse.resume()
  t.equal(pulse.status().paused, false, "paused")
  after_pause()
  local profile = pulse.stop()
  t.equal(t.functions(profile)["while_paused"], nil, "the function that ran while paused")
  -- what ran since the last sample is forgotten at the pause and at the end: 15 means are never reached
  t.between(profile:stats().cpu_inclusive_instructions_total, whole - 2 * 1500, whole + 1500, "instructions")
end)

t.test("time_while_paused_is_not_counted_on_the_cpu_clock", function()
  for _, engine in ipairs { "walk", "interface" } do
    pulse.start { cpu_hz = 500, cpu_engine = engine }
    t.burn(0.2)
    pulse.pause()
    while_paused()
    t.burn(0.6)
    pulse.resume()
    t.burn(0.2)
    local profile = pulse.stop()
    t.equal(t.functions(profile)["while_paused"], nil, "the function that ran while paused")
    -- 0.4 s were to be counted, of 1 s; what came after the last tick before each end is not, and on a loaded machine the kernel
    -- may leave out many ticks
    t.between(profile:stats().cpu_inclusive_ns_total, 0.05e9, 0.45e9, "time by " .. engine)
  end
end)

t.test("stop_while_paused", function()
  pulse.start(t.exact())
  work()
  pulse.pause()
  work()
  t.truthy(pulse.stop():stats().cpu_inclusive_samples_total > 300, "samples")
  pulse.start(t.exact()) -- a new session is not paused
  work()
  t.truthy(pulse.stop():stats().cpu_inclusive_samples_total > 300, "samples")
end)

t.test("snapshots_while_it_runs", function()
  pulse.start(t.exact())
  local last = 0
  for _ = 1, 10 do
    work()
    local total = pulse.snapshot():stats().cpu_inclusive_samples_total
    t.truthy(total > last + 300, "samples grow: " .. total)
    last = total
  end
  local kept = pulse.snapshot()
  local before = kept:folded()
  work()
  t.equal(kept:folded(), before, "a snapshot stays as it was")
  t.truthy(pulse.stop():stats().cpu_inclusive_samples_total > last + 300, "samples at the end")
  t.equal(kept:folded(), before, "a snapshot outlives the session")
end)

-- -- labels --------------------------------------------------------------------------------------------------------------------------

-- Samples with that label, and all samples.
local function labelled(profile, key, value)
  local count, all = 0, 0
  for _, sample in ipairs(profile:samples()) do
    all = all + sample.samples
    if sample.labels[key] == value then count = count + sample.samples end
  end
  return count, all
end

t.test("labels_hold_until_changed", function()
  pulse.start(t.exact())
  work()
  pulse.labels { request = "checkout", user = 7, gold = true }
  work(40000)
  pulse.labels { request = "search" }
  work(60000)
  pulse.labels()
  work()
  pulse.labels { a = "" }
  pulse.labels {}
  work()
  local profile = pulse.stop()
  local per_work = 3 * 20000 / 100 -- instructions by the mean gap, at least
  t.between(labelled(profile, "request", "checkout"), 1.8 * per_work, 3 * per_work, "checkout")
  t.between(labelled(profile, "request", "search"), 2.7 * per_work, 4.5 * per_work, "search")
  t.equal(labelled(profile, "user", "7"), labelled(profile, "request", "checkout"), "a number")
  t.equal(labelled(profile, "gold", "true"), labelled(profile, "request", "checkout"), "a boolean")
  t.between(labelled(profile, "request", nil), 2.7 * per_work, 4.5 * per_work, "without")
end)

t.test("labels_belong_to_coroutines", function()
  pulse.start(t.exact())
  pulse.labels { who = "main" }
  local function task(name)
    return coroutine.wrap(function()
      pulse.labels { who = name }
      for _ = 1, 5 do work() coroutine.yield() end
    end)
  end
  local one, two = task("one"), task("two")
  local none = coroutine.wrap(function() for _ = 1, 5 do work() coroutine.yield() end end)
  for _ = 1, 5 do one() two() none() work() end
  local profile = pulse.stop()
  local _, all = labelled(profile, "who", "main")
  for _, who in ipairs { "main", "one", "two" } do t.between(labelled(profile, "who", who) / all, 0.2, 0.3, who) end
  t.between(labelled(profile, "who", nil) / all, 0.2, 0.3, "none")
end)

-- A walk finds the labels by the address of the coroutine, so it is put to the same tests: until 100 samples are in work.
local WALK = { cpu_hz = 1000, cpu_engine = "walk" }

t.test("labels_belong_to_coroutines_when_walked", function()
  pulse.start(WALK)
  pulse.labels { who = "main" }
  local function task(name)
    return coroutine.wrap(function()
      if name then pulse.labels { who = name } end
      while true do work(100000) coroutine.yield() end
    end)
  end
  local one, two, none = task("one"), task("two"), task()
  repeat one() two() none() work(100000) until pulse.status().samples >= 400
  local profile = pulse.stop()
  local _, all = labelled(profile, "who", "main")
  -- a quarter of 400: 4 sigma are 0.09
  for _, who in ipairs { "main", "one", "two" } do t.between(labelled(profile, "who", who) / all, 0.16, 0.34, who) end
  t.between(labelled(profile, "who", nil) / all, 0.16, 0.34, "none")
end)

t.test("labels_of_thousands_of_coroutines_when_walked", function()
  pulse.start(WALK)
  local tasks = {}
  for i = 1, 1500 do
    tasks[i] = coroutine.wrap(function() pulse.labels { task = i } while true do work(2000) coroutine.yield(i) end end)
  end
  repeat for i = 1, #tasks do tasks[i]() end until pulse.status().samples >= 300
  local profile = pulse.stop()
  local with, distinct = 0, {}
  for _, sample in ipairs(profile:samples()) do
    local task = sample.labels.task
    if task then
      with = with + sample.samples
      t.between(tonumber(task), 1, 1500, "label")
      distinct[task] = true
    end
  end
  local count = 0
  for _ in pairs(distinct) do count = count + 1 end
  t.truthy(with > 200 and count > 100, "samples with labels: " .. with .. " of " .. count .. " coroutines")
end)

t.test("a_new_coroutine_has_no_labels_of_a_dead_one", function()
  for _, options in ipairs { t.exact(), WALK } do
    pulse.start(options)
    local rounds = 0
    repeat -- addresses of collected coroutines are used again
      rounds = rounds + 1
      coroutine.wrap(function() pulse.labels { dead = "yes" } end)()
      collectgarbage()
      coroutine.wrap(function() work(options == WALK and 50000 or 2000) end)()
    until rounds >= 200 and pulse.status().samples >= 100
    local profile = pulse.stop()
    local dead, seen = 0, 0
    for _, sample in ipairs(profile:samples()) do
      local in_work = false
      for _, frame in ipairs(sample.stack) do in_work = in_work or frame.name == "work" end
      if in_work then seen = seen + sample.samples end
      if in_work and sample.labels.dead then dead = dead + sample.samples end
    end
    t.truthy(seen > 30, "samples in work: " .. seen)
    t.equal(dead, 0, "samples with the label of a dead coroutine")
  end
end)

t.test("labels_end_with_the_session", function()
  for _, options in ipairs { t.exact(), WALK } do
    pulse.start(options)
    pulse.labels { old = "yes" }
    pulse.stop()
    local profile = t.profile(options, function() repeat work() until pulse.status().samples >= 10 end)
    t.equal(labelled(profile, "old", "yes"), 0, "samples with the label of the last session")
  end
end)

t.test("bad_labels", function()
  pulse.start(t.exact())
  t.fails("labels are strings, numbers or booleans, got a table", pulse.labels, { a = {} })
  t.fails("labels are strings, numbers or booleans, got a function", pulse.labels, { [print] = "x" })
  t.fails("a label holds a NUL byte", pulse.labels, { a = "x\0y" })
  t.fails("table expected", pulse.labels, "request")
  local many = {}
  for i = 1, 33 do many["key" .. i] = i end
  t.fails("at most 32 labels", pulse.labels, many)
  many.key33 = nil
  pulse.labels(many)
  work()
  local profile = pulse.stop()
  t.truthy(labelled(profile, "key32", "32") > 300, "samples with 32 labels")
end)

-- -- the profile object --------------------------------------------------------------------------------------------------------------

t.test("writing_by_extension", function()
  local profile = t.profile(t.exact(), function() return (work()) end)
  local base = folder()
  for extension, start in pairs {
    ["pb.gz"] = "\31\139",
    ["folded"] = "# luapulse folded",
    ["speedscope.json"] = "{",
    ["callgrind"] = "# callgrind format",
    ["html"] = "<!",
    ["txt"] = "",
  } do
    local path = base .. "." .. extension
    profile:write(path)
    local text = read(path)
    os.remove(path)
    t.equal(text:sub(1, #start), start, "the beginning of " .. extension)
    t.truthy(#text > 50, extension .. " has " .. #text .. " bytes")
    if extension ~= "pb.gz" then t.contains(text, "work", extension) end
  end
  profile:write(base .. ".anything", "folded")
  t.equal(read(base .. ".anything"), profile:folded(), "the file of a named format")
  os.remove(base .. ".anything")
end)

t.test("writing_that_fails", function()
  local profile = t.profile(t.exact(), work)
  t.fails("names no format; use .pb.gz", function() profile:write("profile.doc") end)
  t.fails("names no format", function() profile:write("profile") end)
  t.fails("'gif' is not a format", function() profile:write("profile.pb.gz", "gif") end)
  t.fails("/no/such/folder", function() profile:write("/no/such/folder/profile.pb.gz") end)
  t.fails("string expected", function() profile:write() end)
  t.equal(io.open("profile.doc"), nil, "a file of a failed write")
end)

t.test("views_agree_with_each_other", function()
  local function inner() return work(30000) end
  local profile = t.profile(t.exact(), function() for _ = 1, 3 do local x = inner() work(x % 3 + 1000) end end)
  local stats, samples, top = profile:stats(), profile:samples(), profile:top(0)
  t.equal(stats.stacks, #samples, "stacks")
  local count, instructions, flat, by_name = 0, 0, 0, {}
  for _, sample in ipairs(samples) do
    t.truthy(sample.samples > 0 and #sample.stack > 0, "a sample has a stack")
    count, instructions = count + sample.samples, instructions + sample.vm_instructions
    local leaf = sample.stack[1]
    by_name[leaf.name] = (by_name[leaf.name] or 0) + sample.vm_instructions
  end
  t.equal(count, stats.cpu_inclusive_samples_total, "samples")
  t.equal(instructions, stats.cpu_inclusive_instructions_total, "instructions")
  local last = math.huge
  for _, row in ipairs(top) do
    flat = flat + row.flat
    t.equal(row.flat, by_name[row.name] or 0, "flat of " .. row.name)
    t.truthy(row.cum >= row.flat and row.cum <= instructions, "cum of " .. row.name)
    t.between(row.flat_percent - 100 * row.flat / instructions, -0.001, 0.001, "percent")
    t.truthy(row.flat <= last, "top is sorted by flat")
    last = row.flat
  end
  t.equal(flat, instructions, "sum of flat")
  local folded = 0
  for line in profile:folded():gmatch("[^\n]+") do
    if line:sub(1, 1) ~= "#" then folded = folded + tonumber(line:match(" (%d+)$")) end
  end
  t.equal(folded, instructions, "sum of folded")
  t.truthy(stats.duration_ns > 0, "duration")
  t.truthy(stats.functions >= #top, "functions")
end)

t.test("top", function()
  local profile = t.profile(t.exact(), function() return (work()) end)
  local top = profile:top(1)
  t.equal(#top, 1, "rows")
  t.equal(top[1].name, "work", "name")
  t.truthy(#profile:top() <= 10, "ten rows unless told")
  local text = tostring(profile:top(5))
  t.contains(text, top[1].name, "text")
  t.contains(text, "flat", "text")
  t.equal(tostring(profile:top(5)), text, "the same again")
  t.contains(tostring(profile), "luapulse profile: ", "the profile itself as text")
end)

t.test("a_profile_without_samples", function()
  pulse.start { cpu_clock = "instructions", cpu_sample_mean_instr = 1000000000 }
  local profile = pulse.stop()
  t.equal(#profile:samples(), 0, "samples")
  t.equal(#profile:top(), 0, "rows")
  t.equal(profile:stats().cpu_inclusive_samples_total, 0, "total")
  t.truthy(tostring(profile:top(5)), "text")
  local path = folder() .. ".html"
  profile:write(path)
  os.remove(path)
end)

t.test("wrong_objects", function()
  local profile = t.profile(t.exact(), work)
  t.fails("luapulse.profile expected", profile.samples)
  t.fails("luapulse.profile expected", profile.top, {})
  t.fails("luapulse.profile expected", profile.write, io.stdout, "x.pb.gz")
  t.fails("luapulse.profile expected", profile.stats, "x")
end)

t.test("losses_are_in_every_view", function()
  local profile = t.profile(t.exact(100, { cpu_max_samples_per_sec = 1 }), work)
  local lost = profile:stats().rate_limited
  t.truthy(lost > 300, "rate_limited")
  t.contains(profile:folded(), "rate_limited=" .. lost, "folded")
  t.contains(tostring(profile:top()), tostring(lost), "top")
end)

t.run()
