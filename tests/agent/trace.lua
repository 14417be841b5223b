-- What tests of tracing share: a body that is traced, and sums over the paths of its profile.
local heap = require "heap"
local trace = {}

-- Of the body alone: finalizers of what came before are not its calls.
function trace.of(body, options)
  options = options or {}
  options.cpu = "tracing"
  return heap.at_rest(body, options)
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
