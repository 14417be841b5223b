-- SPDX-License-Identifier: MIT
-- What recording costs a server under load. Two of the same share a processor, each with its clients; `luapulse record` looks at the one
-- or the other, by turns in random order, and both are measured over the same time: what else goes on in the machine is common to both.
--   lua5.4 slices.lua LUAPULSE PID,PORT PID,PORT HZ SECONDS FOLDER
local luapulse, one, other, hz, seconds, folder = table.unpack(arg)
local measure = dofile((arg[0]:match("^(.*)/") or ".") .. "/../measure.lua")
local SLICE = 2

local function run(command)
  local pipe = assert(io.popen(command))
  local text = pipe:read("*a")
  pipe:close()
  return text
end
local read = measure.read

-- Requests so far, and nanoseconds of its worker on a processor. A request of its own is among them, each time.
local function now(server)
  local text = run(("curl -s http://127.0.0.1:%s/status"):format(server.port))
  local cpu = read("/proc/" .. server.pid .. "/schedstat"):match("^%d+") or measure.fail("a worker has ended")
  return { requests = tonumber(text:match("requests\n%s*%d+%s+%d+%s+(%d+)")), cpu = tonumber(cpu) }
end

-- Of a slice: how many times the requests of the second server the first had, and how many times the CPU time for one.
local function slice(first, second)
  local before, before2 = now(first), now(second)
  os.execute("sleep " .. SLICE)
  local after, after2 = now(first), now(second)
  local count, count2 = after.requests - before.requests, after2.requests - before2.requests
  return count / count2, (after.cpu - before.cpu) / count / ((after2.cpu - before2.cpu) / count2)
end

-- Recording begins before the slice and ends behind it: what that takes is not what is asked for.
local function recorded_slice(recorded, left_alone)
  local said, number = folder .. "/said", folder .. "/number"
  os.remove(said)
  os.execute(("taskset -c 0 %s record -F %s -p %s -o %s/slice.pb.gz >%s 2>&1 & echo $! >%s"):format(luapulse, hz, recorded.pid, folder, said, number))
  local pid = read(number):match("%d+")
  for _ = 1, 500 do
    if run("ls -l /proc/" .. pid .. "/fd 2>/dev/null"):find("perf_event", 1, true) then break end
    os.execute("sleep 0.02")
  end
  os.execute("sleep 0.2")
  local requests, cpu = slice(recorded, left_alone)
  os.execute("kill -INT " .. pid)
  for _ = 1, 500 do
    if read(said):find("written", 1, true) then break end
    os.execute("sleep 0.02")
  end
  return requests, cpu, tonumber(read(said):match("(%d+) samples")) or measure.fail("the recorder said: " .. read(said))
end

local function server(text)
  local pid, port = text:match("^(%d+),(%d+)$")
  return { pid = pid, port = port }
end

one, other = server(one), server(other)
local requests, cpus, samples = {}, {}, 0
local toss = measure.coin(os.time())
local deadline = os.time() + tonumber(seconds)
repeat
  if toss() then one, other = other, one end
  local count, cpu, taken = recorded_slice(one, other)
  local count2, cpu2, taken2 = recorded_slice(other, one)
  -- each server was once the one and once the other: what tells them apart has gone
  requests[#requests + 1] = math.log(count * count2) / 2
  cpus[#cpus + 1] = math.log(cpu * cpu2) / 2
  samples = samples + taken + taken2
  io.stderr:write(("%d: %.4f %.4f\n"):format(#cpus, math.exp(requests[#requests]), math.exp(cpus[#cpus])))
until os.time() >= deadline and #cpus >= 6

local function cell(values)
  local middle, low, high = measure.centre(values)
  return ("%.4f [%.4f, %.4f]"):format(math.exp(middle), math.exp(low), math.exp(high))
end
print(("| %s | %s | %d | %d |"):format(cell(requests), cell(cpus), #cpus, samples))
