-- What samples of the heap say is true on average: blocks and bytes of every site, allocated and in use, whatever their size. The
-- truth is known by tracing the same program; bounds are 4 sigma of the method itself.
local t = require "t"
local pulse = require "luapulse"
local heap = require "heap"
local host = require "host"
if t.is_luajit then jit.off() end -- the compiler allocates at lines of its choice; a test of its own is below

local sizes = { 0, 8, 40, 200, 1000, 5000, 60000, 2 ^ 20 - 100 }
local FEW = 50 -- expected samples below which the normal approximation does not hold

local function count_of(size) return math.max(40, math.min(20000, math.floor(4e6 / (size + 40)))) end

-- One line for each size; every other block is kept.
local code = { "local userdata, kept = ... return function(part)" }
for i, size in ipairs(sizes) do
  code[i + 1] = ("for i = 1, %d / part do local u = userdata(%d) if i %% 2 == 0 then kept[#kept + 1] = u end end"):format(
    count_of(size), size)
end
code[#code + 1] = "end"
local text = table.concat(code, "\n")

local values = { "alloc_objects", "alloc_space", "inuse_objects", "inuse_space" }

-- By size: what the function that makes the blocks has at each line that calls it.
local function by_size(profile)
  local rows = {}
  for i in ipairs(sizes) do rows[i] = { alloc_objects = 0, alloc_space = 0, inuse_objects = 0, inuse_space = 0 } end
  for _, sample in ipairs(profile:samples()) do
    local caller = sample.stack[2]
    if caller and caller.file == "sizes.lua" and caller.line > 1 then
      local row = rows[caller.line - 1]
      for _, value in ipairs(values) do row[value] = row[value] + sample[value] end
    end
  end
  return rows
end

-- body(program) between start and stop.
local function take(options, body)
  local kept = {}
  for i = 1, 60000 do kept[i] = false end
  for i = 1, 60000 do kept[i] = nil end
  local program = heap.load(text, "=sizes.lua")(host.userdata, kept)
  heap.stop_collector()
  options.gc = true
  pulse.start(options)
  body(program)
  local profile = pulse.stop()
  collectgarbage("restart")
  return by_size(profile), kept
end

local function once(program) program(1) end

local truth
local function get_truth()
  if not truth then
    truth = take({ heap = "tracing", max_memory_bytes = 2 ^ 27, max_process_memory_bytes = 2 ^ 28 }, once)
    for i, size in ipairs(sizes) do
      t.equal(truth[i].alloc_objects, count_of(size), "blocks of " .. size)
      t.equal(truth[i].inuse_objects, math.floor(count_of(size) / 2), "blocks kept of " .. size)
    end
  end
  return truth
end

local function chance(size, mean) return 1 - (1 - 1 / mean) ^ size end

-- Each block of s bytes counts for 1/p with probability p: variance 1/p - 1 in blocks, s^2 times that in bytes; rounding to whole
-- numbers adds at most p/4.
local function check(rows, means, what)
  local compared = 0
  for i, row in ipairs(get_truth()) do
    local size = row.alloc_space / row.alloc_objects
    local p, variance = 0, 0
    for _, mean in ipairs(means) do
      local one = chance(size, mean)
      p, variance = p + one / #means, variance + (1 / one - 1 + one / 4) / #means
    end
    for v, value in ipairs(values) do
      local objects = v <= 2 and row.alloc_objects or row.inuse_objects
      if p * objects >= FEW then
        local unit = v % 2 == 0 and size or 1
        local sigma = math.sqrt(objects * variance) * unit
        local off = math.abs(rows[i][value] - row[value])
        if off > 4 * sigma + 1e-6 then
          error(("%s, blocks of %d: %s is %.0f, not %.0f: off by %.1f sigma"):format(what, size, value, rows[i][value],
            row[value], off / sigma))
        end
        compared = compared + 1
      end
    end
  end
  return compared
end

-- Of some 1500 values, on 5.4, on LuaJIT and at one mean on 5.1 and 5.5, one is beyond 4 sigma by chance in one of twenty choices of seeds and sizes
-- of blocks (half of them are independent). Such a one is looked at again, with another seed: what is biased is so with every one.
local function check_by_seed(seed, means, rows_of)
  local fine, compared = pcall(check, rows_of(seed), means, "seed " .. seed)
  if fine then return compared end
  return check(rows_of(seed + 50), means, "seed " .. seed + 50 .. " (" .. compared .. ")")
end

for _, mean in ipairs { 16, 256, 4096, 65536 } do
  t.test("unbiased_at_a_mean_of_" .. mean, function()
    local compared = 0
    for seed = 1, 6 do
      compared = compared + check_by_seed(100 * mean + seed, { mean }, function(number)
        return take({ heap = "sampling", heap_sample_mean_bytes = mean, seed = number, max_memory_bytes = 2 ^ 27,
          max_process_memory_bytes = 2 ^ 28 }, once)
      end)
    end
    t.truthy(compared >= 6 * 4, "values compared: " .. compared)
  end)
end

-- Blocks larger than many gaps are counted once.
t.test("large_blocks_count_for_themselves", function()
  local rows = take({ heap = "sampling", heap_sample_mean_bytes = 4096, seed = 3 }, once)
  for i = #sizes, #sizes do
    for _, value in ipairs(values) do t.equal(rows[i][value], get_truth()[i][value], value .. " of blocks of " .. sizes[i]) end
  end
end)

t.test("unbiased_while_the_rate_changes", function()
  local means = { 256, 8192, 1024, 64 }
  for seed = 1, 6 do
    check_by_seed(seed, means, function(number)
      return take({ heap = "sampling", heap_sample_mean_bytes = 0, seed = number, max_memory_bytes = 2 ^ 27,
        max_process_memory_bytes = 2 ^ 28 }, function(program)
        for _, mean in ipairs(means) do
          pulse.heap_rate(mean)
          program(#means)
        end
      end)
    end)
  end
end)

-- All of them together, by the mean over many seeds: a bias smaller than the spread of one run would show here.
t.test("no_bias_over_many_seeds", function()
  local SEEDS, MEAN = 40, 2048
  local sums = {}
  for i in ipairs(sizes) do sums[i] = { alloc_objects = 0, alloc_space = 0, inuse_objects = 0, inuse_space = 0 } end
  for seed = 1, SEEDS do
    local rows = take({ heap = "sampling", heap_sample_mean_bytes = MEAN, seed = 7919 * seed, max_memory_bytes = 2 ^ 27,
      max_process_memory_bytes = 2 ^ 28 }, once)
    for i, row in ipairs(rows) do
      for _, value in ipairs(values) do sums[i][value] = sums[i][value] + row[value] end
    end
  end
  for i, row in ipairs(get_truth()) do
    local size = row.alloc_space / row.alloc_objects
    local p = chance(size, MEAN)
    for v, value in ipairs(values) do
      local objects = SEEDS * (v <= 2 and row.alloc_objects or row.inuse_objects)
      local sigma = math.sqrt(objects * (1 / p - 1 + p / 4)) * (v % 2 == 0 and size or 1)
      t.between(sums[i][value], SEEDS * row[value] - 4 * sigma - 1e-6, SEEDS * row[value] + 4 * sigma + 1e-6,
        value .. " of blocks of " .. size)
    end
  end
end)

-- Blocks that compiled code makes, one function for each kind. All are stored, so that none is optimized away; then every other one is dropped.
if t.is_luajit then
  local COUNT = 20000
  local kinds = { "{}", "{ i, i, i }", "{ i, i, i, i, i, i, i, i, i, i, i, i }", "'text ' .. i" }
  local lines = { "local kept, COUNT = ... return" }
  for i, kind in ipairs(kinds) do
    lines[i + 1] = ("function() for i = 1, COUNT do kept[i] = %s end for i = 1, COUNT, 2 do kept[i] = false end end%s"):format(kind, kinds[i + 1] and "," or "")
  end

  -- By kind, without what the compiler itself makes.
  local function take_compiled(options)
    local makers, kept = {}, {}
    for i = 1, #kinds do
      kept[i] = {}
      for at = 1, COUNT do kept[i][at] = false end
      makers[i] = select(i, heap.load(table.concat(lines, "\n"), "=kinds.lua")(kept[i], COUNT))
    end
    options.gc = true
    jit.flush()
    jit.on()
    local profile = heap.at_rest(function() for i = 1, #kinds do makers[i]() end end, options)
    jit.off()
    local rows = {}
    for i = 1, #kinds do rows[i] = { compiled = 0, alloc_objects = 0, alloc_space = 0, inuse_objects = 0, inuse_space = 0 } end
    for _, sample in ipairs(profile:samples()) do
      local leaf, state = sample.stack[1], sample.labels.vmstate
      if leaf.file == "kinds.lua" and (state == "trace" or state == "interpreter") then
        local row = rows[leaf.defined - 1]
        for _, value in ipairs(values) do row[value] = row[value] + sample[value] end
        if state == "trace" then row.compiled = row.compiled + sample.alloc_objects end
      end
    end
    return rows, kept
  end

  t.test("unbiased_in_compiled_code", function()
    local MEAN = 1024
    local tracing = { heap = "tracing", max_memory_bytes = 2 ^ 27, max_process_memory_bytes = 2 ^ 28 }
    take_compiled(tracing) -- the compiler's buffers have grown
    local exact = take_compiled(tracing)
    for i, row in ipairs(exact) do
      -- but for those of rounds in which it is being compiled
      t.between(row.alloc_objects, COUNT - 10, COUNT, "blocks of " .. kinds[i])
      t.between(row.inuse_objects, COUNT / 2 - 10, COUNT / 2, "blocks kept of " .. kinds[i])
      t.between(row.compiled, COUNT - 500, COUNT, "of them by compiled code, of " .. kinds[i])
    end
    local known = truth
    truth = exact
    for seed = 1, 4 do
      check_by_seed(seed, { MEAN }, function(number) return (take_compiled { heap = "sampling", heap_sample_mean_bytes = MEAN, seed = number }) end)
    end
    truth = known
  end)
end

t.run()
