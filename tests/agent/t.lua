-- A test file is a list of named tests: `lua FILE --list` names them, `lua FILE NAME` runs one, `lua FILE` runs all.
-- Names have no spaces. A test that returns without an error has passed.
local t = { runtime = os.getenv("RUNTIME") or "?" }
t.is_luajit = type(rawget(_G, "jit")) == "table"

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
  while os.clock() < stop do for i = 1, 200 do x = x + i % 7 end end
  return x
end

return t
