-- SPDX-License-Identifier: MIT
-- What recording costs a server under load: its time and its CPU time per request, with and without `luapulse record`, in slices of one run,
-- two by two in random order.
--   lua5.4 slices.lua LUAPULSE PIDS PORT HZ SECONDS FOLDER
local luapulse, pids, port, hz, seconds, folder = table.unpack(arg)
local measure = dofile((arg[0]:match("^(.*)/") or ".") .. "/../measure.lua")
local SLICE = 2

local function run(command)
  local pipe = assert(io.popen(command))
  local text = pipe:read("*a")
  pipe:close()
  return text
end
local read = measure.read

-- Seconds, requests so far, and nanoseconds of all workers on a processor. A request of its own is among them, each time.
local function now()
  local text = run(("date +%%s.%%N; curl -s http://127.0.0.1:%s/status"):format(port))
  local cpu = 0
  for pid in pids:gmatch("%d+") do cpu = cpu + tonumber(read("/proc/" .. pid .. "/schedstat"):match("^%d+") or measure.fail("a worker has ended")) end
  return tonumber(text:match("^[%d.]+")), tonumber(text:match("requests\n%s*%d+%s+%d+%s+(%d+)")), cpu
end

-- Time and CPU time of one request, on the average of a slice.
local function slice()
  local time, requests, cpu = now()
  os.execute("sleep " .. SLICE)
  local time_after, requests_after, cpu_after = now()
  local count = requests_after - requests
  return (time_after - time) / count, (cpu_after - cpu) / count
end

-- Recording begins before the slice and ends behind it: what that takes is not what is asked for.
local function recorded_slice()
  local said, number = folder .. "/said", folder .. "/number"
  os.remove(said)
  os.execute(("taskset -c 0 %s record -F %s -p %s -o %s/slice.pb.gz >%s 2>&1 & echo $! >%s"):format(luapulse, hz, pids, folder, said, number))
  local pid = read(number):match("%d+")
  for _ = 1, 500 do
    if run("ls -l /proc/" .. pid .. "/fd 2>/dev/null"):find("perf_event", 1, true) then break end
    os.execute("sleep 0.02")
  end
  os.execute("sleep 0.2")
  local time, cpu = slice()
  os.execute("kill -INT " .. pid)
  for _ = 1, 500 do
    if read(said):find("written", 1, true) then break end
    os.execute("sleep 0.02")
  end
  return time, cpu, tonumber(read(said):match("(%d+) samples")) or measure.fail("the recorder said: " .. read(said))
end

local times, cpus, samples = {}, {}, 0
local toss = measure.coin(os.time())
local deadline = os.time() + tonumber(seconds)
repeat
  local time, cpu, with_time, with_cpu, taken
  if toss() then
    time, cpu = slice()
    with_time, with_cpu, taken = recorded_slice()
  else
    with_time, with_cpu, taken = recorded_slice()
    time, cpu = slice()
  end
  times[#times + 1] = math.log(with_time / time)
  cpus[#cpus + 1] = math.log(with_cpu / cpu)
  samples = samples + taken
  io.stderr:write(("%d: %.4f %.4f\n"):format(#times, with_time / time, with_cpu / cpu))
until os.time() >= deadline and #times >= 6

local function cell(values)
  local middle, low, high = measure.centre(values)
  return ("%.4f [%.4f, %.4f]"):format(math.exp(middle), math.exp(low), math.exp(high))
end
print(("| %s | %s | %d | %d |"):format(cell(times), cell(cpus), #times, samples))
