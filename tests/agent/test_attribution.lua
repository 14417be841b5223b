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
  -- `outer` was called under another name (body) by t.profile: engines that ask Lua take the name of the first caller seen
  t.truthy(t.samples_with(profile, "body;loop") + t.samples_with(profile, "outer;loop") > 1000, "samples in loop by outer")
end)

-- The walker asks nobody: a function has the name its definition gives it, whoever calls it.
t.test("walked_functions_have_the_name_of_their_definition", function()
  local M = {}
  local function by_local() loop(100000) end
  function M.by_field() loop(100000) end
  function M:by_method() loop(100000) end
  local in_table = { by_key = function() loop(100000) end }
  local assigned
  assigned = function() loop(100000) end
  local chunk = (loadstring or load)("local loop = ...\nlocal function in_string() loop(100000) end\nreturn in_string", "=(load)")(loop)
  local text = (loadstring or load)("local loop = ...\nlocal function in_text() loop(100000) end\nreturn in_text")(loop)
  local called_as = { by_local, M.by_field, M.by_method, in_table.by_key, assigned, chunk, text, function() loop(100000) end }
  pulse.start { cpu_hz = 1000 }
  repeat for _, other_name in ipairs(called_as) do other_name() end until pulse.status().samples >= 400
  local profile = pulse.stop()
  for _, name in ipairs { "by_local", "M.by_field", "M:by_method", "by_key", "assigned", "in_text" } do
    t.truthy(t.row(profile, name).cum > 5, "samples in " .. name)
  end
  t.truthy(t.row(profile, place(called_as[8])).cum > 5, "samples in the function without a name")
  t.truthy(t.row(profile, "(load):2").cum > 5, "samples in the function whose text is gone")
  t.equal(t.functions(profile)["other_name"], nil, "the name of the call")
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
  local row = t.row(profile, "work") -- who calls it by which name is lost with the caller; its definition tells
  t.truthy(row.flat > 1000, "samples in the function that was tail-called: " .. row.flat)
  t.equal(t.samples_with(profile, "trampoline;work"), 0, "samples with the caller that is gone")
end)

