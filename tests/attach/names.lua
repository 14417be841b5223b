-- Functions that only tables can name: their sources are gone. Each stays on the stack of a coroutine. Prints "ready".
local folder = (...)
package.path = folder .. "/?.lua"
package.cpath = folder .. "/?.so"
local load = loadstring or load
kept = {}
-- the function fails, or yields, and its frame stays
local function keep(f, ...)
  local co = coroutine.create(function(...) local r = f(...) return r end) -- 5.1 takes no C function
  coroutine.resume(co, ...)
  kept[#kept + 1] = co
end

-- a module of package.loaded, with a table in it
local function write(name, text)
  local file = assert(io.open(folder .. "/" .. name, "w"))
  file:write(text)
  file:close()
end
write("cart.lua", [[
local M, tax = {}, {}
local yield = coroutine.yield
M["add"], tax["rate"] = function() yield() return 1 end, function() yield() return 2 end
M.tax = tax
return M
]])
local cart = require "cart"
os.remove(folder .. "/cart.lua")
keep(cart.add)
keep(cart.tax.rate)

-- classes in globals, without a source: methods, a metatable, what is inherited
local chunk = assert(load([[
local yield, base = coroutine.yield, {}
Account = {}
Account.__index = Account
Account.deposit = (function() return function() yield() return 1 end end)()
base["interest"] = (function() return function() yield() return 1 end end)()
Savings = setmetatable({}, { __index = base, __call = (function() return function() yield() return 1 end end)() })
another_name = string.rep
return function() Savings() return 1 end
]], "=inline"))
local call = chunk()
keep(Account.deposit)
keep(Savings.interest)
keep(call)

-- of Lua itself: what fails stays on the stack of its coroutine
keep(string.rep)
keep(table.concat)
keep(coroutine.create)
keep(io.lines, folder .. "/none")
keep(setmetatable)
keep(function() return io.stdout.write(1) or 1 end)

local names = require "names_module"
keep(names.fail)
keep(names.deep.fail)
keep(function() return names.object.fail() or 1 end)
keep(names.make())

-- what coroutine.wrap returns is on a stack while its coroutine runs
io.write("ready\n")
io.flush()
local function wait() os.execute("exec sleep 1000") return 1 end
for x in coroutine.wrap(wait) do print(x) end
