#!lua name=shop
local function discount(n)
  local x = 0
  for i = 1, n do x = x + i % 7 end
  return x
end
local function price(keys, args)
  local x = discount(tonumber(args[1]))
  return x
end
redis.register_function('price', price)
