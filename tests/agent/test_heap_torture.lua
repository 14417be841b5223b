-- Every block of a program that allocates in every way Lua has is followed: nothing breaks, nothing is counted twice or lost.
local t = require "t"
local pulse = require "luapulse"
local heap = require "heap"
local torture = require "torture"

local modes = {
  sampled = { heap = "sampling", heap_sample_mean_bytes = 1, max_memory_bytes = 2 ^ 28, max_process_memory_bytes = 2 ^ 29 },
  traced = { heap = "tracing", max_memory_bytes = 2 ^ 28, max_process_memory_bytes = 2 ^ 29 },
}

local function with(options, more)
  local all = {}
  for name, value in pairs(options) do all[name] = value end
  for name, value in pairs(more) do all[name] = value end
  return all
end

local function run(options, body, what, least)
  collectgarbage()
  local before = collectgarbage("count")
  pulse.start(options)
  body()
  if t.number >= 5.5 then collectgarbage() end -- see heap.check_balance
  local profile = pulse.stop()
  local totals = heap.check_whole(profile, what)
  t.truthy(totals.alloc_objects_total > (least or 100), "blocks were seen (" .. what .. ")")
  t.between(totals.vm_bytes_start / 1024, before, before + 64, "what was in use at the start, in KiB (" .. what .. ")")
  if not options.cpu then -- ticks of the cpu may come where no stack can be read, the allocator not
    t.equal(profile:stats().unattributed, 0, "unattributed (" .. what .. ")")
  end
end

for mode, options in pairs(modes) do
  for _, name in ipairs(torture.names) do
    t.test(mode .. "_" .. name, function() run(options, torture[name], name) end)
  end
  t.test(mode .. "_all_at_once", function() run(options, torture.all, "all") end)

  -- Both modes follow every block, by the same code but for the weight: under sanitizers one of them is enough for the longest.
  local long = mode == "sampled" or not t.sanitized
  if long then t.test(mode .. "_overflow_of_the_stack", function() run(options, torture.overflow, "overflow") end) end

  if mode == "sampled" and not t.sanitized then t.test("sampled_huge_tables", function() run(options, torture.huge_tables, "huge tables", 40) end) end

  -- The same while the cpu is profiled too: the totals of the heap do not change for it.
  local others = {
    cpu_sampling = { cpu = "sampling", cpu_hz = 2000 },
    cpu_by_interface = { cpu = "sampling", cpu_hz = 2000, cpu_engine = "interface" },
    cpu_tracing = { cpu = "tracing" },
    instructions = { cpu = "sampling", cpu_clock = "instructions", cpu_sample_mean_instr = 200, cpu_max_samples_per_sec = 0 },
    wall = { cpu = "sampling", cpu_clock = "wall", cpu_hz = 1000 },
  }
  for name, more in pairs(long and others or {}) do
    t.test(mode .. "_with_" .. name, function() run(with(options, more), torture.all, name) end)
  end
end

t.run()
