-- For good at the bottom of a stack of three functions that call each other in turn, twelve times, through a coroutine half-way. Each call is on a
-- line of its own. It prints "ready" when it begins.
local first, second, third
local function burn()
  local x = 0
  while true do
    for i = 1, 1000 do x = (x + i * 3) % 1000003 end
  end
end
function first(n)
  local r = second(n) return r
end
function second(n)
  local r = n == 6 and coroutine.wrap(third)(n)
    or third(n) return r
end
function third(n)
  local r = n == 1 and burn()
    or first(n - 1) return r
end
io.write("ready\n")
io.flush()
first(12)
