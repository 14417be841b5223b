local function hash(n)
  local h = 0
  for i = 1, n do h = (h * 31 + i) % 65521 end
  return h
end
local sum = 0
for i = 1, tonumber(ARGV[1]) do
  redis.call("SET", "k" .. i % 100, i)
  sum = sum + hash(50)
end
return sum
