-- SPDX-License-Identifier: MIT
-- Stages connected by coroutines: each pulls an item from the one before, works on it and hands it on.
local pipeline = {}

function pipeline.source(iterator)
  return coroutine.wrap(function()
    for item in iterator do coroutine.yield(item) end
  end)
end

local function stage(previous, work)
  return coroutine.wrap(function()
    for item in previous do coroutine.yield(work(item)) end
  end)
end

-- The source's items after each of the functions in turn, as an iterator.
function pipeline.through(source, ...)
  for _, work in ipairs { ... } do source = stage(source, work) end
  return source
end

return pipeline
