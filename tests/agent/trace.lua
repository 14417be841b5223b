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

return trace
