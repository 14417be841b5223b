-- SPDX-License-Identifier: MIT
-- Measures what profiling costs, as overhead.lua does and with the same arguments and output, where the profiler cannot be
-- toggled every few milliseconds (LuaJIT by its interface, whose start and stop drop all compiled code; the heap when it is traced, which has
-- to see every free): two processes take turns of about 3 ms on one CPU, one profiled, one not.
--
--   taskset -c 1 lua bench/lockstep.lua PROGRAM [hz] [max_seconds] [clock] [--control] [--seed=N]
--
-- The method. Two processes need no toggling: each has its own CPU timer, which only runs in its own turns. A block is
-- 0.4 s of turns of each process, in random order within a turn; its value is the clipped mean of the turns' log-ratios.
-- The first half of a turn is not counted: in it each process brings back into the caches what the other has put out of them, which
-- is more with a profiler than without, and is nothing a program has to do that is left alone.
-- Then the roles are swapped: the mean of the two blocks is free of what the processes differ in by themselves (memory
-- layout), and is one pair of the output. start() and stop() are outside the timed part.

local TURN_SECONDS = 0.003 -- CPU time of a turn, as far as it counts
local BLOCK_SECONDS = 0.4 -- CPU time of a block, per process
local WARM_SECONDS = 0.05 -- after toggling

local folder = arg[0]:match("^(.*)/") or "."
local measure = dofile(folder .. "/measure.lua")

-- The worker: obeys lines on its standard input, answers each with a number on the pipe at `answers`.
local function serve(answers, options)
  local work = measure.worker(folder, options.program)
  local session = measure.session(options)
  local out = assert(io.open(answers, "w"))
  local function toggle(profiled)
    session.begin(profiled)
    local from = os.clock()
    repeat work(1) until os.clock() - from >= WARM_SECONDS
    collectgarbage()
    collectgarbage()
    return 0
  end
  local commands = {
    on = function() return toggle(true) end,
    off = function() return toggle(false) end,
    finish = session.finish,
    run = function(units)
      work(units)
      local from = os.clock()
      work(units)
      return os.clock() - from
    end,
  }
  for line in io.lines() do
    local command, units = line:match("^(%a+) ?(%d*)$")
    out:write(string.format("%.6f\n", commands[command](tonumber(units))))
    out:flush()
  end
end

local function quoted(word) return "'" .. word:gsub("'", "'\\''") .. "'" end

-- Starts a worker; returns a function that sends it a command and waits for the answer.
local function spawn()
  local answers = os.tmpname()
  os.remove(answers)
  os.execute("mkfifo " .. quoted(answers))
  local words = { "exec", quoted(arg[-1]), quoted(arg[0]), quoted("--worker=" .. answers) }
  for _, word in ipairs(arg) do words[#words + 1] = quoted(word) end
  -- The shell that fails to run a worker opens and closes the pipe in its stead, or the open below would wait for ever.
  local commands = assert(io.popen("(" .. table.concat(words, " ") .. ") || : > " .. quoted(answers), "w"))
  local replies = assert(io.open(answers))
  os.remove(answers)
  return function(command)
    commands:write(command, "\n")
    commands:flush()
    return tonumber(replies:read("*l") or measure.fail("a worker ended early"))
  end
end

local function compare(options)
  local first, second = spawn(), spawn()
  local profiled_first = measure.coin(options.seed)
  first("off")
  local units = 1
  for _ = 1, 4 do units = math.max(1, math.ceil(units * TURN_SECONDS / first("run " .. units))) end
  local turn = "run " .. units

  local function block(profiled, plain)
    profiled("on")
    plain("off")
    local log_ratios, total = {}, 0
    repeat
      local on, off
      if profiled_first() then
        on = profiled(turn)
        off = plain(turn)
      else
        off = plain(turn)
        on = profiled(turn)
      end
      log_ratios[#log_ratios + 1] = math.log(on / off)
      total = total + off
    until total >= BLOCK_SECONDS
    return measure.clipped_mean(log_ratios), profiled("finish")
  end

  measure.report(options, function()
    local one, samples = block(first, second)
    local other, more_samples = block(second, first)
    return (one + other) / 2, samples + more_samples
  end)
end

local answers = arg[1] and arg[1]:match("^%-%-worker=(.*)$")
if answers then table.remove(arg, 1) end
local options = measure.options(arg)
if answers then serve(answers, options) else compare(options) end
