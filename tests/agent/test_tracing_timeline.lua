-- The timeline of tracing: single calls, a track for each coroutine, the newest of them or those that fit a filter.
local t = require "t"
local pulse = require "luapulse"
local host = require "host"
local shared = require "trace"

local load = loadstring or load
local engines = { "auto", "interface" }

local function counts(events)
  local seen = {}
  for _, event in ipairs(events) do seen[event.name] = (seen[event.name] or 0) + 1 end
  return seen
end

-- The timeline of body(), which is balanced.
local function timeline(body, options, what)
  options.trace_events = options.trace_events or 100000
  local profile = shared.of(body, options)
  local events, calls, kept = shared.timeline(profile)
  t.equal(kept, #events, "calls in the file")
  t.truthy(calls >= kept and kept <= options.trace_events, "calls, " .. calls .. ", and those kept, " .. kept)
  local tracks = shared.check_timeline(events, what or "")
  return events, tracks, calls
end

t.test("calls_and_tracks", function()
  local function leaf() end
  local function step() leaf() coroutine.yield() end
  local function body() for _ = 1, 5 do step() end end
  local function failing() error("no") end
  local events, tracks = timeline(function()
    local co = coroutine.wrap(body)
    for _ = 1, 4 do co() pcall(failing) end
  end, {})
  local seen = counts(events)
  t.equal(seen.leaf, 4, "leaf in the timeline")
  t.equal(seen.failing, 4, "failing, which an error ended")
  t.equal(seen.body, 1, "body, still under way")
  t.equal(tracks, 2, "tracks: main and the coroutine")
end)

-- A call is entered when it ends: kept are the last to end, those that are open at the end included.
t.test("the_newest_are_kept", function()
  local lines = { "local f = {}" }
  for i = 1, 300 do lines[#lines + 1] = ("do local function g() end f[%d] = function() g() end end"):format(i) end
  lines[#lines + 1] = "return f"
  for _, engine in ipairs(engines) do
    local functions = load(table.concat(lines, "\n"), "=many")()
    local profile = shared.of(function() for i = 1, 300 do functions[i]() end end, { trace_events = 101, cpu_engine = engine })
    local name = os.tmpname()
    profile:write(name, "chrome")
    local file, kept, others = assert(io.open(name)), {}, 0
    for line in file:lines() do -- function i and what it calls are defined in line i + 1
      local at = line:match('"ph":"X".*"args":{"file":"many","line":(%d+)}')
      if at then kept[#kept + 1] = tonumber(at) - 1 elseif line:find('"ph":"X"', 1, true) then others = others + 1 end
    end
    file:close()
    os.remove(name)
    t.equal(#kept + others, 101, "calls kept")
    t.between(others, 1, 10, "those of the test")
    -- of each function two calls; of the oldest perhaps only its own, which ended after the one inside
    for i = #kept, 1, -1 do t.equal(kept[i], 300 - math.floor((#kept - i) / 2), "call " .. i .. " of " .. #kept .. " (" .. engine .. ")") end
    local events, calls = shared.timeline(profile)
    shared.check_timeline(events, " of the newest")
    t.truthy(calls >= 600, "calls there were: " .. calls)
  end
end)

t.test("filters", function()
  local function wanted() end
  local function unwanted() wanted() end
  local function body() for _ = 1, 500 do wanted() unwanted() end end
  local seen = counts((timeline(body, { trace_events = 2000, trace_filter = { "want*", "nothing.lua" } })))
  t.equal(seen.wanted, 1000, "calls that fit")
  t.equal(seen.unwanted, nil, "calls that do not")
  seen = counts((timeline(body, { trace_events = 5000, trace_filter = "test_tracing_timeline.lua" })))
  t.equal(seen.wanted, 1000, "calls in the file")
  t.equal(seen.unwanted, 500, "calls in the file")
  t.fails("trace_filter must be", pulse.start, { cpu = "tracing", trace_filter = 5 })
  t.fails("no timeline", function() shared.timeline(shared.of(function() end)) end)
end)

t.test("tail_calls_and_errors", function()
  local function last() return 1 end
  local function chain(n) if n == 0 then return last() end return chain(n - 1) end
  local function throws() error("no") end
  local function indexes() local x return x.y end
  local function deep(n, f) if n == 0 then f() end deep(n - 1, f) end
  local function dies(f) last() coroutine.yield() deep(5, f) end
  local function body()
    for _ = 1, 10 do
      chain(20)
      local _ = chain(3) + last()
      pcall(deep, 5, throws)
      last()
      pcall(deep, 5, indexes)
      last()
      local co = coroutine.create(dies)
      coroutine.resume(co, throws)
      last()
      coroutine.resume(co)
      co = coroutine.create(dies)
      coroutine.resume(co, indexes)
      coroutine.resume(co)
      last()
      coroutine.resume(coroutine.create(dies)) -- and left half-way
      coroutine.wrap(function() coroutine.wrap(dies)(throws) host.yield() end)()
    end
  end
  for _, engine in ipairs(engines) do
    for _, filter in ipairs { false, "d*", "chain" } do
      local what = (" (%s, %s)"):format(engine, tostring(filter))
      local events = timeline(body, { cpu_engine = engine, trace_filter = filter or nil }, what)
      local seen = counts(events)
      if not filter then
        for name, calls in pairs { chain = 250, dies = 40, deep = 240, throws = 20, indexes = 20, last = 110 } do
          if engine == "auto" then t.equal(seen[name], calls, "calls of " .. name .. what) end -- Lua has the callers' names for them
        end
      else -- names that callers have: who is called by pcall, as a tail or as a coroutine has none
        t.truthy(filter == "chain" and seen.chain or filter == "d*" and seen.deep >= 200, "calls that fit" .. what)
        -- LuaJIT has for the callee of a tail call the name of the first that was called
        local fits = filter == "d*" and "^d" or t.is_luajit and "^[chainlst]+$" or "^chain$"
        if engine == "auto" then for name in pairs(seen) do t.truthy(name:find(fits), name .. what) end end
      end
    end
  end
end)

-- More coroutines than are followed at once: one that was given up goes on, on a track of its own.
t.test("coroutines_that_were_given_up", function()
  local function leaf() end
  local function body() leaf() coroutine.yield() leaf() end
  local events, tracks = timeline(function()
    local kept = {}
    for i = 1, 5000 do
      kept[i] = coroutine.create(body)
      coroutine.resume(kept[i])
    end
    for i = 1, 5000 do coroutine.resume(kept[i]) end
  end, {})
  t.equal(counts(events).leaf, 10000, "calls of leaf")
  t.truthy(tracks > 5001, "tracks: " .. tracks)
end)

t.test("regions", function()
  local function work() return 1 end
  local function yields() coroutine.yield() work() end
  local function fails() error("no") end
  local events, tracks = timeline(function()
    for _ = 1, 3 do pulse.region("checkout", work) end
    pulse.region("outer", function() pulse.region("checkout", work) end)
    local co = coroutine.wrap(function() pulse.region("waiting", yields) end)
    co()
    co()
    pcall(pulse.region, "failing", fails)
  end, {})
  local seen = counts(events)
  for name, calls in pairs { checkout = 4, outer = 1, waiting = 1, failing = 1 } do
    t.equal(seen["[region " .. name .. "]"], calls, "regions in the timeline: " .. name)
  end
  t.equal(tracks, 2, "tracks")
  -- each has in it what was called in it
  for _, region in ipairs(events) do
    local inside = 0
    for _, event in ipairs(events) do
      if event.name == "work" and event.track == region.track and event.start >= region.start and event.stop <= region.stop then inside = inside + 1 end
    end
    if region.name == "[region checkout]" or region.name == "[region waiting]" then t.equal(inside, 1, "calls in " .. region.name) end
  end
  events = timeline(function() pulse.region("checkout", work) pulse.region("other", work) end, { trace_filter = { "[[]region check*" } })
  t.equal(counts(events)["[region other]"], nil, "a region that does not fit")
end)

t.run()
