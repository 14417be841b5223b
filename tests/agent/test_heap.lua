-- What was allocated where, and what of it is in use: lines, names, collections, rates.
local t = require "t"
local pulse = require "luapulse"
local heap = require "heap"
local host = require "host"

local is_54, is_51 = _VERSION == "Lua 5.4", _VERSION == "Lua 5.1" and not t.is_luajit
local has_types = _VERSION ~= "Lua 5.1"
if t.is_luajit then jit.off() end -- the compiler allocates wherever it is called; a test of its own is below

-- -- lines ------------------------------------------------------------------------------------------------------------

-- A statement of each kind, with the blocks it allocates: LuaJIT keeps small arrays within their tables.
local kinds = {
  { "x = {}", 1 },
  { "x = {1, 2, 3}", t.is_luajit and 1 or 2 },
  { "x = {a = 1, b = 2}", 2 },
  { "do local u = i x = function() return u end end", 2 },
}
local LINES, ROUNDS = 400, 20

local function many_lines()
  local code = { "return function(i) local x" }
  for line = 2, LINES do code[line] = kinds[line % #kinds + 1][1] end
  code[LINES + 1] = "return x end"
  return heap.load(table.concat(code, "\n"), "=many.lua")()
end

-- The collector and the table of strings allocate where they happen to be called: on 5.1 they cannot always be told from the line.
-- Sanitizers make the frames of the module so large that a pc of before may lie in one of them, nearer than that of the line: there blocks of
-- some lines are on a line before their own (5.5, with -O1).
local is_sanitized = (os.getenv "LD_PRELOAD" or ""):find("asan", 1, true) ~= nil
local function check_lines(profile, more)
  local lines, off, wanted_all, got_all = heap.lines(profile, "many.lua", "[gc]"), {}, 0, 0
  for line = 2, LINES do
    local wanted, got = kinds[line % #kinds + 1][2] * ROUNDS, lines[line] and lines[line].alloc_objects or 0
    if got < wanted or got > wanted + more then off[#off + 1] = ("line %d: %d, not %d"):format(line, got, wanted) end
    wanted_all, got_all = wanted_all + wanted, got_all + got
  end
  if not is_sanitized then return t.equal(table.concat(off, "\n"), "", "blocks by line") end
  t.between(#off, 0, LINES / 20, "lines that have not their own blocks alone: " .. table.concat(off, ", "))
  t.between(got_all - wanted_all, 0, more * LINES, "blocks of all lines")
end

t.test("each_line_has_its_blocks", function()
  local body = many_lines()
  check_lines(heap.trace(function() for i = 1, ROUNDS do body(i) end end), 0)
end)

t.test("each_line_has_its_blocks_while_the_collector_runs", function()
  local body = many_lines()
  for _, mode in ipairs(t.number >= 5.4 and { "generational", "incremental" } or { "count" }) do
    collectgarbage(mode)
    collectgarbage() -- and with it the stacks of coroutines of other tests, which it would shrink
    collectgarbage()
    pulse.start { heap = "tracing" }
    for i = 1, ROUNDS do body(i) end
    check_lines(pulse.stop(), is_51 and 2 or 0)
  end
end)

t.test("each_line_in_a_coroutine", function()
  local body = many_lines()
  check_lines(heap.trace(function()
    for i = 1, ROUNDS do coroutine.wrap(function() body(i) end)() end
  end), 0)
end)

t.test("sizes_of_strings", function()
  local kept = {}
  local profile = heap.trace(function()
    for i = 1, 50 do kept[i] = ("x"):rep(1000 + i) end
  end)
  local rep = heap.sum(profile, heap.leaf("string.rep"))
  t.truthy(rep.inuse_space >= 50 * 1000, "bytes in use of string.rep: " .. rep.inuse_space)
  t.truthy(rep.inuse_objects >= 50, "blocks of string.rep: " .. rep.inuse_objects)
end)

-- -- stacks -----------------------------------------------------------------------------------------------------------

-- While the stack moves from one block to another (from 5.4.5 on its own pointers into it are no addresses then) it is read all the same.
local DEPTH, LOCALS = 120, 100
local function deep_text()
  local locals = {}
  for i = 1, LOCALS do locals[i] = "v" .. i end
  return "local deep function deep(n)\nlocal " .. table.concat(locals, ", ") .. "\nif n > 0 then return (deep(n - 1)) end end return deep"
end

-- The blocks of the stack that body(deep) makes grow are those of deep.
local function check_growth(options, what, body)
  local deep = heap.load(deep_text(), "=deep.lua")()
  local profile = heap.at_rest(function() body(deep) end, options)
  local grown, other = heap.sum(profile, function(s) return s.stack[1].file == "deep.lua" end),
    heap.sum(profile, function(s) return s.stack[1].file ~= "deep.lua" end)
  local slot = t.is_luajit and 8 or 16
  t.between(grown.inuse_space, DEPTH * LOCALS * slot, math.huge, what .. ": bytes of the stack, of deep")
  t.truthy(grown.alloc_objects >= 5, what .. ": blocks of the stack, of deep: " .. grown.alloc_objects)
  t.between(other.alloc_space, 0, 8192, what .. ": bytes of others")
  t.equal(profile:stats().unattributed, 0, what .. ": stacks that could not be read")
  heap.check_whole(profile, what)
end

t.test("growth_of_the_stack_is_charged_to_the_function", function()
  for _, options in ipairs { { heap = "sampling", heap_sample_mean_bytes = 1 }, { heap = "tracing" } } do
    check_growth(options, options.heap .. " a coroutine", function(deep) coroutine.wrap(deep)(DEPTH) end)
    check_growth(options, options.heap .. " coroutines in coroutines", function(deep)
      coroutine.wrap(function() coroutine.wrap(function() deep(DEPTH) end)() end)()
    end)
  end
  -- and the program's own; once, for it stays large
  check_growth({ heap = "sampling", heap_sample_mean_bytes = 1 }, "the main thread", function(deep) deep(4 * DEPTH) end)
end)

-- A C function that returns many values makes it grow itself.
t.test("growth_of_the_stack_by_a_c_function", function()
  local many = {}
  for i = 1, 5000 do many[i] = i end
  local unpack = table.unpack or unpack
  local profile = heap.at_rest(function()
    coroutine.wrap(function() return select("#", unpack(many)) end)()
  end, { heap = "sampling", heap_sample_mean_bytes = 1 })
  local name = table.unpack and "table.unpack" or "unpack"
  t.truthy(heap.sum(profile, heap.leaf(name)).alloc_space >= 5000 * (t.is_luajit and 8 or 16), "bytes of " .. name .. " in\n" .. heap.text(profile))
  t.equal(profile:stats().unattributed, 0, "stacks that could not be read")
end)

-- -- names ------------------------------------------------------------------------------------------------------------

t.test("the_parser", function()
  local code = ("local x = {'%s'} "):rep(1):format(("long "):rep(50)) .. "return function() return x end"
  local path = os.tmpname()
  local file = assert(io.open(path, "w"))
  file:write(code)
  file:close()
  local profile = heap.trace(function()
    assert(heap.load(code, "=loaded.lua"))
    assert(loadfile(path))
    dofile(path)
  end)
  os.remove(path)
  local loaded = heap.sum(profile, heap.leaf("[parser: loaded.lua]"))
  t.truthy(loaded.alloc_objects >= 3, "blocks of the parser of loaded.lua in\n" .. heap.text(profile))
  local from_file = heap.sum(profile, heap.leaf("[parser: " .. path .. "]"))
  t.truthy(from_file.alloc_objects >= 6, "blocks of the parser of a file in\n" .. heap.text(profile))
end)

-- Whatever the parser keeps its own things in has grown many times, and has functions within functions in it.
t.test("the_parser_of_a_long_chunk", function()
  local code = {}
  for i = 1, 3000 do code[i] = ("function f%d(a%d) return function() return 'text %d', a%d end end"):format(i, i, i, i) end
  local text = table.concat(code, "\n")
  local profile = heap.trace(function() assert(heap.load(text, "=long.lua")) end)
  local all = heap.sum(profile, heap.on_stack("heap.load")).alloc_objects
  local parser = heap.sum(profile, heap.leaf("[parser: long.lua]")).alloc_objects
  local strings = heap.sum(profile, heap.leaf("[string table]")).alloc_objects
  t.truthy(all > 20000 and all - parser - strings <= 20, ("%d blocks, %d of the parser"):format(all, parser))
end)

-- A table that looks like the parser's, on the stack of a C function that allocates.
t.test("a_table_of_itself_is_not_the_parser", function()
  local own = {}
  for i = 1, 100 do own["key " .. i] = "key " .. i end
  local f = function() return own end
  own[f] = f
  local text = ("key 1, key 2, "):rep(1000)
  local profile = heap.trace(function() return (text:gsub("key %d", own)) end)
  t.truthy(heap.sum(profile, heap.leaf("string.gsub")).alloc_objects > 0, "gsub allocates in\n" .. heap.text(profile))
  t.equal(heap.text(profile):find("[parser", 1, true), nil, "a parser")
end)

t.test("the_parser_of_a_module", function()
  local path = os.tmpname()
  local file = assert(io.open(path .. ".lua", "w"))
  file:write("local m = {} function m.f() return {'text'} end return m")
  file:close()
  local directory, name = path:match("^(.*/)([^/]*)$")
  package.path = directory .. "?.lua;" .. package.path
  local profile = heap.trace(function() require(name) end)
  os.remove(path .. ".lua")
  os.remove(path)
  local parser = "[parser: " .. path .. ".lua]"
  t.truthy(heap.sum(profile, heap.leaf(parser)).alloc_objects >= 3, parser .. " in\n" .. heap.text(profile))
  t.equal(heap.sum(profile, function(s) return heap.leaf(parser)(s) and not heap.on_stack("require")(s) end).samples, 0,
    "the parser without require below it")
end)

t.test("the_parser_ends_with_the_chunk", function()
  -- what the loaded function allocates is its own
  local chunk = heap.load("local kept = {} for i = 1, 10 do kept[i] = {i} end return kept", "=own.lua")
  local profile = heap.trace(function() chunk() end)
  t.equal(heap.sum(profile, heap.leaf("[parser: own.lua]")).samples, 0, "samples of the parser")
  t.truthy(heap.lines(profile, "own.lua")[1].alloc_objects >= 11, "blocks of the chunk")
end)

local function with_finalizer(body)
  if not newproxy then return setmetatable({}, { __gc = body }) end
  local proxy = newproxy(true)
  getmetatable(proxy).__gc = body
  return proxy
end

-- From 5.3.4 on the record of a call says that a finalizer interrupted it; before, the stack shows only that one runs.
t.test("finalizers_stand_on_the_collector", function()
  local function made_by_finalizer() local x = { 1, 2, 3 } return x end
  local function runs_the_collector() collectgarbage() end
  local made = 0
  local profile = heap.trace(function()
    for _ = 1, 20 do with_finalizer(function() made_by_finalizer() made = made + 1 end) end
    runs_the_collector()
  end)
  t.equal(made, 20, "finalizers run")
  local seen = 0
  for _, sample in ipairs(profile:samples()) do
    if sample.stack[1].name == "made_by_finalizer" then
      local at = {}
      for i, frame in ipairs(sample.stack) do if not at[frame.name] then at[frame.name] = i end end
      t.truthy(at["[gc]"], "[gc] in\n" .. heap.text(profile))
      if t.number >= 5.3 then
        t.truthy(at["[gc]"] > at.made_by_finalizer, "the collector runs the finalizer")
        t.truthy(at["[gc]"] < at.runs_the_collector, "what ran, runs the collector")
      else
        t.equal(at["[gc]"], #sample.stack, "[gc] is at the root")
      end
      seen = seen + sample.alloc_objects
    end
  end
  t.equal(seen, 20 * (t.is_luajit and 1 or 2), "blocks of finalizers")
end)

-- A collection that an allocation sets going, of a Lua function or of a C function that works for one.
local kept_at_work = {}
local works = {
  lua = function(done) for i = 1, 1e6 do kept_at_work[i % 10] = { i } if done() then return end end end,
  c = function(done) for i = 1, 1e6 do kept_at_work[i % 10] = ("text " .. i):rep(20) if done() then return end end end,
}

local function check_finalizers(mode, kind)
  local WANTED = 20
  local made = 0
  local function made_by_finalizer() local x = { 1, 2, 3 } return x end
  local function finalizer() made_by_finalizer() made = made + 1 end
  local at_work = works[kind]
  if mode then collectgarbage(mode) end
  collectgarbage()
  collectgarbage("restart")
  pulse.start { heap = "tracing" }
  for _ = 1, WANTED + 5 do with_finalizer(finalizer) end -- a slot of the stack may keep one
  at_work(function() return made >= WANTED end)
  local made_then = made
  local profile = pulse.stop()
  local what, seen = (mode or "collector") .. ", " .. kind, 0
  t.truthy(made_then >= WANTED, "finalizers run by the " .. what)
  for _, sample in ipairs(profile:samples()) do
    if sample.stack[1].name == "made_by_finalizer" then
      local at = 1
      while sample.stack[at] and sample.stack[at].name ~= "[gc]" do at = at + 1 end
      t.truthy(sample.stack[at], "[gc] on each stack of a finalizer, " .. what .. " in\n" .. heap.text(profile))
      local in_c = sample.stack[3].name ~= "[gc]" and sample.stack[3].file == "[C]" -- a C function was at work
      if t.number >= 5.3 or t.is_luajit and not in_c then
        t.equal(at, 3, "[gc] runs the finalizer, " .. what)
        t.truthy(sample.stack[4], "[gc] stands on what was at work, " .. what)
      else
        t.equal(at, #sample.stack, "[gc] is the root, " .. what)
      end
      seen = seen + sample.alloc_objects
    end
  end
  t.between(seen, made_then * (t.is_luajit and 1 or 2), made * (t.is_luajit and 1 or 2), "blocks of finalizers, " .. what)
end

t.test("finalizers_of_collections_that_allocations_set_going", function()
  for _, mode in ipairs(t.number >= 5.4 and { "incremental", "generational" } or { false }) do
    check_finalizers(mode, "lua")
    check_finalizers(mode, "c")
  end
end)

if t.is_luajit then
  t.test("finalizers_of_collections_that_compiled_code_sets_going", function()
    jit.on()
    check_finalizers(false, "lua")
    jit.off()
  end)
end

t.test("nothing_else_stands_on_the_collector", function()
  local profile = heap.trace(function()
    local kept = {}
    for i = 1, 1000 do kept[i] = { i } end
  end)
  t.equal(heap.sum(profile, heap.on_stack("[gc]")).samples, 0, "samples with [gc] in\n" .. heap.text(profile))
end)

t.test("the_table_of_strings", function()
  local profile = heap.trace(function()
    local kept = {}
    for i = 1, 20000 do kept[i] = "string " .. i end
  end)
  local sum = heap.sum(profile, heap.leaf("[string table]"))
  t.truthy(sum.alloc_objects >= 1, "growth of the table of strings in\n" .. heap.text(profile))
  t.truthy(sum.inuse_space >= 16384 * 8, "its size: " .. sum.inuse_space)
end)

-- The same coroutine, resumed from one place now by the program, now by another coroutine in between.
t.test("a_coroutine_with_changing_resumers", function()
  local function served() while true do local made = {} coroutine.yield(made) end end
  local inner = coroutine.create(served)
  local function between() while true do coroutine.resume(inner) coroutine.yield() end end
  local outer = coroutine.create(between)
  local function schedule() for i = 1, 100 do coroutine.resume(i % 2 == 0 and inner or outer) end end
  schedule() -- stacks have grown
  if rawget(_G, "jit") then jit.off() jit.flush() end
  local profile = heap.trace(schedule)
  if rawget(_G, "jit") then jit.on() end
  local direct, indirect = 0, 0
  for _, sample in ipairs(profile:samples()) do
    local names = {}
    for _, frame in ipairs(sample.stack) do names[frame.name] = true end
    if sample.stack[1].name == "served" and names.between then indirect = indirect + sample.alloc_objects end
    if sample.stack[1].name == "served" and not names.between then direct = direct + sample.alloc_objects end
  end
  t.equal(indirect, 50, "tables made with a coroutine in between in\n" .. heap.text(profile))
  t.equal(direct, 50, "and without")
end)

t.test("what_the_profiler_makes_is_its_own", function()
  local before = t.number >= 5.4 and collectgarbage("incremental")
  local profile = heap.trace(function() for _ = 1, 10 do heap.collect() end end)
  if before then collectgarbage(before) end
  local own = heap.sum(profile, heap.on_stack("[luapulse]"))
  -- up to 5.2 a new messenger for each, and on some the records of calls that make it; from 5.3 on the same one every time
  if _VERSION >= "Lua 5.3" then
    t.between(own.alloc_objects, 0, 4, "blocks for ten collections in\n" .. heap.text(profile))
  else
    t.between(own.alloc_objects, 10, 40, "blocks for ten collections in\n" .. heap.text(profile))
    t.between(own.inuse_objects, 1, 8, "of which one watches")
  end
  t.equal(heap.totals(profile).gc_cycles, 10, "collections")
end)

-- What the interpreters of 5.4 and 5.5 have turned on. Whatever has survived two of its collections is not looked at in most of them.
local function counts_collections_of_the_young(options, least, work)
  if t.number < 5.4 then return end
  local before = collectgarbage("generational")
  local seen = 0
  local function send() setmetatable({}, { __gc = function() seen = seen + 1 send() end }) end
  pulse.start(options)
  send()
  work()
  local profile, seen_then = pulse.stop(), seen
  collectgarbage(before)
  t.between(heap.totals(profile).gc_cycles, seen_then - 1, seen_then + 1, "collections")
  t.between(seen_then, least, math.huge, "collections that the program itself has seen")
end

local function turn_over()
  local kept = {}
  for i = 1, 300000 do kept[i % 1000 + 1] = { i } end
end

t.test("collections_of_the_young_are_counted", function()
  counts_collections_of_the_young({ heap = "sampling" }, 50, turn_over)
end)

t.test("collections_of_the_young_are_counted_when_traced", function()
  counts_collections_of_the_young({ heap = "tracing" }, 50, turn_over)
end)

-- Nothing is ever freed but what the test itself sends.
t.test("collections_of_the_young_that_find_nothing", function()
  counts_collections_of_the_young({ heap = "sampling" }, 5, function()
    local head
    for _ = 1, 100000 do head = { head } end
    return head
  end)
end)

t.test("types", function()
  local kept = {}
  local profile = heap.trace(function()
    for i = 1, 10 do
      kept[#kept + 1] = ("s" .. i):rep(100)
      kept[#kept + 1] = function() return i end
      kept[#kept + 1] = coroutine.create(function() end)
      kept[#kept + 1] = {}
      kept[#kept + 1] = heap.load("return " .. i)
      kept[#kept + 1] = host.userdata(i)
    end
  end)
  local types = {}
  for _, sample in ipairs(profile:samples()) do
    local type = sample.labels.type
    if type and not sample.stack[1].name:find("^luapulse%.") then types[type] = (types[type] or 0) + sample.alloc_objects end
  end
  if not has_types then
    t.equal(next(types), nil, "types on " .. t.version)
    return
  end
  t.equal(types.thread, 10, "threads")
  t.equal(types.userdata, 10, "userdata")
  t.truthy(types.table >= 10 and types.table <= (t.number >= 5.5 and 40 or 30), "tables: " .. tostring(types.table))
  t.truthy(types.string >= 10, "strings: " .. tostring(types.string))
  t.truthy(types["function"] >= 20, "functions: " .. tostring(types["function"]))
  t.equal(types.prototype, 10, "prototypes")
  if _VERSION ~= "Lua 5.3" then t.truthy(types.upvalue >= 10, "upvalues: " .. tostring(types.upvalue)) end
end)

t.test("coroutines_stand_on_what_resumed_them", function()
  local function inner() local x = { 1 } return x end
  local function body() inner() end
  local function resumes() coroutine.wrap(body)() end
  local profile = heap.trace(function() for _ = 1, 10 do resumes() end end)
  local sum = heap.sum(profile, function(s) return heap.leaf("inner")(s) and heap.on_stack("resumes")(s) end)
  t.equal(sum.alloc_objects, 10 * (t.is_luajit and 1 or 2), "blocks of inner in\n" .. heap.text(profile))
end)

-- -- LuaJIT's compiled code -----------------------------------------------------------------------------------------------

if t.is_luajit then
  local ROUNDS_COMPILED = 20000

  -- Of several lines, with functions that are inlined, and with exits that become traces of their own, one of them within an inlined function.
  local compiled_text = [[
    local kept = ...
    local function inlined(i)
      return { i, i }
    end
    local function several(n)
      for i = 1, n do
        kept[i % 100] = { i }
        kept[i % 50] = inlined(i)
        kept[i % 20] = "text " .. i
      end
    end
    local function branches(n)
      for i = 1, n do
        if i % 2 == 0 then
          kept[i % 100] = { i }
        else
          kept[i % 50] = { i, i }
        end
        kept[i % 20] = { i }
      end
    end
    local function inlined_branches(i)
      if i % 2 == 0 then
        kept[i % 100] = { i }
      else
        kept[i % 50] = { i, i }
      end
      kept[i % 20] = { i }
    end
    local function calls(n)
      for i = 1, n do
        inlined_branches(i)
      end
    end
    return several, branches, calls]]

  -- What LuaJIT itself says of the traces that body() has compiled: by number, { line where it starts, function's line, parent }.
  local function traces_of(body)
    local funcinfo, traces, started = require("jit.util").funcinfo, {}, {}
    local function note(what, number, f, pc, parent)
      if what == "start" then
        started[number] = { line = funcinfo(f, pc).currentline, defined = funcinfo(f).linedefined, parent = parent }
      elseif what == "stop" then
        traces[number] = started[number]
      end
    end
    jit.flush()
    jit.attach(note, "trace")
    jit.on()
    body()
    t.equal(jit.status(), true, "the compiler is on")
    jit.off()
    jit.attach(note)
    return traces
  end

  -- Given code that is compiled, when its blocks are followed, then each is charged to the function and the line where LuaJIT says its trace
  -- starts, with the number of that trace.
  local function compiled_code(options)
    local several, branches, calls = heap.load(compiled_text, "=compiled.lua")({})
    local profile
    local traces = traces_of(function()
      profile = heap.at_rest(function() several(ROUNDS_COMPILED) branches(ROUNDS_COMPILED) calls(ROUNDS_COMPILED) end, options)
    end)
    local first, blocks = {}, {} -- first: of each function, the line of its first trace
    for _, trace in ipairs(traces) do
      local root = trace
      while root.parent do root = traces[root.parent] end
      first[trace.defined] = first[trace.defined] or trace.line
      trace.kind = not trace.parent and "root" or trace.defined == root.defined and "exit" or "exit of an inlined function"
      -- the frame is that of the function it is inlined in
      if trace.defined ~= root.defined then trace.line, trace.defined = root.line, root.defined end
    end

    for _, sample in ipairs(profile:samples()) do
      local leaf, label = sample.stack[1], sample.labels.trace
      local function count(what) blocks[what] = (blocks[what] or 0) + sample.alloc_objects end
      if leaf.file == "compiled.lua" then count(leaf.defined) end
      if leaf.file == "compiled.lua" and sample.labels.vmstate == "trace" then
        local trace = traces[tonumber(label)]
        if jit.arch == "arm64" then -- where LuaJIT does not say which trace it is whose C code allocates
          t.equal(leaf.line, first[leaf.defined], "line where the first trace of the function starts")
        else
          t.truthy(trace, "a trace of LuaJIT's with the number " .. tostring(label))
          t.equal(leaf.line, trace.line, "line where trace " .. label .. " starts")
          t.equal(leaf.defined, trace.defined, "function in which trace " .. label .. " starts")
          count(trace.kind)
        end
      end
    end
    local most, least = ROUNDS_COMPILED + 500, ROUNDS_COMPILED - 500
    t.between(blocks[5], 3 * least, 3 * most, "blocks of several, with those of what is inlined there")
    t.between(blocks[12], 2 * least, 2 * most, "blocks of branches")
    t.between(blocks[30], 2 * least, 2 * most, "blocks of calls, with those of what is inlined there")
    t.between(blocks[2], 1, 500, "blocks of inlined, before it was")
    t.between(blocks[22], 1, 500, "blocks of inlined_branches, before it was")
    if jit.arch ~= "arm64" then
      t.between(blocks.root, 3 * least + 2 * least, 3 * most + 2 * most, "blocks of traces that begin with a loop")
      t.between(blocks.exit, least, most, "blocks of traces that begin at an exit")
      t.between(blocks["exit of an inlined function"], least, most, "blocks of traces that begin at an exit of an inlined function")
    end
    heap.check_whole(profile)
  end

  t.test("compiled_code_is_charged_to_its_traces", function() compiled_code { heap = "tracing" } end)

  t.test("compiled_code_is_charged_to_its_traces_when_sampled", function()
    compiled_code { heap = "sampling", heap_sample_mean_bytes = 1 }
  end)
end

-- -- collections ------------------------------------------------------------------------------------------------------

local function drop(kept) for i = #kept, 1, -1 do kept[i] = nil end end

t.test("what_is_dropped_is_not_in_use", function()
  local function churn(kept)
    for i = 1, 500 do
      kept[#kept + 1] = { i, { i } }
      kept[#kept + 1] = ("text " .. i):rep(10)
      kept[#kept + 1] = function() return i end
      kept[#kept + 1] = coroutine.wrap(function() coroutine.yield(i) end)
      kept[#kept]()
    end
  end
  for _, options in ipairs { { heap = "tracing" }, { heap = "sampling", heap_sample_mean_bytes = 1 },
    { heap = "sampling", heap_sample_mean_bytes = 200, seed = 7 } } do
    options.gc = true
    heap.stop_collector()
    pulse.start(options)
    churn({})
    local profile = pulse.stop()
    local sum = heap.sum(profile, heap.on_stack("churn"))
    t.truthy(sum.alloc_objects > 3000, "blocks of churn: " .. sum.alloc_objects)
    -- the table of strings and the stack of the coroutine that runs stay as large as they were made
    local left = heap.sum(profile, function(s)
      return heap.on_stack("churn")(s) and s.stack[1].name ~= "[string table]" and s.inuse_space > 0
    end)
    local tables = has_types and 0 or 1 -- of strings, where that cannot be told
    t.between(left.inuse_objects, 0, tables, "in use of churn in\n" .. heap.text(profile))
    heap.check_balance(profile)
  end
end)

t.test("a_snapshot_collects_only_when_asked_to", function()
  local function garbage() for _ = 1, 100 do local x = {} x.y = x end end
  for _, gc in ipairs { true, false } do
    heap.stop_collector()
    pulse.start { heap = "tracing", gc = gc }
    garbage()
    local sum = heap.sum(pulse.snapshot(), heap.leaf("garbage"))
    pulse.stop()
    t.equal(sum.alloc_objects, 200, "blocks of garbage")
    t.equal(sum.inuse_objects, gc and 0 or 200, "in use, with gc = " .. tostring(gc))
  end
end)

t.test("completed_shows_what_the_last_collection_left", function()
  local kept = {}
  local function old() for i = 1, 50 do kept[i] = {} end end
  local function garbage_before() for _ = 1, 60 do local x = {} x = nil end end
  local function garbage_since() for _ = 1, 70 do local x = {} x = nil end end
  heap.stop_collector()
  pulse.start { heap = "tracing", gc = "completed" }
  old()
  garbage_before()
  local none = pulse.snapshot()
  heap.collect()
  local first = pulse.snapshot()
  garbage_since()
  for i = 1, 20 do kept[i] = nil end
  local second = pulse.snapshot()
  heap.collect()
  local third = pulse.stop()
  local function in_use(profile, name)
    local sum = heap.sum(profile, heap.leaf(name))
    return sum.inuse_objects
  end
  t.equal(in_use(none, "garbage_before"), 0, "nothing was completed yet")
  local grown = in_use(first, "old") - 50 -- the table kept, as it grew, is one block more
  t.between(grown, 0, 2, "old, in use when the first ended, but for the 50 tables")
  t.equal(in_use(first, "garbage_before"), 0, "garbage, when the first ended")
  t.equal(in_use(second, "old"), 50 + grown, "old is dropped since")
  t.equal(in_use(second, "garbage_since"), 0, "garbage made since")
  t.equal(heap.sum(second, heap.leaf("garbage_since")).alloc_objects, 70, "it was allocated all the same")
  t.equal(in_use(third, "old"), 30 + grown, "old, when the second ended")
  t.equal(in_use(third, "garbage_since"), 0, "garbage, when the second ended")
end)

t.test("collections_survived", function()
  local ages = { 0, 1, 2, 3, 4, 7, 8, 9, 16, 33 }
  local kept, rest = {}, ages[#ages]
  local code = { "local kept = ... return {" }
  for i = 1, #ages do code[#code + 1] = ("function() for i = 1, %d do kept[#kept + 1] = {} end end,"):format(10 * i) end
  code[#code + 1] = "}"
  for i = 1, 2000 do kept[i] = false end
  for i = 1, 2000 do kept[i] = nil end -- it does not grow any more
  local makers = heap.load(table.concat(code, "\n"), "=ages.lua")(kept)
  heap.stop_collector()
  pulse.start { heap = "tracing" }
  for cycle = rest, 0, -1 do
    for i, age in ipairs(ages) do if age == cycle then makers[i]() end end
    if cycle > 0 then heap.collect() end
  end
  local profile = pulse.stop()
  t.equal(heap.totals(profile).gc_cycles, rest, "collections")
  local classes = {}
  for _, sample in ipairs(profile:samples()) do
    local leaf, survived = sample.stack[1], sample.labels.gc_cycles_survived
    if survived then t.equal(sample.alloc_objects, 0, "what survived is told apart from what was allocated") end
    if leaf.file == "ages.lua" and sample.inuse_objects > 0 then
      local age = ages[leaf.line - 1]
      local class = 0
      if age > 0 then class = 1 while class * 2 <= age do class = class * 2 end end
      t.equal(survived or 0, class, "label of what survived " .. age)
      classes[leaf.line - 1] = (classes[leaf.line - 1] or 0) + sample.inuse_objects
    end
  end
  for i in ipairs(ages) do t.between(classes[i], 10 * i, 10 * i + 1, "blocks that survived " .. ages[i]) end
end)

-- -- what is not done to the program --------------------------------------------------------------------------------

t.test("no_hook_is_set", function()
  for _, options in ipairs { { heap = "sampling" }, { heap = "sampling", heap_sample_mean_bytes = 1 }, { heap = "tracing" },
    { heap = "tracing", gc = "completed" } } do
    local old = coroutine.create(function() while true do coroutine.yield(debug.gethook(), { 1 }) end end)
    coroutine.resume(old)
    local function check(where)
      t.equal(debug.gethook(), nil, "hook of the program, " .. where)
      t.equal(host.hooked(), false, "hook of the program, of C, " .. where)
      local new = coroutine.create(function() local made = { 1 } coroutine.yield(debug.gethook(), made) end)
      for _, co in ipairs { old, new } do
        t.equal(select(2, coroutine.resume(co)), nil, "hook within a coroutine, " .. where)
        t.equal(host.hooked(co), false, "hook of a coroutine, " .. where)
      end
    end
    pulse.start(options)
    t.equal(pulse.status().engine, "none", "engine")
    check("after start")
    local kept = {}
    for i = 1, 2000 do kept[i] = { i, "text " .. i } end
    check("while it allocates")
    collectgarbage()
    check("after a collection")
    pulse.snapshot()
    check("after a snapshot")
    t.truthy(pulse.stop():stats().heap_alloc_objects_total >= 2000, "blocks were seen")
    check("after stop")
  end
end)

-- -- the peak ----------------------------------------------------------------------------------------------------------

t.test("the_peak", function()
  local function first() local x = {} for i = 1, 100 do x[i] = ("a"):rep(1000 + i) end return x end
  local function second() local x = {} for i = 1, 300 do x[i] = ("b"):rep(1000 + i) end return x end
  local profile = heap.trace(function()
    local kept = first()
    kept = nil
    heap.collect()
    kept = second() -- alone at the peak
    kept = nil
    heap.collect()
    kept = first()
  end)
  local function peak(name) return heap.sum(profile, heap.on_stack(name)).peak_space end
  t.truthy(peak("second") >= 300000, "second at the peak: " .. peak("second"))
  t.truthy(peak("first") < 20000, "first was gone: " .. peak("first"))
  t.equal(heap.sum(profile).peak_space, heap.totals(profile).peak_bytes, "all sites at the peak")
end)

-- -- memory of the profiler's ---------------------------------------------------------------------------------------------

-- Given the same program in two processes, profiled in one: that one is larger by what the profiler says it takes.
t.test("memory_is_as_it_is_told", function()
  if t.sanitized then return end -- whose own memory is far more
  local function resident(options)
    local path = os.tmpname()
    local pid = host.fork()
    if pid == 0 then
      heap.stop_collector()
      if options then pulse.start(options) end
      local kept = {}
      for i = 1, 60000 do kept[i] = { i = i } end
      local file = assert(io.open(path, "w"))
      file:write((host.memory()), " ", options and pulse.status().memory_bytes or 0)
      file:close()
      host.exit_now(0)
    end
    t.equal(host.wait(pid), 0, "status of the process")
    local file = assert(io.open(path))
    local kib, told = file:read("*n", "*n")
    file:close()
    os.remove(path)
    return kib * 1024, told
  end
  local without = resident()
  for _, options in ipairs { { heap = "tracing" }, { heap = "sampling", heap_sample_mean_bytes = 1 }, { heap = "sampling" } } do
    local with, told = resident(options)
    local what = ("%s: %.0f KiB more, %.0f KiB told"):format(options.heap, (with - without) / 1024, told / 1024)
    t.truthy(with - without <= told + 2 ^ 20, what)
    t.truthy(with - without >= told - 2 * 2 ^ 20, what)
    if options.heap == "tracing" then t.truthy(told > 2 ^ 22, what) end
  end
end)

-- -- totals ------------------------------------------------------------------------------------------------------------

local total_names = { "heap_alloc_bytes_total", "heap_alloc_objects_total", "heap_free_bytes_total", "heap_free_objects_total", "heap_realloc_total",
  "heap_realloc_grow_total", "heap_realloc_shrink_total", "heap_realloc_move_total", "heap_failed_total", "heap_vm_bytes_start", "heap_vm_bytes",
  "heap_gc_cycles", "heap_live_bytes", "heap_live_blocks", "heap_peak_bytes", "heap_sample_mean_bytes" }

-- Given a program that keeps 1000 blocks of 1000 bytes for a while, lets a list and a stack grow, and asks for more than there is.
local BLOCKS, BYTES = 1000, 1000
local function known_program()
  local kept, list = {}, {}
  for i = 1, BLOCKS do kept[i] = host.userdata(BYTES) end
  kept = nil
  heap.collect()
  for i = 1, 4096 do list[i] = i end
  coroutine.wrap(heap.load(deep_text())())(DEPTH / 2)
  collectgarbage("restart") -- 5.2 asks a second time only then
  if not t.is_luajit then t.fails("not enough memory", host.userdata, 2 ^ 47) end -- LuaJIT itself refuses what is that large
  return list
end

t.test("stats_have_the_totals", function()
  for _, options in ipairs { { heap = "tracing" }, { heap = "sampling", heap_sample_mean_bytes = 1 },
    { heap = "sampling", heap_sample_mean_bytes = 2048, seed = 5 }, { heap = "sampling" } } do
    local list
    local profile = heap.at_rest(function() list = known_program() end, options)
    local stats, mean = profile:stats(), options.heap == "tracing" and 1 or options.heap_sample_mean_bytes or 524288
    local what = options.heap .. " at " .. mean
    for _, name in ipairs(total_names) do t.equal(type(stats[name]), "number", name .. ", " .. what) end

    t.equal(stats.heap_sample_mean_bytes, mean, "mean gap")
    t.between(stats.heap_alloc_objects_total, BLOCKS + 10, BLOCKS + 500, "blocks allocated, " .. what)
    t.between(stats.heap_alloc_bytes_total, BLOCKS * BYTES, 2 * BLOCKS * BYTES, "bytes allocated, " .. what)
    -- with some that are older
    t.between(stats.heap_free_objects_total, BLOCKS, 2 * BLOCKS, "blocks freed, " .. what)
    t.between(stats.heap_free_bytes_total, BLOCKS * BYTES, 2 * BLOCKS * BYTES, "bytes freed, " .. what)

    -- the array of the list or (5.5) the stack, which double
    t.between(stats.heap_realloc_grow_total, 5, 100, "blocks that grew, " .. what)
    t.between(stats.heap_realloc_shrink_total, 0, 10, "blocks that shrank, " .. what)
    t.between(stats.heap_realloc_move_total, 0, stats.heap_realloc_total, "of them, moved, " .. what)
    t.truthy(stats.heap_realloc_total >= stats.heap_realloc_grow_total + stats.heap_realloc_shrink_total, "changes of size, " .. what)
    t.equal(stats.heap_failed_total, t.is_luajit and 0 or is_51 and 1 or 2, "refused, and where Lua asks again refused again, " .. what)
    t.between(stats.heap_gc_cycles, 1, 4, "collections, " .. what)

    -- the peak is that of the blocks that are followed: all of them, or an estimate, here 5 sigma wide
    local chance = 1 - (1 - 1 / mean) ^ BYTES
    local sigma = BYTES * math.sqrt(BLOCKS * (1 / chance - 1))
    t.between(stats.heap_peak_bytes, BLOCKS * BYTES - 5 * sigma, BLOCKS * BYTES * 1.2 + 6 * sigma, "the peak, " .. what)
    if mean == 1 then
      t.equal(stats.heap_live_bytes, heap.sum(profile).inuse_space, "bytes in use, " .. what)
      t.equal(stats.heap_live_blocks, heap.sum(profile).inuse_objects, "blocks in use, " .. what)
      t.truthy(stats.heap_live_bytes < stats.heap_peak_bytes - BLOCKS * BYTES / 2, "less is in use than at the peak, " .. what)
    end
    t.equal(#list, 4096, "the list")
  end
end)

-- The program asks for itself, right after start and right before stop: between the two lies what is told, but for what stop itself makes.
t.test("totals_are_what_the_program_counts", function()
  local function count() return collectgarbage("count") * 1024 end
  for _, options in ipairs { { heap = "tracing" }, { heap = "sampling", heap_sample_mean_bytes = 1 }, { heap = "sampling" } } do
    heap.stop_collector()
    pulse.start(options)
    local first, kept = count(), {}
    for i = 1, 500 do kept[i] = { i, tostring(i) } end
    heap.collect()
    kept = nil
    local last = count()
    local profile = pulse.stop()
    collectgarbage("restart")
    local stats = profile:stats()
    t.between(first - stats.heap_vm_bytes_start, 0, 256, "what was there at the start, and what start makes")
    local of_stop = stats.heap_vm_bytes - last
    t.between(of_stop, 0, 256, "what there is at the end, and what stop makes")
    if stats.heap_sample_mean_bytes == 1 then t.equal(of_stop, heap.sum(profile, heap.leaf("luapulse.stop")).alloc_space, "what stop makes") end
    t.truthy(last - first > 500 * 20, "the program has grown by " .. last - first)
    t.equal(stats.heap_alloc_bytes_total - stats.heap_free_bytes_total, stats.heap_vm_bytes - stats.heap_vm_bytes_start, "growth")
  end
end)

-- 5.5 makes the block of a buffer into a string, and does not count it as its own memory: length and the zero behind it.
t.test("totals_have_strings_of_buffers", function()
  local LONG = 100000
  for _, gone in ipairs { false, true } do
    heap.stop_collector()
    pulse.start { heap = "tracing" }
    local text = ("x"):rep(LONG)
    t.equal(#text, LONG, "length")
    if gone then
      text = nil
      heap.collect()
    end
    local stats = pulse.stop():stats()
    collectgarbage("restart")
    local more = stats.heap_alloc_bytes_total - stats.heap_free_bytes_total - (stats.heap_vm_bytes - stats.heap_vm_bytes_start)
    t.equal(more, (t.number >= 5.5 and not gone) and LONG + 1 or 0, "bytes that the VM does not count")
    t.truthy(text == nil or #text == LONG, "it was kept")
  end
end)

-- -- rates, pauses -----------------------------------------------------------------------------------------------------

t.test("no_samples_at_rate_0_but_frees_are_seen", function()
  local kept = {}
  local function before() for i = 1, 100 do kept[i] = { i } end end
  local function at_rest() for i = 101, 200 do kept[i] = { i } end end
  heap.stop_collector()
  pulse.start { heap = "sampling", heap_sample_mean_bytes = 1 }
  before()
  pulse.heap_rate(0)
  at_rest()
  t.equal(heap.sum(pulse.snapshot(), heap.leaf("at_rest")).samples, 0, "samples at rate 0")
  kept = {}
  heap.collect()
  local snapshot = pulse.snapshot()
  t.equal(heap.sum(snapshot, heap.leaf("before")).inuse_objects, 0, "in use of before in\n" .. heap.text(snapshot))
  pulse.heap_rate(1)
  before()
  local profile = pulse.stop()
  t.truthy(heap.sum(profile, heap.leaf("before")).inuse_objects >= 100, "in use of before, again")
  heap.check_balance(profile)
end)

t.test("rate_0_from_the_start", function()
  heap.stop_collector()
  pulse.start { heap = "sampling", heap_sample_mean_bytes = 0 }
  local kept = {}
  for i = 1, 100 do kept[i] = { i } end
  local profile = pulse.stop()
  t.equal(heap.sum(profile).samples, 0, "samples")
  t.truthy(heap.check_balance(profile).alloc_objects_total > 100, "blocks counted")
end)

t.test("a_rate_is_for_sampling", function()
  t.fails("not being profiled", pulse.heap_rate, 100)
  pulse.start { heap = "tracing" }
  t.fails("not being sampled", pulse.heap_rate, 100)
  pulse.stop()
  pulse.start { cpu = "sampling" }
  t.fails("not being sampled", pulse.heap_rate, 100)
  pulse.stop()
end)

t.test("nothing_is_sampled_in_a_pause_but_frees_are_seen", function()
  for _, options in ipairs { { heap = "tracing" }, { heap = "sampling", heap_sample_mean_bytes = 1 } } do
    local kept = {}
    local function before() for i = 1, 100 do kept[i] = { i } end end
    local function in_pause() for i = 101, 200 do kept[i] = { i } end end
    heap.stop_collector()
    pulse.start(options)
    before()
    pulse.pause()
    in_pause()
    kept = {}
    heap.collect()
    pulse.resume()
    local profile = pulse.stop()
    t.equal(heap.sum(profile, heap.leaf("in_pause")).samples, 0, "samples in the pause")
    t.truthy(heap.sum(profile, heap.leaf("before")).alloc_objects >= 100, "blocks of before")
    t.equal(heap.sum(profile, heap.leaf("before")).inuse_objects, 0, "in use of before in\n" .. heap.text(profile))
  end
end)

t.test("sessions_do_not_see_each_others_blocks", function()
  local kept = {}
  local function first() for i = 1, 200 do kept[i] = { i } end end
  local function second() for i = 1, 100 do kept[i] = { i } end end
  heap.stop_collector()
  pulse.start { heap = "tracing" }
  first()
  pulse.stop()
  pulse.start { heap = "tracing", gc = true }
  second() -- drops half of the first's
  local profile = pulse.stop()
  t.equal(heap.sum(profile, heap.leaf("first")).samples, 0, "samples of the first session")
  local sum = heap.sum(profile, heap.leaf("second"))
  t.equal(sum.inuse_objects, 100 * (t.is_luajit and 1 or 2), "in use of the second")
  heap.check_whole(profile)
  collectgarbage("restart")
end)

-- -- finalizers that call the profiler ------------------------------------------------------------------------------------

-- Runs f once, in the next collection.
local function finalize(f)
  if newproxy then getmetatable(newproxy(true)).__gc = f else setmetatable({}, { __gc = f }) end
end

-- What the finalizer was answered, while the function under way goes on as if nothing had been.
for _, way in ipairs { "stop", "snapshot" } do
  for _, inner in ipairs { "stop", "snapshot", "start" } do
    t.test(way .. "_while_a_finalizer_calls_" .. inner, function()
      local answers = {}
      pulse.start { heap = "sampling", heap_sample_mean_bytes = 512 }
      local kept = {}
      for i = 1, 1000 do kept[i] = { i } end
      finalize(function() answers = { pcall(pulse[inner], inner == "start" and { heap = "sampling" } or { gc = true }) } end)
      local profile = pulse[way] { gc = true }
      t.truthy(profile, way)
      t.equal(answers[1], false, inner .. " in the finalizer")
      t.contains(tostring(answers[2]), "under way", "what the finalizer was told")
      if way == "snapshot" then profile = pulse.stop() end
      t.truthy(heap.sum(profile).alloc_objects > 0, "samples")
      t.equal(pulse.status().running, false, "running")
    end)
  end
end

t.test("finalizers_start_and_stop_at_any_moment", function()
  local function disturb()
    finalize(function()
      pcall(pulse.start, { heap = "tracing", max_memory_bytes = 262144 })
      pcall(pulse.snapshot)
      pcall(pulse.stop)
    end)
  end
  local function collect_at(pause, speed)
    if _VERSION == "Lua 5.5" then
      collectgarbage("param", "pause", pause)
      collectgarbage("param", "stepmul", speed)
    else
      collectgarbage("setpause", pause)
      collectgarbage("setstepmul", speed)
    end
  end
  collect_at(1, 1000)
  for round = 1, t.fewer(300) do
    for _ = 1, 5 do disturb() end
    pcall(pulse.start, { heap = round % 2 == 0 and "tracing" or "sampling", max_memory_bytes = 262144, gc = round % 3 == 0 })
    for _ = 1, 5 do disturb() end
    pcall(pulse.stop)
  end
  collect_at(200, 200)
  collectgarbage()
  pcall(pulse.stop)
  pulse.start { heap = "tracing" }
  heap.check_whole(pulse.stop())
end)

-- What is in [overflow] is told as lost, and no block twice.
t.test("overflow_is_told", function()
  local kept = {}
  pulse.start { heap = "sampling", heap_sample_mean_bytes = 1, max_memory_bytes = 1048576 }
  for i = 1, 3000 do
    local f = heap.load(("local d = ... return { {}, d } --%d"):format(i), "=f" .. i)
    if i % 10 == 0 then kept[#kept + 1] = f(i) end
  end
  local profile = pulse.stop()
  local overflow, all = heap.sum(profile, heap.leaf("[overflow]")).alloc_objects, heap.sum(profile).alloc_objects
  t.truthy(overflow > 100, "blocks in [overflow]: " .. overflow)
  t.between(profile:stats().overflow, overflow, all, "told as lost")
end)

t.test("the_same_seed_gives_the_same_samples", function()
  local function body() local kept = {} for i = 1, 3000 do kept[i] = { i, i } end return kept end
  local function take(seed)
    heap.stop_collector()
    pulse.start { heap = "sampling", heap_sample_mean_bytes = 1000, seed = seed }
    local kept = body()
    local profile = pulse.stop()
    return heap.sum(profile, heap.leaf("body")).alloc_space, kept
  end
  local first = take(11)
  t.equal(take(11), first, "bytes with the same seed")
  t.truthy(take(12) ~= first, "another seed, other samples")
end)

t.run()
