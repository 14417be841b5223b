-- Coroutines that wait: 28 in one place, 3 that were never resumed, 2 in another place of the same function, one alone, 2 dead.
local keep = {}
local function wait_for_request(slow)
  if slow then
    coroutine.yield()
  else
    coroutine.yield()
  end
end
local function serve(slow)
  wait_for_request(slow)
  return slow
end
local function made(slow)
  local co = coroutine.create(serve)
  coroutine.resume(co, slow)
  keep[#keep + 1] = co
  return co
end
for i = 1, 30 do
  made(i % 15 == 0)
  if i % 10 == 0 then keep[#keep + 1] = coroutine.create(serve) end
end
for _ = 1, 2 do coroutine.resume(made(false)) end
keep[#keep + 1] = coroutine.create(function() coroutine.yield() end)
coroutine.resume(keep[#keep])
print "ready"
io.stdout:flush()
while true do end
