-- SPDX-License-Identifier: MIT
-- The figures at the end of the day. Slow on purpose: the comparison of the sort builds its keys at every call.
local report = {}

function report.sales(orders)
  local sum = 0
  for _, order in ipairs(orders) do sum = sum + order.total end
  return sum
end

local function compare_by_built_keys(a, b)
  local key_a = string.format("%s %08d", a.customer:lower(), a.id)
  local key_b = string.format("%s %08d", b.customer:lower(), b.id)
  return key_a < key_b
end

-- The `count` customers who spent most, each as name and spent.
function report.best_customers(orders, count)
  table.sort(orders, compare_by_built_keys)
  local customers = {}
  for _, order in ipairs(orders) do
    local last = customers[#customers]
    if not last or last.name ~= order.customer then
      last = { name = order.customer, spent = 0 }
      customers[#customers + 1] = last
    end
    last.spent = last.spent + order.total
  end
  table.sort(customers, function(a, b) return a.spent > b.spent end)
  for i = #customers, count + 1, -1 do customers[i] = nil end
  return customers
end

return report
