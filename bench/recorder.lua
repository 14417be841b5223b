-- SPDX-License-Identifier: MIT
-- A session for measure.lua in which the profiler is another process: `luapulse record` on this one, on another CPU.
--   dofile "recorder.lua" (read, engine, hz, control) -> begin(profiled), finish() -> samples

local function wait_for(what, condition)
  for _ = 1, 1000 do
    local result = condition()
    if result then return result end
    os.execute("sleep 0.01")
  end
  error("bench: waited in vain for " .. what)
end

return function(read, engine, hz, control)
  local pid = read("/proc/self/stat"):match("^%d+")
  local base = os.tmpname()
  local recorder
  local session = {}
  function session.begin(profiled)
    if profiled and not control then
      -- its own CPU, so that what is measured is what the process itself bears
      os.execute(string.format(
        "taskset -c 0 build/luapulse record --engine %s -F %d -p %s -o %s.pb.gz >%s 2>&1 & echo $! >%s.pid",
        engine, hz, pid, base, base, base))
      recorder = wait_for("the recorder's number", function() return read(base .. ".pid"):match("%d+") end)
      wait_for("the recorder: " .. read(base), function() return read(base):match("recording") end)
    end
    if jit then jit.flush() end
  end
  function session.finish()
    if not recorder then return 0 end
    os.execute("kill -INT " .. recorder)
    local samples = wait_for("the recorder's end", function() return read(base):match("(%d+) samples") end)
    wait_for("its process", function() return read("/proc/" .. recorder .. "/stat") == "" end)
    recorder = nil
    os.remove(base)
    os.remove(base .. ".pid")
    os.remove(base .. ".pb.gz")
    return tonumber(samples)
  end
  return session
end
