-- SPDX-License-Identifier: MIT
-- Benchmark program: numbers. Loops over arrays with few calls: gravity between bodies (floating point), a matrix
-- product, a prime sieve and a modular generator (integers that stay exact in a double).

local sqrt, floor = math.sqrt, math.floor

local function make_bodies(count)
  local bodies = {}
  for i = 1, count do
    bodies[i] = { x = i * 1.5, y = (i * i) % 7 - 3.0, z = (i * 5) % 11 * 0.5, vx = 0.0, vy = 0.01 * i, vz = 0.0,
                  mass = 1.0 + i % 3 }
  end
  return bodies
end

local function advance(bodies, dt)
  local count = #bodies
  for i = 1, count do
    local a = bodies[i]
    for j = i + 1, count do
      local b = bodies[j]
      local dx, dy, dz = a.x - b.x, a.y - b.y, a.z - b.z
      local square = dx * dx + dy * dy + dz * dz + 0.01
      local pull = dt / (square * sqrt(square))
      local pull_a, pull_b = b.mass * pull, a.mass * pull
      a.vx, a.vy, a.vz = a.vx - dx * pull_a, a.vy - dy * pull_a, a.vz - dz * pull_a
      b.vx, b.vy, b.vz = b.vx + dx * pull_b, b.vy + dy * pull_b, b.vz + dz * pull_b
    end
  end
  for i = 1, count do
    local a = bodies[i]
    a.x, a.y, a.z = a.x + dt * a.vx, a.y + dt * a.vy, a.z + dt * a.vz
  end
end

local function matrix(size, seed)
  local rows = {}
  for i = 1, size do
    local row = {}
    for j = 1, size do row[j] = (i * seed + j) % 10 end
    rows[i] = row
  end
  return rows
end

local function trace_of_product(a, b)
  local size, trace = #a, 0
  for i = 1, size do
    local row = a[i]
    for j = 1, size do
      local cell = 0
      for k = 1, size do cell = cell + row[k] * b[k][j] end
      if i == j then trace = trace + cell end
    end
  end
  return trace
end

local function count_primes(limit)
  local composite, primes = {}, 0
  for i = 1, limit do composite[i] = false end
  for i = 2, limit do
    if not composite[i] then
      primes = primes + 1
      for j = i * i, limit, i do composite[j] = true end
    end
  end
  return primes
end

local function modular_walk(steps)
  local x, odd = 1, 0
  for _ = 1, steps do
    x = x * 16807 % 2147483647
    odd = odd + x % 2
  end
  return x + odd
end

local left, right = matrix(32, 3), matrix(32, 7)

return function()
  local bodies = make_bodies(6)
  for _ = 1, 300 do advance(bodies, 0.01) end
  local sum = 0
  for i = 1, #bodies do sum = sum + floor(bodies[i].x * 1e6) end
  return sum + trace_of_product(left, right) + count_primes(15000) + modular_walk(30000)
end
