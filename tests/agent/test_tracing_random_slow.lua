-- Random programs, traced: every function counts its own calls, and every path must be one the program can take. What a tracer
-- loses or keeps too long (frames left by errors, replaced by tail calls, put aside in coroutines) shows as a wrong count or as a
-- call that stands nowhere in the program.
local t = require "t"
local pulse = require "luapulse"
local shared = require "trace"

local load = loadstring or load
local FUNCTIONS = 12
local EVENTS = 1000

-- A generator of its own: the same programs on every runtime.
local function random_of(seed)
  local state = seed % 2147483647 + 1
  return function(n)
    state = (state * 16807) % 2147483647
    return state % n + 1
  end
end

-- Statements of function i; callees[i][j] is set for every j that it may call.
local function statement(i, random, callees)
  local j = random(FUNCTIONS)
  local kind = random(13)
  callees[i][j] = true
  local call = ("f[%d](d - 1)"):format(j)
  if kind <= 3 then return call end
  if kind == 4 then return ("pcall(f[%d], d - 1)"):format(j) end
  if kind == 5 then return ("do local co = coroutine.wrap(f[%d]) pcall(co, d - 1) pcall(co) end"):format(j) end
  if kind == 6 then return ("do local co = coroutine.create(f[%d]) coroutine.resume(co, d - 1) kept[#kept %% 50 + 1] = co end"):format(j) end
  if kind == 7 then return "if inside() then coroutine.yield() end" end
  if kind == 8 then return ("if d < 3 then table.sort({ 3, 1, 2 }, function(a, b) %s return a < b end) end"):format(call) end
  if kind == 9 then return ("local _ = setmetatable({}, { __add = function() %s end }) + 1"):format(call) end
  if kind == 10 then return "if steps % 7 == 0 then error('on purpose') end" end
  if kind == 11 then return "if steps % 11 == 0 then local nothing local _ = nothing.field end" end
  if kind == 12 then return "string.rep('x', 10)" end
  return ("local co = kept[%d] if co and coroutine.status(co) == 'suspended' then coroutine.resume(co) end"):format(random(50))
end

local function program(seed)
  local random, callees, lines = random_of(seed), {}, {}
  lines[1] = "local f, count, inside, kept = ... local steps = 0"
  for i = 1, FUNCTIONS do
    callees[i] = {}
    local body = {}
    for _ = 1, random(4) do body[#body + 1] = statement(i, random, callees) end
    local tail = ""
    if random(3) == 1 then
      local j = random(FUNCTIONS)
      callees[i][j] = true
      tail = ("return f[%d](d - 1)"):format(j)
    end
    local arguments = random(3) == 1 and "d, ..." or "d"
    lines[#lines + 1] = ("f[%d] = function(%s) count(%d) steps = steps + 1 d = d or 0 if d <= 0 or steps > 3000 then return end %s %s end")
      :format(i, arguments, i, table.concat(body, " ; "), tail)
  end
  return table.concat(lines, "\n"), callees
end

local function run(seed, engine)
  local text, callees = program(seed)
  local f, counts, kept = {}, {}, {}
  local function count(i) counts[i] = (counts[i] or 0) + 1 end
  local function inside()
    local co, is_main = coroutine.running()
    return co ~= nil and not is_main
  end
  assert(load(text, "=random"))(f, count, inside, kept)
  collectgarbage()
  collectgarbage("stop")
  pulse.start { cpu = "tracing", cpu_engine = engine, trace_events = EVENTS, trace_filter = seed % 3 == 0 and "rand*" or nil }
  for i = 1, FUNCTIONS do pcall(f[i], 6) end
  local profile = pulse.stop()
  collectgarbage("restart")
  local what = ("seed %d, %s:\n%s\n"):format(seed, engine, text)
  local events, all_events, kept = shared.timeline(profile)
  t.equal(kept, math.min(all_events, EVENTS), what .. "calls in the timeline")
  shared.check_timeline(events, ", " .. what)
  local calls = {}
  for _, sample in ipairs(profile:samples()) do
    local top, from = sample.stack[1], nil
    -- Function i is defined in line i + 1. Callbacks and metamethods stand in the line of the function they are in.
    if top.file == "random" and top.defined > 1 then calls[top.defined - 1] = (calls[top.defined - 1] or 0) + sample.calls end
    for k = #sample.stack, 1, -1 do
      local frame = sample.stack[k]
      if frame.name == "[tail call]" or frame.name == "coroutine.resume" then -- which resumes any coroutine that was kept
        from = nil
      elseif frame.file == "random" and frame.defined > 1 then
        local i = frame.defined - 1
        if from and from ~= i and not callees[from][i] then
          error(what .. ("function %d called function %d, which it never does, in\n%s"):format(from, i, profile:folded()))
        end
        from = i
      end
    end
  end
  local extra = 0 -- callbacks are counted with the function of their line
  for i = 1, FUNCTIONS do
    if (calls[i] or 0) < (counts[i] or 0) then
      error(what .. ("function %d: %d calls, traced %d"):format(i, counts[i] or 0, calls[i] or 0))
    end
    extra = extra + (calls[i] or 0) - (counts[i] or 0)
  end
  local counted, all = 0, 0
  for _, sample in ipairs(profile:samples()) do
    local top = sample.stack[1]
    if top.name == "count" or (top.file:find("test_tracing_random", 1, true) and top.name:find("count")) then counted = counted + sample.calls end
  end
  for _, n in pairs(counts) do all = all + n end
  t.equal(counted, all, what .. "calls of count itself")
  t.equal(profile:stats().overflow, 0, what .. "overflow")
  return all
end

local PROGRAMS = tonumber(os.getenv("LUAPULSE_RANDOM_PROGRAMS") or 60)

t.test("random_programs", function()
  local calls = 0
  for seed = 1, PROGRAMS do calls = calls + run(seed, "auto") end
  t.truthy(calls > 50 * PROGRAMS, "calls: " .. calls)
end)

t.test("random_programs_by_the_interface", function()
  for seed = 1, math.floor(PROGRAMS / 3) do run(seed, "interface") end
end)

t.run()