-- Between calls of the hook engine's safe points a walk sees the line that runs: straight-line code is not charged to its end.
t.test("lines_on_the_cpu_clock", function()
  if t.is_luajit then jit.off() end -- a trace has no lines
  local cheap, dear = ("x = x + 1 "):rep(200), ("x = x + 1 "):rep(2000)
  local code = "local n = ...\nlocal x = 0\nfor i = 1, n do\n" .. cheap .. "\n" .. dear .. "\n" .. cheap .. "\nend\nreturn x"
  local body = (loadstring or load)(code, "=lines")
  pulse.start { cpu_hz = 1000 }
  repeat body(2000) until pulse.status().samples >= 1000
  local profile = pulse.stop()
  local lines, all = {}, 0
  for _, sample in ipairs(profile:samples()) do
    local leaf = sample.stack[1]
    if leaf.file == "lines" then
      lines[leaf.line] = (lines[leaf.line] or 0) + sample.samples
      all = all + sample.samples
    end
  end
  t.truthy(all > 900, "samples in the chunk: " .. all)
  -- 2000 of 2400 additions, and a loop's end, which takes as long as twelve of them: 0.833 with a sigma of 0.012, of which this is four; of a cheap
  -- line 0.083 with one of 0.009
  t.between((lines[5] or 0) / all, 0.786, 0.88, "share of the dear line")
  t.between((lines[4] or 0) / all, 0.048, 0.118, "share of the first cheap line")
  t.between((lines[6] or 0) / all, 0.048, 0.118, "share of the second")
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

local function deep(n) if n == 0 then return loop(50000) end return 1 + deep(n - 1) end

-- Of a stack that was cut the 1024 innermost frames are there, and it is counted.
local function check_cut(profile)
  local cut = 0
  for _, sample in ipairs(profile:samples()) do
    local stack = sample.stack
    t.truthy(#stack <= 1025, "frames: " .. #stack)
    if stack[#stack].name == "[truncated]" then
      t.equal(#stack, 1025, "frames of a stack that was cut, with its mark")
      -- those of its caller may be the last, while it is on its way down
      for depth = 2, 1000 do t.equal(stack[depth].name, "deep", "frame " .. depth) end
      cut = cut + sample.samples
    end
  end
  t.truthy(cut > 50, "stacks cut: " .. cut)
  t.equal(profile:stats().truncated, cut, "truncated")
end

t.test("deep_recursion_is_cut_and_counted", function()
  check_cut(t.profile(t.exact(1000), function() deep(5000) end))
end)

t.test("deep_recursion_is_cut_and_counted_when_walked", function()
  if t.is_luajit then jit.off() end -- a trace may stand for many calls
  pulse.start { cpu_engine = "walk", cpu_hz = 1000 }
  repeat deep(5000) until pulse.status().truncated > 50
  check_cut(pulse.stop())
end)

-- -- C functions ---------------------------------------------------------------------------------------------------------

-- the cpu clock sees inside C functions
local function on_the_cpu_clock(body, options)
  pulse.start(options or { cpu_hz = 500 })
  repeat body() until pulse.status().samples >= 40
  return pulse.stop()
end

local long, parts = ("x"):rep(200000), {}
for i = 1, 20000 do parts[i] = "part" end
local sink, numbers = io.open("/dev/null", "w"), {}
for i = 1, 100 do numbers[i] = i / 3 end

local C_FUNCTIONS = {
  { "string.rep", function() local s = ("abc"):rep(300000) return s end },
  { "string.find", function() local at = long:find("y", 1) or long:find("[yz]") return at end },
  { "table.concat", function() local s = table.concat(parts, ", ") return s end },
  -- of no module: a metatable of the registry has it
  { "file:write", function() for _ = 1, 10 do sink:write((table.unpack or unpack)(numbers)) end end },
}

t.test("c_functions_have_their_library_name", function()
  if t.is_luajit then jit.off() end -- compiled code calls no library: what it does is its own
  for _, case in ipairs(C_FUNCTIONS) do
    local name, body = case[1], case[2]
    local profile = on_the_cpu_clock(body)
    local row = t.functions(profile)[name]
    t.truthy(row and row.flat > 0, name .. " has samples of its own in\n" .. profile:folded())
    t.equal(row.file, "[C]", "file of " .. name)
    -- that is what the body does, all but the collection of its garbage, which is set going inside these functions too
    local all = profile:stats().cpu_inclusive_samples_total
    t.truthy(t.samples_with(profile, place(body) .. ";" .. name) > all * 0.6, name .. " is called by the body in\n" .. profile:folded())
  end
end)

-- No table leads to these, and the module may be loaded after the profiler has looked through all of them.
t.test("what_luajit_calls_c_functions_by", function()
  if not t.is_luajit then return end
  jit.off()
  local ffi = require "ffi"
  ffi.cdef "int abs(int);"
  local C, array = ffi.C, ffi.new("int[100]")
  pulse.start { cpu_hz = 500 }
  repeat
    for i = 0, 9999 do array[i % 100] = C.abs(array[99 - i % 100] - i) end
  until pulse.status().samples >= 200
  local profile = pulse.stop()
  for _, name in ipairs { "cdata.__call", "cdata.__index", "cdata.__newindex" } do
    t.truthy(t.functions(profile)[name], name .. " in\n" .. profile:folded())
  end
  jit.on()
end)

t.test("c_functions_by_the_interface", function()
  for _, case in ipairs(C_FUNCTIONS) do
    local name, body = case[1], case[2]
    local profile = on_the_cpu_clock(body, { cpu_hz = 250, cpu_engine = "interface" })
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

-- A module written in C: its functions have the names they have in package.loaded, without one that of their symbol or place.
t.test("c_functions_of_modules", function()
  local profile = on_the_cpu_clock(function() for _ = 1, 200 do host.fds() end end)
  t.truthy(t.row(profile, "host.fds").flat > 20, "samples in host.fds")
  t.equal(t.row(profile, "host.fds").file, "[C]", "file")
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

-- The profile of a function that burns 10 ms itself and sets off a collection that calls a finalizer of 10 ms, for so many samples;
-- and the CPU time spent.
local function profile_finalizers(samples, options)
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
  pulse.start(options)
  local before = host.cpu()
  repeat collector() until runs >= 40 and pulse.status().samples >= samples
  local spent = host.cpu() - before
  return pulse.stop(), spent
end

-- Seconds of CPU time with that function on the stack.
local function time_in(profile, name)
  local time = 0
  for _, sample in ipairs(profile:samples()) do
    for _, frame in ipairs(sample.stack) do
      if frame.name == name then time = time + sample.cpu break end
    end
  end
  return time * 1e-9
end

t.test("finalizers", function()
  local profile, spent = profile_finalizers(400, { cpu_hz = 500 })
  t.between(time_in(profile, "collector") / spent, 0.65, 1.1, "time of the collector, finalizers included, by CPU time")
  -- half of it: of 400 samples 4 sigma are 0.1
  t.between(time_in(profile, "finalize") / spent, 0.4, 0.6, "time of the finalizers by CPU time")
  t.truthy(t.samples_with(profile, "collector;collectgarbage;finalize;t.burn") > 100, "finalizers below who set them off in\n" .. profile:folded())
end)

-- Every Lua keeps debug hooks out of finalizers, LuaJIT also its profiler: asked by the interface, their time is seen after they have
-- returned, and goes to the function that set off the collection. None of it is lost.
t.test("finalizers_by_the_interface", function()
  local profile, spent = profile_finalizers(50, { cpu_hz = 250, cpu_engine = "interface" })
  t.truthy(t.row(profile, "collector").cum > 20, "samples where the collection was set off")
  -- half would be missing; what goes on after the last tick is, and ticks of a busy machine are few
  t.between(time_in(profile, "collector") / spent, 0.65, 1.1, "time of the collector, finalizers included, by CPU time")
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
  local total = t.row(profile, "innermost").cum
  t.truthy(total > 200, "samples in the innermost coroutine")
  for _, sample in ipairs(profile:samples()) do
    local path = {}
    for _, frame in ipairs(sample.stack) do path[#path + 1] = frame.name end
    local text = table.concat(path, " ") .. " "
    if sample.stack[1].name == "loop" then
      t.contains(text, "innermost", "stack of the innermost coroutine")
      t.equal(text:find("middle", 1, true) ~= nil, not t.is_luajit, "its resumer is below")
      t.equal(text:find("outermost", 1, true) ~= nil, not t.is_luajit, "… and that one's")
      t.equal(text:find("main chunk", 1, true) ~= nil, not t.is_luajit, "… down to the main chunk")
    end
  end
end)

-- The samples of a coroutine that burns CPU time.
local function profile_worker(options)
  local function worker() while true do t.burn(0.002) coroutine.yield() end end
  pulse.start(options)
  local step = coroutine.wrap(worker)
  repeat step() until pulse.status().samples >= 30
  local profile = pulse.stop()
  local samples = t.samples_with(profile, "t.burn")
  t.truthy(samples > 20, "samples in the coroutine")
  t.equal(t.samples_with(profile, "worker;t.burn"), samples, "all of them below its function")
  return profile, samples
end

t.test("coroutines_on_the_cpu_clock", function()
  local profile, samples = profile_worker { cpu_hz = 500 }
  t.equal(t.samples_with(profile, "coroutine.wrap;worker;t.burn"), samples, "… and below what resumed it")
end)

t.test("coroutines_by_the_interface", function()
  profile_worker { cpu_hz = 250, cpu_engine = "interface" }
end)

t.test("resumers_on_the_cpu_clock", function()
  local function innermost() while true do t.burn(0.002) coroutine.yield() end end
  local function middle() local step = coroutine.wrap(innermost) while true do step() coroutine.yield() end end
  local function outermost()
    local co = coroutine.create(middle)
    while true do assert(coroutine.resume(co)) coroutine.yield() end
  end
  pulse.start { cpu_hz = 500 }
  local step = coroutine.wrap(outermost)
  repeat step() until pulse.status().samples >= 60
  local profile = pulse.stop()
  local samples = t.samples_with(profile, "t.burn")
  t.truthy(samples > 45, "samples in the innermost coroutine: " .. samples)
  local path = "coroutine.wrap;outermost;coroutine.resume;middle;coroutine.wrap;innermost;t.burn"
  t.equal(t.samples_with(profile, path), samples, "samples below all resumers in\n" .. profile:folded())
  for _, sample in ipairs(profile:samples()) do
    local stack = sample.stack
    if stack[1].name == "t.burn" then t.equal(stack[#stack - 1].name, "main chunk", "the root, but for the interpreter's own frame") end
  end
end)

-- Whatever a program kept before start, the running coroutine is found, and all that resumed it: functions of the library in locals, functions
-- that coroutine.wrap made, coroutines that were under way.
t.test("what_was_kept_before_start", function()
  local create, resume, wrap, yield = coroutine.create, coroutine.resume, coroutine.wrap, coroutine.yield
  local function innermost() yield() while true do t.burn(0.002) yield() end end
  local step = wrap(innermost)
  local function middle() step() while true do yield() step() end end
  local co = create(middle)
  local function outermost() resume(co) while true do yield() assert(resume(co)) end end
  local outer = wrap(outermost)
  outer()
  pulse.start { cpu_hz = 1000 }
  repeat outer() until pulse.status().samples >= 60
  local profile = pulse.stop()
  local samples = t.samples_with(profile, "t.burn")
  t.truthy(samples > 45, "samples in the innermost coroutine: " .. samples)
  local path = "coroutine.wrap;outermost;coroutine.resume;middle;coroutine.wrap;innermost;t.burn"
  t.equal(t.samples_with(profile, path), samples, "samples below all resumers in\n" .. profile:folded())
  for _, sample in ipairs(profile:samples()) do
    local stack = sample.stack
    if stack[1].name == "t.burn" then t.equal(stack[#stack - 1].name, "main chunk", "the root, but for the interpreter's own frame") end
  end
end)

-- A program may keep anything under a name of the standard library: a C function with upvalues is not what stood there, and others may share
-- its code, as all functions of coroutine.wrap do.
t.test("coroutines_behind_a_name_of_the_library", function()
  local kept = _G.print
  _G.print = coroutine.wrap(function() while true do coroutine.yield() end end)
  local function worker() while true do loop(20000) coroutine.yield() end end
  local step = coroutine.wrap(worker)
  pulse.start { cpu_hz = 1000 }
  repeat step() until pulse.status().samples >= 100
  local profile = pulse.stop()
  _G.print = kept
  t.truthy(t.row(profile, "worker").cum > 50, "samples in the coroutine")
end)

-- LuaJIT's allocator aligns by 8, malloc() by 16: a resumer must be seen wherever it lies.
t.test("resumers_wherever_their_coroutines_lie", function()
  local kept, found = {}, {}
  local function middle(co)
    while true do assert(coroutine.resume(co)) coroutine.yield() end
  end
  for i = 1, 400 do -- kept, so that each lies elsewhere
    local co = coroutine.create(middle)
    local address = tostring(co):match("0x(%x+)")
    found[tonumber(address:sub(-1), 16)] = co
    kept[i] = { co, ("x"):rep(i) .. i }
  end
  local places = 0
  for remainder, co in pairs(found) do
    local function innermost() while true do t.burn(0.002) coroutine.yield() end end
    local inner = coroutine.create(innermost)
    pulse.start { cpu_hz = 500 }
    repeat assert(coroutine.resume(co, inner)) until pulse.status().samples >= 20
    local profile = pulse.stop()
    local samples = t.samples_with(profile, "t.burn")
    t.equal(t.samples_with(profile, "coroutine.resume;middle;coroutine.resume;innermost;t.burn"), samples,
      "samples below a resumer at remainder " .. remainder .. " in\n" .. profile:folded())
    places = places + 1
  end
  t.equal(places, t.is_luajit and 2 or 1, "remainders by 16")
end)

-- -- LuaJIT's states ----------------------------------------------------------------------------------------------------

-- Samples by the label, and all of them.
local function by_label(profile, key)
  local counts, all = {}, 0
  for _, sample in ipairs(profile:samples()) do
    local value = sample.labels[key] or "none"
    counts[value] = (counts[value] or 0) + sample.samples
    all = all + sample.samples
  end
  return counts, all
end

t.test("labels_tell_what_luajit_was_doing", function()
  local function numeric() local x = 0 for i = 1, 200000 do x = x + i % 7 end return x end
  local states = { interpreter = true, trace = true, c = true, gc = true, compiler = true, exit = true }
  local function states_of(body)
    local profile = on_the_cpu_clock(body)
    local counts, all = by_label(profile, "vmstate")
    for _, sample in ipairs(profile:samples()) do
      local state, trace = sample.labels.vmstate, sample.labels.trace
      local inside = sample.stack[1].name:sub(1, 1) ~= "["
      t.equal(state ~= nil, t.is_luajit and inside, "a label vmstate")
      if state then t.truthy(states[state], "vmstate " .. state) end
      if trace then
        t.equal(state, "trace", "vmstate of a sample with a trace")
        t.truthy(tonumber(trace) >= 1, "trace " .. trace)
      end
    end
    return counts, all
  end
  if t.is_luajit then -- whatever the tests before this one have left
    jit.on()
    jit.flush()
  end
  local counts, all = states_of(numeric)
  if not t.is_luajit then return end -- no labels there
  t.truthy((counts.trace or 0) > all * 0.8, "samples in compiled code: " .. (counts.trace or 0) .. " of " .. all)
  jit.off()
  jit.flush()
  counts, all = states_of(numeric)
  t.truthy((counts.interpreter or 0) > all * 0.8, "samples in the interpreter: " .. (counts.interpreter or 0) .. " of " .. all)
  counts, all = states_of(function() for _ = 1, 100 do host.fds() end end)
  t.truthy((counts.c or 0) > all * 0.8, "samples in C functions: " .. (counts.c or 0) .. " of " .. all)
  local keep = {}
  for i = 1, 100000 do keep[i] = { i } end
  counts, all = states_of(function() collectgarbage() end)
  t.truthy((counts.gc or 0) > all * 0.8, "samples in the collector: " .. (counts.gc or 0) .. " of " .. all)
end)

-- The samples whose leaf is compiled code of the function: each at the line where its trace starts, which LuaJIT told when it made it.
local function samples_in_traces(body, name)
  local lines, line, count, all = {}, nil, 0, 0
  local function on_trace(what, number, func, pc)
    if what == "start" then line = require("jit.util").funcinfo(func, pc).currentline end
    if what == "stop" then lines[number] = line end
  end
  jit.on()
  jit.flush()
  jit.attach(on_trace, "trace")
  for _ = 1, 3 do body() end -- compiled by now
  local profile = on_the_cpu_clock(body, { cpu_hz = 1000 })
  jit.attach(on_trace)
  for _, sample in ipairs(profile:samples()) do
    local leaf, number = sample.stack[1], tonumber(sample.labels.trace)
    all = all + sample.samples
    if sample.labels.vmstate == "trace" and leaf.name == name then
      count = count + sample.samples
      -- on arm64 LuaJIT does not say which trace it is whose C code runs
      t.truthy(number or jit.arch == "arm64", "a label trace in\n" .. profile:folded())
      if number then t.equal(leaf.line, lines[number], "line of trace " .. number) end
    end
  end
  return count, all, profile
end

t.test("compiled_code_is_at_the_line_where_its_trace_starts", function()
  if not t.is_luajit then return end
  local function hot()
    local x = 0
    for i = 1, 200000 do
      x = x + i % 7
      if i % 3 == 0 then
        x = x - 2
      end
    end
    return x
  end
  local count, all = samples_in_traces(hot, "hot")
  t.truthy(count > 0.8 * all, "samples in its traces: " .. count .. " of " .. all)
end)

t.test("c_functions_that_compiled_code_calls", function()
  if not t.is_luajit then return end
  local ffi = require "ffi"
  ffi.cdef "void *memset(void *, int, size_t);"
  local C, buffer = ffi.C, ffi.new("char[?]", 1000000)
  local function fill()
    for i = 1, 100 do
      C.memset(buffer, i, 1000000)
    end
  end
  local count, all = samples_in_traces(fill, "fill")
  t.truthy(count > 0.8 * all, "samples in the loop that calls it: " .. count .. " of " .. all)
end)

-- The function that has C call back is not compiled, which LuaJIT asks for; what is called is.
t.test("compiled_code_that_c_functions_call", function()
  if not t.is_luajit then return end
  local ffi = require "ffi"
  ffi.cdef "void qsort(void *, size_t, size_t, int (*)(const int *, const int *));"
  local numbers = ffi.new("int[?]", 500)
  local function compare(a, b)
    local x = 0
    for i = 1, 1000 do
      x = x + i % 7
    end
    return a[0] - b[0]
  end
  local callback = ffi.cast("int (*)(const int *, const int *)", compare)
  local function sort()
    for i = 0, 499 do numbers[i] = i * 7919 % 10007 end
    ffi.C.qsort(numbers, 500, 4, callback)
  end
  jit.off(sort)
  local count, all, profile = samples_in_traces(sort, "compare")
  t.truthy(count > 0.5 * all, "samples in its traces: " .. count .. " of " .. all)
  local below = t.samples_with(profile, "compare")
  t.equal(t.samples_with(profile, "sort;cdata.__call;compare"), below, "samples below who had it called, in\n" .. profile:folded())
  callback:free()
end)

t.test("labels_of_the_program_and_of_luajit_together", function()
  pulse.start { cpu_hz = 500 }
  pulse.labels { request = "checkout" }
  t.burn_samples(40)
  local profile = pulse.stop()
  local requests, all = by_label(profile, "request")
  t.truthy(requests.checkout > all * 0.9, "samples with the program's label")
  if not t.is_luajit then return end
  for _, sample in ipairs(profile:samples()) do
    if sample.labels.request then t.truthy(sample.labels.vmstate, "vmstate beside it") end
  end
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
