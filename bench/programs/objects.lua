-- SPDX-License-Identifier: MIT
-- Benchmark program: objects. Metatable classes three levels deep, overridden methods with calls to the parent's,
-- operators as metamethods, properties through an __index function, and closures that keep private state.

local function class(parent)
  local new_class = {}
  new_class.__index = new_class
  if parent then
    -- Metamethods are not inherited through __index.
    new_class.__add, new_class.__lt, new_class.__eq = parent.__add, parent.__lt, parent.__eq
  end
  function new_class.new(...)
    local object = setmetatable({}, new_class)
    object:init(...)
    return object
  end
  return setmetatable(new_class, { __index = parent })
end

local Account = class()
function Account:init(owner, balance) self.owner, self.balance, self.moves = owner, balance, 0 end
function Account:deposit(amount)
  self.balance = self.balance + amount
  self.moves = self.moves + 1
end
function Account:can_withdraw(amount) return amount <= self.balance end
function Account:withdraw(amount)
  if not self:can_withdraw(amount) then return false end
  self:deposit(-amount)
  return true
end
function Account:close_month() self.moves = 0 end
function Account.__add(a, b) return Account.new(a.owner, a.balance + b.balance) end
function Account.__lt(a, b) return a.balance < b.balance end

local Savings = class(Account)
function Savings:init(owner, balance, rate)
  Account.init(self, owner, balance)
  self.rate = rate
end
function Savings:interest() return math.floor(self.balance * self.rate / 100) end
function Savings:close_month()
  self:deposit(self:interest())
  Account.close_month(self)
end

local Premium = class(Savings)
function Premium:can_withdraw(amount) return amount <= self.balance + 500 end
function Premium:interest() return Savings.interest(self) + 1 end

-- An object whose fields are computed when they are read.
local function summary_of(accounts)
  local fields = {
    total = function()
      local sum = 0
      for i = 1, #accounts do sum = sum + accounts[i].balance end
      return sum
    end,
    richest = function()
      local best = accounts[1]
      for i = 2, #accounts do
        if best < accounts[i] then best = accounts[i] end
      end
      return best
    end,
  }
  return setmetatable({}, { __index = function(_, name) return fields[name]() end })
end

local function counter()
  local value = 0
  return {
    step = function(by) value = value + by end,
    value = function() return value end,
  }
end

return function()
  local accounts, refused = {}, counter()
  for i = 1, 60 do
    local kind = i % 3
    if kind == 0 then accounts[i] = Account.new("a" .. i, i * 100)
    elseif kind == 1 then accounts[i] = Savings.new("s" .. i, i * 100, 2)
    else accounts[i] = Premium.new("p" .. i, i * 100, 3) end
  end
  local summary = summary_of(accounts)
  local sum = 0
  for month = 1, 72 do
    for i = 1, #accounts do
      local from, to = accounts[i], accounts[(i * 7 + month) % #accounts + 1]
      local amount = (i * 37 + month * 11) % 900
      if from:withdraw(amount) then to:deposit(amount) else refused.step(1) end
      if i % 8 == 0 then sum = sum + (from + to).balance end
    end
    for i = 1, #accounts do accounts[i]:close_month() end
    sum = sum + summary.total + summary.richest.balance
  end
  return sum + refused.value()
end
