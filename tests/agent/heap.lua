-- What tests of the heap share: totals, sums over sites, a collector that runs only when asked to.
local pulse = require "luapulse"
local t = require "t"

local heap = {}

heap.load = loadstring or load

-- The totals, by name without the heap_ before it: those of stats(), which are those of the comments.
function heap.totals(profile)
  local stats, totals, comments = profile:stats(), {}, 0
  for name, value in pairs(stats) do
    local short = name:match("^heap_([%w_]+)$")
    if short then totals[short] = value end
  end
  for _, comment in ipairs(stats.comments) do
    local name, value = comment:match("^heap_([%w_]+): (%d+)$")
    if name then
      comments = comments + 1
      t.equal(totals[name], tonumber(value), "heap_" .. name .. " of stats, which a comment has")
    end
  end
  if comments == 0 then error("no totals of the heap in the profile", 2) end
  return totals
end

local values = { "alloc_objects", "alloc_space", "inuse_objects", "inuse_space", "peak_objects", "peak_space" }

-- Sums over the samples for which `fits` is true; all without one.
function heap.sum(profile, fits)
  local sums = { samples = 0 }
  for _, name in ipairs(values) do sums[name] = 0 end
  for _, sample in ipairs(profile:samples()) do
    if not fits or fits(sample) then
      sums.samples = sums.samples + 1
      for _, name in ipairs(values) do sums[name] = sums[name] + (sample[name] or 0) end
    end
  end
  return sums
end

-- Sums by the line of the leaf, of leaves in the file; stacks with the name `without` on them do not count.
function heap.lines(profile, file, without)
  local lines = {}
  for _, sample in ipairs(profile:samples()) do
    local leaf = sample.stack[1]
    if leaf.file == file and not (without and heap.on_stack(without)(sample)) then
      local line = lines[leaf.line] or {}
      lines[leaf.line] = line
      for _, name in ipairs(values) do line[name] = (line[name] or 0) + (sample[name] or 0) end
    end
  end
  return lines
end

-- True for samples whose leaf has the name.
function heap.leaf(name)
  return function(sample) return sample.stack[1] ~= nil and sample.stack[1].name == name end
end

-- True for samples with the name anywhere on the stack.
function heap.on_stack(name)
  return function(sample)
    for _, frame in ipairs(sample.stack) do
      if frame.name == name then return true end
    end
    return false
  end
end

-- The stacks as text, leaf first, for messages.
function heap.text(profile)
  local rows = {}
  for _, sample in ipairs(profile:samples()) do
    local names, labels = {}, {}
    for i, frame in ipairs(sample.stack) do names[i] = frame.name .. ":" .. frame.line end
    for key, value in pairs(sample.labels) do labels[#labels + 1] = key .. "=" .. tostring(value) end
    table.sort(labels)
    rows[#rows + 1] = ("%s {%s} alloc %d, %d inuse %d, %d"):format(table.concat(names, " < "), table.concat(labels, ","),
      sample.alloc_objects, sample.alloc_space, sample.inuse_objects, sample.inuse_space)
  end
  return table.concat(rows, "\n")
end

-- One full collection, after which the collector rests until the next: 5.1 lets it run again with every one.
function heap.collect()
  collectgarbage()
  collectgarbage("stop")
end

-- The collector runs only by heap.collect from now on, in whole collections.
function heap.stop_collector()
  if t.number >= 5.4 then collectgarbage("incremental") end
  collectgarbage()
  collectgarbage()
  collectgarbage("stop")
end

-- What the allocator counted is what the VM says it uses. 5.5 does not count what buffers made into strings: none may be left of them.
function heap.check_balance(profile, what)
  local totals = heap.totals(profile)
  t.equal(totals.alloc_bytes_total - totals.free_bytes_total, totals.vm_bytes - totals.vm_bytes_start,
    "bytes allocated less those freed" .. (what and " (" .. what .. ")" or ""))
  return totals
end

-- Tracing, or every block a sample: the sites have it all.
function heap.check_whole(profile, what)
  local totals, sums, stats = heap.check_balance(profile, what), heap.sum(profile), profile:stats()
  what = what and " (" .. what .. ")" or ""
  t.equal(stats.overflow, 0, "overflow" .. what)
  t.equal(sums.alloc_space, totals.alloc_bytes_total, "bytes of all sites" .. what)
  t.equal(sums.alloc_objects, totals.alloc_objects_total, "blocks of all sites" .. what)
  t.equal(sums.inuse_space, totals.live_bytes, "bytes in use at all sites" .. what)
  return totals, sums
end

-- The profile of body(), in a VM whose collector rests.
function heap.at_rest(body, options)
  heap.stop_collector()
  pulse.start(options)
  body()
  local profile = pulse.stop()
  collectgarbage("restart")
  return profile
end

function heap.trace(body, options)
  local all = { heap = "tracing" }
  for name, value in pairs(options or {}) do all[name] = value end
  return heap.at_rest(body, all)
end

return heap
