-- Several VMs of a process are profiled at once, each by itself: on one thread in turns, one inside another, on threads of their own.
local t = require "t"
local pulse = require "luapulse"
local host = require "host"

-- Another VM in which `only_NAME(seconds)` burns CPU time; profiled unless told otherwise.
local function open(name, unprofiled)
  local vm = host.vm_open()
  host.vm_run(vm, ([[
    pulse, t = require "luapulse", require "t"
    function only_%s(seconds) t.burn(seconds) end
  ]]):format(name))
  if unprofiled then return vm end
  host.vm_run(vm, "pulse.start { cpu_hz = 1000 }")
  t.equal(host.vm_run(vm, "return pulse.status().engine .. pulse.status().note"), "walk", "engine and note of VM " .. name)
  return vm
end

local function samples_of(vm) return tonumber(host.vm_run(vm, "return pulse.status().samples")) end

-- Has the functions named, and none of the others.
local function check_functions(folded, own, others)
  t.contains(folded, own, "the profile of its own VM")
  for _, other in ipairs(others) do
    if folded:find(other, 1, true) then error(other .. " is in the profile of another VM:\n" .. folded, 2) end
  end
end

t.test("in_turns_on_one_thread", function()
  local a, b = open("a"), open("b")
  local function only_here(seconds) t.burn(seconds) end
  pulse.start { cpu_hz = 1000 }
  repeat
    host.vm_run(a, "only_a(0.003)")
    host.vm_run(b, "only_b(0.003)")
    only_here(0.003)
  until samples_of(a) >= 60 and samples_of(b) >= 60 and pulse.status().samples >= 60
  local profile = pulse.stop()
  check_functions(host.vm_run(a, "return pulse.stop():folded()"), "only_a", { "only_b", "only_here" })
  check_functions(host.vm_run(b, "return pulse.stop():folded()"), "only_b", { "only_a", "only_here" })
  check_functions(profile:folded(), "only_here", { "only_a", "only_b" })
  -- the time of a VM that was called is its own, not that of who called it
  local total = profile:stats().cpu_inclusive_samples_total
  t.truthy(t.samples_with(profile, "only_here;t.burn") > total * 0.8, "samples of its own in\n" .. profile:folded())
  host.vm_close(a)
  host.vm_close(b)
end)

t.test("a_vm_that_is_not_profiled_is_the_work_of_who_calls_it", function()
  local vm = open("a", true)
  pulse.start { cpu_hz = 1000 }
  repeat host.vm_run(vm, "only_a(0.005)") until pulse.status().samples >= 60
  local profile = pulse.stop()
  check_functions(profile:folded(), "host.vm_run", { "only_a" })
  local total = profile:stats().cpu_inclusive_samples_total
  t.truthy(t.row(profile, "host.vm_run").flat > total * 0.8, "samples in the call in\n" .. profile:folded())
  host.vm_close(vm)
end)

t.test("a_profiled_vm_inside_one_that_is_not", function()
  local vm = open("a")
  repeat host.vm_run(vm, "only_a(0.005)") until samples_of(vm) >= 60
  local folded = host.vm_run(vm, "return pulse.stop():folded()")
  check_functions(folded, "only_a", { "vm_run", "samples_of" })
  host.vm_close(vm)
end)

t.test("on_threads_of_their_own", function()
  local codes = {}
  for i = 1, 4 do
    codes[i] = ([[
      local pulse, t = require "luapulse", require "t"
      local function only_%d(count) t.burn_samples(count) end
      pulse.start { cpu_hz = 500 }
      local status = pulse.status()
      if status.engine ~= "walk" then error("engine " .. status.engine .. ": " .. status.note) end
      only_%d(40)
      return pulse.stop():folded()
    ]]):format(i, i)
  end
  local profiles = { host.threads((table.unpack or unpack)(codes)) }
  for i = 1, 4 do
    local others = {}
    for k = 1, 4 do if k ~= i then others[#others + 1] = "only_" .. k end end
    check_functions(profiles[i], "only_" .. i, others)
  end
end)

t.test("luajits_profiler_serves_one_vm", function()
  if not t.is_luajit then return end
  local vm = host.vm_open()
  host.vm_run(vm, 'require "luapulse".start { cpu_engine = "interface" }')
  t.fails("another VM of this process is being profiled", pulse.start, { cpu_engine = "interface" })
  pulse.start() -- walking does
  t.equal(pulse.status().engine, "walk", "engine")
  t.burn_samples(5)
  pulse.stop()
  host.vm_close(vm)
  pulse.start { cpu_engine = "interface" }
  pulse.stop()
end)

t.run()
