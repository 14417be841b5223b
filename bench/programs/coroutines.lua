-- SPDX-License-Identifier: MIT
-- Benchmark program: coroutines. Producer, filter and consumer chains, iterators by coroutine.wrap, a round-robin
-- scheduler, and many short-lived coroutines.

-- looked up anew in each unit: while a profiler is on, the library may hold functions of its own
local yield, resume, wrap

local function producer(count)
  return wrap(function()
    for i = 1, count do yield(i) end
  end)
end

local function filter(source, divisor)
  return wrap(function()
    for item in source do
      if item % divisor ~= 0 then yield(item) end
    end
  end)
end

local function chain(count)
  local sum = 0
  for item in filter(filter(filter(producer(count), 2), 3), 5) do sum = sum + item end
  return sum
end

-- Walks a balanced tree of the numbers first..last in order, one nested coroutine per level.
local function in_order(first, last)
  return wrap(function()
    if first > last then return end
    local middle = math.floor((first + last) / 2)
    for item in in_order(first, middle - 1) do yield(item) end
    yield(middle)
    for item in in_order(middle + 1, last) do yield(item) end
  end)
end

local function tree_walk(size)
  local sum, position = 0, 0
  for item in in_order(1, size) do
    position = position + 1
    sum = sum + item * position
  end
  return sum
end

local function worker(id, steps)
  local done = 0
  for _ = 1, steps do done = done + yield(id) end
  return -done
end

local function round_robin(workers, steps)
  local ready, sum = {}, 0
  for id = 1, workers do
    ready[id] = coroutine.create(worker)
    resume(ready[id], id, steps)
  end
  while #ready > 0 do
    for i = #ready, 1, -1 do
      local ok, value = resume(ready[i], i)
      if not ok then error(value) end
      sum = sum + value
      if coroutine.status(ready[i]) == "dead" then table.remove(ready, i) end
    end
  end
  return sum
end

local function short_lived(count)
  local sum = 0
  for i = 1, count do
    sum = sum + wrap(function(x) return yield(x) or 0 end)(i)
  end
  return sum
end

return function()
  yield, resume, wrap = coroutine.yield, coroutine.resume, coroutine.wrap
  return chain(5000) + tree_walk(300) + round_robin(20, 240) + short_lived(1200)
end
