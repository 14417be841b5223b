-- SPDX-License-Identifier: MIT
-- Measures what profiling costs: the ratio of profiled to unprofiled CPU time of one program, in one process.
--
--   lua bench/overhead.lua PROGRAM [hz] [max_seconds] [clock] [--control] [--seed=N]
--   lua bench/overhead.lua PROGRAM --check        the checksum and the time of one unit, then stop
--
-- Prints one line: program runtime hz ratio low high blocks reached|not-reached samples
--
-- The method. Speed changes at every time scale (frequency, neighbours on the same machine: 7 to 10 % from one 3 ms to the
-- next was seen), so the slices are short: one unit of work, 2 to 5 ms, profiled and not profiled in random order. A block
-- is about a second of them; its value is the clipped mean of their log-ratios. At 100 Hz every third slice has a sample.
--
-- Between slices the profiler is toggled with pause() and resume(), and the coroutine library is switched between its own
-- functions and those that follow coroutines: everything that costs while profiling is off in the other slices but the
-- timer, whose signal handler returns at once while paused (a microsecond, 100 times a second: 0.01 %). Switching is outside
-- the timed part. The collector runs on across slices: garbage of one may be collected in the next, whichever kind it is.
--
-- A pause would leave the wrapper of the allocator in place: of the heap (clock heap-sampling) the allocator itself is put aside, by bench/aside.c.
-- What is freed then stays in the profiler's tables: for each block the session is a new one.
--
-- With cpu_engine = "interface" LuaJIT compiles other code while its profiler is on, and drops all code at start and stop: use
-- lockstep.lua for that.
-- With --control nothing is ever profiled: the ratio must be 1 within its interval.

local BLOCK_SECONDS = 1 -- CPU time of a block
local SLICE_SECONDS = 0.002 -- CPU time of a slice, at least; os.clock() counts the process's CPU time in microseconds

local folder = arg[0]:match("^(.*)/") or "."
local measure = dofile(folder .. "/measure.lua")
local options = measure.options(arg)
options.toggled = true
local work = measure.worker(folder, options.program)

if options.check then
  local from = os.clock()
  local checksum = work(50)
  print(string.format("%s %s %.0f %.2f ms", options.program, measure.runtime(), checksum, (os.clock() - from) * 20))
  return
end

local units = 1
for _ = 1, 5 do
  local from = os.clock()
  work(units)
  units = math.max(1, math.ceil(units * SLICE_SECONDS / math.max(os.clock() - from, 1e-5)))
end

-- both sets of the functions that start() replaces
local originals, followed = {}, {}
local NAMES = { "create", "resume", "wrap" }
for _, name in ipairs(NAMES) do originals[name] = coroutine[name] end
local session = measure.session(options)
session.begin(not options.control)
for _, name in ipairs(NAMES) do followed[name] = coroutine[name] end

local function slice(profiled)
  session.pause(not profiled)
  for _, name in ipairs(NAMES) do coroutine[name] = (profiled and followed or originals)[name] end
  local from = os.clock()
  work(units)
  return os.clock() - from
end

local profiled_first = measure.coin(options.seed)
local function pair()
  local on, off
  if profiled_first() then
    on = slice(true)
    off = slice(false)
  else
    off = slice(false)
    on = slice(true)
  end
  return on, off
end

local function warm_up()
  for _ = 1, 20 do pair() end -- the first sight of each function, and the caches, are behind us
end
warm_up()
local samples_before = session.samples()
local is_heap = options.clock:match("^heap%-")

measure.report(options, function()
  if is_heap and not options.control then
    session.pause(false)
    session.finish()
    session.begin(true)
    warm_up()
    samples_before = session.samples()
  end
  local log_ratios, total = {}, 0
  repeat
    local on, off = pair()
    log_ratios[#log_ratios + 1] = math.log(on / off)
    total = total + on + off
  until total >= BLOCK_SECONDS
  local samples = session.samples() - samples_before
  samples_before = samples_before + samples
  return measure.clipped_mean(log_ratios), samples
end)

session.pause(false)
session.finish() -- Lua unloads modules before it frees the last blocks
