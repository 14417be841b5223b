-- A test file is a list of named tests: `lua FILE --list` names them, `lua FILE NAME` runs one, `lua FILE` runs all.
-- Names have no spaces. A test that returns without an error has passed.
local t = { runtime = os.getenv("RUNTIME") or "?" }
t.is_luajit = type(rawget(_G, "jit")) == "table"
t.version = t.is_luajit and "LuaJIT" or _VERSION
-- of PUC Lua, to compare with: 5.4
t.number = not t.is_luajit and tonumber(_VERSION:match("%d+%.%d+")) or 0

-- tests/agent/with tells the sanitizers what to do by it
t.sanitized = os.getenv("ASAN_OPTIONS") ~= nil

-- So many rounds; a tenth under a sanitizer, as FEWER() of tests/sanitized.h.
function t.fewer(rounds) return t.sanitized and math.ceil(rounds / 10) or rounds end

local names, tests = {}, {}

function t.test(name, body)
  assert(not tests[name], "two tests are called " .. name)
  names[#names + 1], tests[name] = name, body
end

-- at the end of every file
function t.run()
  local wanted = arg[1]
  if wanted == "--list" then
    print(table.concat(names, "\n"))
    return
  end
  if wanted and not tests[wanted] then error("no test is called " .. wanted) end
  for _, name in ipairs(wanted and { wanted } or names) do
    local ok, message = xpcall(tests[name], debug.traceback)
    if not ok then
      io.stderr:write(name, ": ", tostring(message), "\n")
      os.exit(1)
    end
  end
end

function t.equal(got, expected, what)
  if got ~= expected then
    error((what or "value") .. ": expected " .. tostring(expected) .. ", got " .. tostring(got), 2)
  end
end

function t.truthy(value, what)
  if not value then error((what or "value") .. " is " .. tostring(value), 2) end
end

-- low <= value <= high
function t.between(value, low, high, what)
  if not (value >= low and value <= high) then
    error(("%s: expected %s to %s, got %s"):format(what or "value", tostring(low), tostring(high), tostring(value)), 2)
  end
end

function t.contains(text, part, what)
  if not tostring(text):find(part, 1, true) then
    error((what or "text") .. ": expected in it: " .. part .. "\ngot: " .. tostring(text), 2)
  end
end

-- body must fail with a message that holds the text
function t.fails(text, body, ...)
  local ok, message = pcall(body, ...)
  if ok then error("no error; expected one with: " .. text, 2) end
  if not tostring(message):find(text, 1, true) then
    error("the error was: " .. tostring(message) .. "\nexpected in it: " .. text, 2)
  end
end

-- spins for that much CPU time of the process, in seconds
function t.burn(seconds)
  local stop = os.clock() + seconds
  local x = 0
  -- seldom asked: that is a system call, and time in the kernel is sampled by few and heavy samples
  while os.clock() < stop do for i = 1, 2000 do x = x + i % 7 end end
  return x
end

-- spins until the session has that many samples more: how long that takes is the machine's affair
function t.burn_samples(count)
  local pulse = require "luapulse"
  local enough, give_up = pulse.status().samples + count, os.clock() + 30
  while pulse.status().samples < enough do
    t.burn(0.005)
    if os.clock() > give_up then error("no " .. count .. " samples in 30 s of CPU time", 2) end
  end
end

-- The instructions clock, dense and reproducible; more options may be given.
function t.exact(mean, options)
  local all = { cpu_clock = "instructions", cpu_sample_mean_instr = mean or 100, cpu_max_samples_per_sec = 0, seed = 4711 }
  for name, value in pairs(options or {}) do all[name] = value end
  return all
end

-- The profile of one call of body.
function t.profile(options, body, ...)
  local pulse = require "luapulse"
  pulse.start(options)
  body(...)
  return pulse.stop()
end

-- Functions of a profile by name, counted from its samples: { flat =, cum =, file =, defined =, samples = }.
function t.functions(profile)
  local by_name = {}
  for _, sample in ipairs(profile:samples()) do
    local seen = {}
    for depth, frame in ipairs(sample.stack) do
      local f = by_name[frame.name]
      if not f then
        f = { flat = 0, cum = 0, file = frame.file, defined = frame.defined, lines = {} }
        by_name[frame.name] = f
      end
      f.lines[frame.line] = true
      if depth == 1 then f.flat = f.flat + sample.samples end
      if not seen[frame.name] then f.cum = f.cum + sample.samples end
      seen[frame.name] = true
    end
  end
  return by_name
end

-- The stacks of a profile as text, root first: { ["a;b;c"] = samples }.
function t.stacks(profile)
  local stacks = {}
  for _, sample in ipairs(profile:samples()) do
    local path = {}
    for depth = #sample.stack, 1, -1 do path[#path + 1] = sample.stack[depth].name end
    local text = table.concat(path, ";")
    stacks[text] = (stacks[text] or 0) + sample.samples
  end
  return stacks
end

-- How many samples have a stack with that piece of path in it, root first.
function t.samples_with(profile, path)
  local count = 0
  for text, samples in pairs(t.stacks(profile)) do
    if (";" .. text .. ";"):find(";" .. path .. ";", 1, true) then count = count + samples end
  end
  return count
end

-- The name must be in the profile; returns its row.
function t.row(profile, name)
  local row = t.functions(profile)[name]
  if not row then error("no function is called " .. name .. " in\n" .. profile:folded(), 2) end
  return row
end

-- count of n is what a share p gives, by the normal approximation of the binomial: within 4 sigma.
function t.share(count, n, p, what)
  local sigma = math.sqrt(p * (1 - p) / n)
  local off = (count / n - p) / sigma
  if math.abs(off) > 4 then
    error(("%s: share %.4f of %d samples, expected %.4f: off by %.1f sigma"):format(what, count / n, n, p, off), 2)
  end
end

return t
