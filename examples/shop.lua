-- SPDX-License-Identifier: MIT
-- A small shop that works off a day's orders: a realistic program to look at with a profiler. It does nothing with
-- LuaPulse itself; run it under the profiler to see where its seconds go:
--
--   luapulse run -o shop.html -- lua5.4 examples/shop.lua [orders]
--
-- A few functions are slow on purpose, and their names say so. Can the flame graph tell which matter?

local folder = (arg and arg[0] or "examples/shop.lua"):match("^(.*)/") or "."
package.path = folder .. "/?.lua;" .. package.path

local feed = require "shop.feed"
local json = require "shop.json"
local pricing = require "shop.pricing"
local template = require "shop.template"
local report = require "shop.report"
local pipeline = require "shop.pipeline"

local function parse_order(text) return json.parse(text) end

local function price_order(order)
  order.total = pricing.total(order)
  return order
end

local function write_receipt(order)
  order.receipt = template.receipt(order)
  return order
end

local function work_off(order_count)
  local orders, bytes = {}, 0
  local source = pipeline.source(feed.orders(order_count))
  for order in pipeline.through(source, parse_order, price_order, write_receipt) do
    bytes = bytes + #order.receipt
    order.receipt = nil
    orders[#orders + 1] = order
  end
  return orders, bytes
end

local orders, bytes = work_off(tonumber(arg and arg[1]) or 20000)
print(string.format("%d orders, %.2f in sales, %d KiB of receipts", #orders, report.sales(orders),
  math.floor(bytes / 1024)))
for rank, customer in ipairs(report.best_customers(orders, 3)) do
  print(string.format("%d. %-16s %10.2f", rank, customer.name, customer.spent))
end
