-- SPDX-License-Identifier: MIT
-- The day's orders as they would come in over the network: JSON texts, always the same ones.
local feed = {}

local first_names = { "Ada", "Bo", "Chen", "Dora", "Emil", "Fay", "Gus", "Hana", "Ivo", "Jun" }
local last_names = { "Abel", "Brandt", "Costa", "Diaz", "Eng", "Falk", "Gray", "Holm" }
local goods = { "tea", "coffee", "cups <small>", "honey & jam", "biscuits", "kettle", "\\\"best\\\" spoon" }

-- Park and Miller's generator: the same orders on every Lua.
local state = 20260
local function random(limit)
  state = state * 16807 % 2147483647
  return state % limit + 1
end

local function order_text(id)
  local items = {}
  for i = 1, random(5) do
    items[i] = string.format('    { "name": "%s", "price": %d.%02d, "quantity": %d }', goods[random(#goods)], random(40),
      random(100) - 1, random(12))
  end
  local customer = first_names[random(#first_names)] .. " " .. last_names[random(#last_names)]
  return string.format('{\n  "id": %d,\n  "customer": "%s",\n  "coupon": "SAVE-%03d",\n  "express": %s,\n  "items": [\n%s\n  ]\n}',
    id, customer, random(400), tostring(random(4) == 1), table.concat(items, ",\n"))
end

-- An iterator over `count` orders.
function feed.orders(count)
  local id = 0
  return function()
    id = id + 1
    if id <= count then return order_text(id) end
  end
end

return feed
