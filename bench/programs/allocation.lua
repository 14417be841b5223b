-- SPDX-License-Identifier: MIT
-- Benchmark program: allocation. Binary trees, linked lists, points, closures and growing tables: almost all the time
-- goes to the allocator and the collector.

local function build_tree(depth)
  if depth == 0 then return { value = 1 } end
  return { left = build_tree(depth - 1), right = build_tree(depth - 1), value = depth }
end

local function sum_tree(node)
  if not node.left then return node.value end
  return node.value + sum_tree(node.left) + sum_tree(node.right)
end

local function build_list(length)
  local head
  for i = 1, length do head = { next = head, value = i } end
  return head
end

local function sum_list(head)
  local sum = 0
  while head do
    sum, head = sum + head.value, head.next
  end
  return sum
end

local function points(count)
  local last = { 0, 0 }
  for i = 1, count do last = { last[1] + i % 3, last[2] + i % 5 } end
  return last[1] + last[2]
end

local function closures(count)
  local makers = {}
  for i = 1, count do
    makers[i] = function(x) return x + i end
  end
  local sum = 0
  for i = 1, count do sum = makers[i](sum) end
  return sum
end

local function growing_tables(count)
  local sum = 0
  for i = 1, count do
    local array, map = {}, {}
    for j = 1, 12 do array[#array + 1] = j * i end
    for j = 1, 6 do map["key" .. j] = array[j] end
    sum = sum + #array + map.key6
  end
  return sum
end

return function()
  local kept = build_tree(9)
  local sum = 0
  for depth = 2, 8 do
    for _ = 1, 3 do sum = sum + sum_tree(build_tree(depth)) end
  end
  sum = sum + sum_list(build_list(4000)) + points(6000) + closures(2000) + growing_tables(300)
  return sum + sum_tree(kept)
end
