-- SPDX-License-Identifier: MIT
-- Prices an order by a list of rules, each an object of a small class tree. Slow on purpose: coupons are looked
-- up by reading the whole list.
local pricing = {}

local Rule = {}
Rule.__index = Rule
function Rule.extend()
  local class = setmetatable({}, Rule)
  class.__index = class
  return class
end
function Rule.new(class, fields) return setmetatable(fields, class) end
function Rule:applies() return true end
function Rule:apply(_, amount) return amount end

local BulkDiscount = Rule.extend()
function BulkDiscount:applies(order)
  local pieces = 0
  for _, item in ipairs(order.items) do pieces = pieces + item.quantity end
  return pieces >= self.from_pieces
end
function BulkDiscount:apply(_, amount) return amount * (1 - self.share) end

local coupons = {}
for i = 1, 400 do coupons[i] = { code = string.format("SAVE-%03d", i), amount = i % 9 } end

local function find_coupon_in_whole_list(code)
  local found
  for i = 1, #coupons do
    if coupons[i].code == code then found = coupons[i] end -- and reads on
  end
  return found
end

local Coupon = Rule.extend()
function Coupon:applies(order) return find_coupon_in_whole_list(order.coupon) ~= nil end
function Coupon:apply(order, amount) return math.max(0, amount - find_coupon_in_whole_list(order.coupon).amount) end

local ExpressFee = Rule.extend()
function ExpressFee:applies(order) return order.express end
function ExpressFee:apply(_, amount) return amount + self.fee end

local SalesTax = Rule.extend()
function SalesTax:apply(_, amount) return amount * (1 + self.rate) end

local rules = {
  BulkDiscount:new { from_pieces = 20, share = 0.05 },
  Coupon:new {},
  ExpressFee:new { fee = 7.5 },
  SalesTax:new { rate = 0.2 },
}

local function sum_of_items(order)
  local sum = 0
  for _, item in ipairs(order.items) do sum = sum + item.price * item.quantity end
  return sum
end

function pricing.total(order)
  local amount = sum_of_items(order)
  for _, rule in ipairs(rules) do
    if rule:applies(order) then amount = rule:apply(order, amount) end
  end
  return amount
end

return pricing
