-- What tests of tracing share: a body that is traced, and sums over the paths of its profile.
local heap = require "heap"
local host = require "host"
local pulse = require "luapulse"
local t = require "t"
local trace = {}

-- Of the body alone: finalizers of what came before are not its calls.
function trace.of(body, options)
  options = options or {}
  options.cpu = "tracing"
  return heap.at_rest(body, options)
end

-- Of the body with the collector as it is; and how long it was traced, by a clock of the test's own: at least, from when start has returned
-- to when stop is called, and at most. Whatever else the machine does, it is between the two.
function trace.timed(body, options)
  options = options or {}
  options.cpu = "tracing"
  local before = host.clock()
  pulse.start(options)
  local from = host.clock()
  body()
  local to = host.clock()
  local profile = pulse.stop()
  return profile, { least = to - from, most = host.clock() - before }
end

-- A sum of times is what passed. A thousandth is for the clock, which was measured against the other for 5 ms.
function trace.expect_elapsed(sum, elapsed, what)
  t.between(sum, elapsed.least * 0.999, elapsed.most * 1.001, what)
end

-- The sum of a value over all samples.
function trace.total(profile, value)
  local sum = 0
  for _, sample in ipairs(profile:samples()) do sum = sum + sample[value] end
  return sum
end

function trace.path_of(sample)
  local names = {}
  for i = #sample.stack, 1, -1 do names[#names + 1] = sample.stack[i].name end
  return table.concat(names, ";")
end

-- Sum of a value over the samples whose path ends as given.
function trace.sum_of(profile, value, ending)
  local sum = 0
  for _, sample in ipairs(profile:samples()) do
    if trace.path_of(sample):sub(-#ending) == ending then sum = sum + sample[value] end
  end
  return sum
end

-- The timeline of a profile as its file has it: a list of { name =, track =, start =, stop = }, times in nanoseconds; and what the file says
-- of how many calls there were and how many of them it has.
function trace.timeline(profile)
  local name = os.tmpname()
  profile:write(name, "chrome")
  local file = assert(io.open(name))
  local text, events = file:read("*a"), {}
  file:close()
  os.remove(name)
  for called, track, us, ns, long_us, long_ns in
    text:gmatch('"ph":"X","cat":"lua","name":"(.-)","pid":1,"tid":(%d+),"ts":(%d+)%.(%d+),"dur":(%d+)%.(%d+)') do
    local start = us * 1000 + ns
    events[#events + 1] = { name = called, track = tonumber(track), start = start, stop = start + long_us * 1000 + long_ns }
  end
  return events, tonumber(text:match('"calls":"(%d+)"')), tonumber(text:match('"kept":"(%d+)"'))
end

-- Its events stand in the order in which the calls began, and the calls of a track lie one in another or one after the other. Returns how
-- many tracks there are.
function trace.check_timeline(events, what)
  local open, last, tracks = {}, 0, 0
  for _, event in ipairs(events) do
    local stack = open[event.track]
    if not stack then
      tracks, stack = tracks + 1, {}
      open[event.track] = stack
    end
    t.truthy(event.start >= last and event.stop >= event.start, "order of events: " .. event.name .. what)
    last = event.start
    while #stack > 0 and stack[#stack].stop <= event.start do stack[#stack] = nil end
    local around = stack[#stack]
    if around and event.stop > around.stop then
      error(("%s, %.0f to %.0f, does not lie in %s, %.0f to %.0f, on track %d%s"):format(event.name, event.start, event.stop, around.name,
        around.start, around.stop, event.track, what), 2)
    end
    stack[#stack + 1] = event
  end
  return tracks
end

return trace
