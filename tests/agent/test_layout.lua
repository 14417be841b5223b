-- The option `layout`: a file that tells the truth about this Lua is used, any other is refused in words.
-- Debian's interpreters have no debug information to make layouts from; the known ones are texts, and serve as such files.
local t = require "t"
local pulse = require "luapulse"
local host = require "host"

local FAMILY = t.is_luajit and "luajit" or "puc"
local HEAD = "layout " .. FAMILY .. " " .. _VERSION:sub(5) .. " "

-- The blocks of src/walk/FAMILY.layout, comments taken out.
local function blocks_of(family)
  local of_arm64 = family == "luajit" and jit and jit.arch == "arm64"
  local file = assert(io.open("src/walk/" .. family .. (of_arm64 and "_arm64" or "") .. ".layout"))
  local text = file:read("*a"):gsub("#[^\n]*", "")
  file:close()
  local blocks, block = {}, nil
  for line in text:gmatch("[^\n]+") do
    if line:find("^layout ") then
      block = {}
      blocks[#blocks + 1] = block
    end
    if block then block[#block + 1] = line end
  end
  for i, lines in ipairs(blocks) do blocks[i] = table.concat(lines, "\n") .. "\n" end
  return blocks
end

-- Blocks for the language of this Lua, and those of every other one.
local function own_and_others()
  local own, others = {}, {}
  for _, family in ipairs { "puc", "luajit" } do
    for _, block in ipairs(blocks_of(family)) do
      local list = block:sub(1, #HEAD) == HEAD and own or others
      list[#list + 1] = block
    end
  end
  return own, others
end

local path = os.tmpname() -- of all the files below

-- pcall(pulse.start) with a file of that text
local function start(text, options)
  local file = assert(io.open(path, "wb"))
  file:write(text)
  file:close()
  options = options or {}
  options.layout = path
  local ok, message = pcall(pulse.start, options)
  t.equal(pulse.status().running, ok, "running")
  return ok, message
end

-- The text is refused; returns what is said of the file.
local function refused(text)
  local ok, message = start(text)
  if ok then error("no error with\n" .. text, 2) end
  local prefix = "luapulse: stacks cannot be walked here: layout file " .. path .. ": "
  t.equal(message:sub(1, #prefix), prefix, "how the message begins")
  local reason = message:sub(#prefix + 1)
  t.truthy(#reason > 10, "a reason in words: " .. reason)
  return reason
end

-- What a check of a well-formed file may find; or the layout itself is found to be impossible.
local DISAGREES = {
  ["the running coroutine was not found"] = true,
  ["the coroutine's resumer was not found"] = true,
  ["the frames could not be read"] = true,
  ["the walk and lua_getinfo disagree about a frame"] = true,
  ["the main thread was not found"] = true,
  ["the coroutine's state is another"] = true,
  ["the interpreter's code was not found"] = true,
}

local function is_disagreement(reason) return DISAGREES[reason] or reason:find('^the layout ".*" puts ') ~= nil end

local function disagrees(text)
  local reason = refused(text)
  t.truthy(is_disagreement(reason), "the reason '" .. reason .. "' as one of the check's, with\n" .. text .. "\nit")
end

-- The first block this Lua agrees with.
local function fitting()
  for _, block in ipairs(own_and_others()) do
    if start(block) then
      pulse.stop()
      return block
    end
  end
  error("no known layout fits this Lua")
end

-- { structure, field, value } of all fields, in order
local function fields_of(block)
  local fields = {}
  for line in block:gmatch("\n  ([^\n]+)") do
    local structure = line:match("^%S+")
    for field, value in line:gmatch("(%S+)=(%d+)") do fields[#fields + 1] = { structure, field, tonumber(value) } end
  end
  return fields
end

-- The block with another value for a field; nil: without it.
local function changed(block, field, value)
  local structure, name = field[1], field[2]
  local new = value and (" " .. name .. "=" .. value) or ""
  local done = 0
  local text = block:gsub("\n  " .. structure .. " [^\n]*", function(line)
    local result, count = (line .. " "):gsub(" " .. name:gsub("%p", "%%%0") .. "=%d+ ", new .. " ")
    done = done + count
    return result
  end)
  t.equal(done, 1, "places of " .. structure .. "." .. name)
  return text
end

-- -- used -----------------------------------------------------------------------------------------------------------------------

local function inner(n)
  local s = 0
  for i = 1, n do
    s = s + i % 7
  end
  return s
end

local function body()
  while true do
    local s = inner(2000)
    coroutine.yield(s)
  end
end

local function driver(samples)
  local co, enough = coroutine.create(body), pulse.status().samples + samples
  repeat
    for _ = 1, 20 do coroutine.resume(co) end
  until pulse.status().samples >= enough
end

-- Samples in inner, all with its whole path, at its own lines.
local function check_profile(profile)
  local info, seen, in_loop = debug.getinfo(inner, "S"), 0, 0
  for _, sample in ipairs(profile:samples()) do
    local leaf = sample.stack[1]
    if leaf.name == "inner" then
      seen = seen + sample.samples
      t.equal(leaf.file, "tests/agent/test_layout.lua", "file")
      t.equal(leaf.defined, info.linedefined, "line of the definition")
      t.between(leaf.line, info.linedefined, info.lastlinedefined, "line") -- LuaJIT enters functions at the line of the definition
      if leaf.line == info.linedefined + 2 or leaf.line == info.linedefined + 3 then in_loop = in_loop + sample.samples end
      local names = {}
      for i = 2, 4 do names[#names + 1] = sample.stack[i].name end
      t.equal(table.concat(names, " < "), "body < coroutine.resume < driver", "callers")
    end
  end
  local stats = profile:stats()
  t.contains(stats.comments[1], "engine walk", "comment")
  -- nearly all the work is there: 50 samples have 4 sigma of 0.17 below 0.9
  t.truthy(in_loop >= 0.7 * stats.cpu_inclusive_samples_total, in_loop .. " samples in the loop of inner, " .. seen .. " in inner, of\n" .. profile:folded())
end

t.test("the_block_of_this_lua_is_used", function()
  if t.is_luajit then jit.off() end -- a trace has one line only
  local worked = 0
  for _, block in ipairs(own_and_others()) do
    local ok, message = start(block, { cpu_hz = 1000 })
    if ok then
      worked = worked + 1
      t.equal(pulse.status().engine, "walk", "engine")
      t.equal(pulse.status().note, "", "note")
      driver(50)
      check_profile(pulse.stop())
    else -- of another release of the same language
      t.truthy(is_disagreement(message:match(": ([^:]+)$")), "the reason in '" .. message .. "'")
    end
  end
  os.remove(path)
  -- releases share layouts only if they stand in one block; 5.2.4 differs from those before in its tables only, and so does the 5.1.5
  -- of Redis: no walk needs them
  local alike = _VERSION == "Lua 5.2" or (_VERSION == "Lua 5.1" and not t.is_luajit)
  t.equal(worked, alike and 2 or 1, "blocks that this Lua agrees with")
end)

t.test("the_wall_clock_takes_a_layout_too", function()
  local block = fitting()
  t.truthy(start(block, { cpu_clock = "wall", cpu_hz = 500 }), "start")
  t.equal(pulse.status().engine, "walk", "engine")
  t.burn_samples(5)
  t.truthy(t.row(pulse.stop(), "t.burn").cum > 0, "samples in t.burn")
  local ok, message = start("nothing of use", { cpu_clock = "wall" })
  t.equal(ok, false, "start")
  t.contains(message, "the wall clock walks stacks out of memory, which cannot be done here: layout file " .. path, "message")
  os.remove(path)
end)

t.test("the_block_is_found_among_others", function()
  local block, _, others = fitting(), own_and_others()
  local text = "# comment\n\n" .. table.concat(others):gsub("\n", "\r\n") .. block .. "  \t# the end"
  t.truthy(start(text), "a file with " .. #others .. " other blocks")
  t.equal(pulse.status().engine, "walk", "engine")
  pulse.stop()
  os.remove(path)
end)

t.test("the_file_is_not_needed_once_started", function()
  t.truthy(start(fitting(), { cpu_hz = 1000 }), "start")
  os.remove(path)
  t.burn_samples(5)
  t.truthy(t.row(pulse.stop(), "t.burn").cum > 0, "samples in t.burn")
  pulse.start { cpu_engine = "walk" } -- what was found right stays known
  t.equal(pulse.status().engine, "walk", "engine")
  pulse.stop()
end)

t.test("while_another_vm_is_walked", function()
  local block, vm = fitting(), host.vm_open()
  host.vm_run(vm, 'pulse = require "luapulse" pulse.start()')
  local ok, message = start(block)
  t.equal(ok, false, "start")
  t.contains(message, "luapulse: stacks cannot be walked here: another VM is being profiled with another layout", "message")
  host.vm_run(vm, "pulse.stop()")
  t.truthy(start(block), "once the other has stopped")
  pulse.stop()
  host.vm_close(vm)
  os.remove(path)
end)

-- -- refused --------------------------------------------------------------------------------------------------------------------

t.test("files_that_cannot_be_read", function()
  local base = os.tmpname()
  os.remove(base)
  for _, name in ipairs { base, base .. "/x", "", "/tmp", "/dev/null", ("x"):rep(5000) } do
    t.fails("luapulse: stacks cannot be walked here: layout file " .. name:sub(1, 20), pulse.start, { layout = name })
    local reason = name == "/dev/null" and "it is empty" or "cannot be read"
    if #name < 100 then t.fails(name .. ": " .. reason, pulse.start, { layout = name }) end
    t.equal(pulse.status().running, false, "running")
  end
end)

t.test("files_that_are_no_layouts", function()
  local block = fitting()
  for _, case in ipairs {
    { "", "it is empty" },
    { "\n \t\r\n# nothing but a comment", "no layout in it is for this Lua" },
    { "print 'a program'\n", "line 1: expected `layout`, not print" },
    { ("\0"):rep(100000), "line 1: expected `layout`" },
    { "\127ELF\2\1\1\0\0\0" .. block, "line 1: expected `layout`, not \127ELF" },
    { ("x"):rep(100000), "line 1: expected `layout`, not xxx" },
    { "\n\nlayout", "line 3: after `layout` comes puc or luajit, not nothing" },
    { "layout lisp 5.4 \"x\"", "line 1: after `layout` comes puc or luajit, not lisp" },
    { "layout puc 6.0 \"x\"", "line 1: the Lua version must be 5.1 to 5.5, not 6.0" },
    { "layout puc 5.4 x", "line 1: a layout needs a name in quotes" },
    { "layout puc 5.4 \"x\"\n", "the layout \"x\" does not say " },
    { HEAD .. "\"x\"\n  lua_State cii=8", "line 2: no field is called lua_State.cii" },
    { HEAD .. "\"x\"\n  " .. ("y"):rep(500) .. " z=8", "line 2: no field is called yyy" },
    { HEAD .. "\"x\"\n  lua_State word", "line 2: expected field=number, not word" },
    { block .. "  lua_State stack=-8\n", "not a number below 65535: stack=-8" },
    { block .. "  lua_State stack=65535\n", "not a number below 65535: stack=65535" },
    { block .. "  lua_State stack=99999999999999999999999\n", "not a number below 65535: stack=9999" },
    { block .. "  lua_State stack=\n", "not a number below 65535: stack=" },
    { block .. "  lua_State stack=0x30\n", "not a number below 65535: stack=0x30" },
  } do
    t.contains(refused(case[1]), case[2], "the reason")
  end
  -- all that came before has left nothing behind
  t.truthy(start(block), "start")
  pulse.stop()
  os.remove(path)
end)

t.test("a_file_cut_anywhere", function()
  local block = fitting():gsub("%s+$", "")
  for len = 1, #block - 1, 3 do
    local ok, message = start(block:sub(1, len))
    -- the last number may be cut, and nothing else
    if ok then pulse.stop() end
    t.truthy(not ok or len > #block - 6, "a refusal of " .. len .. " bytes of " .. #block .. ": " .. tostring(message))
  end
  os.remove(path)
end)

-- What some Luas have and others have not.
local OPTIONAL = "lua_State.savedpc lua_State.size_ci global_State.mainth.l global_State.GCdebt global_State.totalbytes "
  .. "lua_State.top lua_State.allowhook global_State.strt.hash CallInfo.callstatus callstatus.fin "
  .. "global_State.hookmask global_State.str.tab lua_State.status global_State.allgc global_State.currentwhite "
  .. "global_State.gc.root global_State.gc.currentwhite global_State.gcstate global_State.gckind global_State.gcstopem global_State.tobefnz global_State.gc.state "
  .. "lua_State.l_gt lua_State.env global_State.l_registry global_State.registrytv Table.lsizenode Table.node Table.array "
  .. "Table.sizearray Table.arraytags Table.metatable GCtab.node GCtab.hmask GCtab.metatable Node.size Node.i_val Node.key_val "
  .. "Node.key_tt Node.val Node.key CallInfo.tailcalls callstatus.tail Proto.k Proto.sizek Proto.locvars Proto.sizelocvars "
  .. "Proto.upvalues Proto.sizeupvalues LocVar.size LocVar.varname LocVar.startpc LocVar.endpc Upvaldesc.size Upvaldesc.name "
  .. "CallInfo.base CallInfo.nextraargs callstatus.tail_else Proto.numparams Proto.maxstacksize GCproto.k GCproto.sizeuv "
  .. "GCproto.uvinfo GCproto.varinfo GCproto.traces GCtrace.nextroot GCtrace.mcode GCtrace.szmcode GCfunc.uvptr GCfunc.env GCupval.v "
  .. "CallInfo.previous Closure.isC Proto.abslineinfo Proto.sizeabslineinfo TString.shrlen TString.long tag.light "

t.test("a_block_that_lacks_a_field", function()
  local block = fitting()
  for _, field in ipairs(fields_of(block)) do
    local name = field[1] .. "." .. field[2]
    if not OPTIONAL:find(name .. " ", 1, true) then
      t.contains(refused(changed(block, field, nil)), "does not say " .. name, "the reason")
    end
  end
  os.remove(path)
end)

t.test("blocks_of_another_lua", function()
  local block, _, others = fitting(), own_and_others()
  for _, other in ipairs(others) do t.equal(refused(other), "no layout in it is for this Lua", "the reason") end
  -- what if they say they are for this one
  local family_of = "^layout (%a+) "
  for _, other in ipairs(others) do
    if other:match(family_of) == FAMILY then disagrees((other:gsub("^layout %a+ %S+ ", HEAD))) end
  end
  t.truthy(start(block), "start with its own")
  pulse.stop()
  os.remove(path)
end)

-- What the check must see when it is off by a word, up or down.
local CHECKED = {
  puc = "lua_State.tt lua_State.l_G lua_State.ci lua_State.base_ci lua_State.errorJmp lua_State.top CallInfo.func CallInfo.savedpc "
    .. "LClosure.p Proto.tt Proto.source Proto.linedefined Proto.code Proto.lineinfo TString.tt TString.contents "
    .. "tag.thread tag.proto tag.lua",
  luajit = "lua_State.gct lua_State.glref lua_State.base lua_State.stack lua_State.cframe global_State.mainthref GG_State.g "
    .. "GG_State.dispatch GCfunc.ffid GCfunc.pc GCfunc.f GCproto.size GCproto.chunkname GCproto.firstline GCproto.lineinfo GCstr.size",
}

-- The others either are not used by the check, or are read from a place that happens to hold something as good. Then it starts,
-- and whatever the samples are, the program goes on.
t.test("wrong_offsets", function()
  local block, checked, seen = fitting(), {}, 0
  for name in CHECKED[FAMILY]:gmatch("%S+") do checked[name] = true end
  for _, field in ipairs(fields_of(block)) do
    local name, right = field[1] .. "." .. field[2], field[3]
    local is_offset = name ~= "ref.size"
    for _, wrong in ipairs(is_offset and { right + 8, right >= 8 and right - 8 or right + 16, right + 1 } or {}) do
      local text = changed(block, field, wrong)
      if checked[name] and wrong ~= right + 1 then
        disagrees(text)
        seen = seen + 1
      else
        local ok, message = start(text, { cpu_hz = 1000 })
        if ok then
          t.burn_samples(2)
          pulse.stop()
        else
          t.truthy(is_disagreement(message:match(": ([^:]+)$")), "the reason in '" .. message .. "', " .. name .. "=" .. wrong)
        end
      end
    end
  end
  local count = 0
  for _ in pairs(checked) do count = count + 1 end
  t.equal(seen, 2 * count, "wrong offsets that must be seen")
  t.truthy(start(block), "start with the right ones")
  t.equal(pulse.status().engine, "walk", "engine")
  pulse.stop()
  os.remove(path)
end)

-- Numbers that no structure can have, and companions that are missing: nothing is read from beyond what was fetched.
t.test("impossible_numbers", function()
  local block = fitting()
  for _, field in ipairs(fields_of(block)) do
    local name = field[1] .. "." .. field[2]
    for _, wrong in ipairs { "none", 65534, 160, name == "ref.size" and 16 or 60, 0 } do
      local ok, message = start(changed(block, field, wrong ~= "none" and wrong or nil), { cpu_hz = 1000 })
      if ok then
        t.burn_samples(2)
        pulse.stop()
      else
        t.contains(message, "stacks cannot be walked here: layout file " .. path .. ": ", "message with " .. name .. "=" .. wrong)
      end
    end
  end
  os.remove(path)
end)

t.run()
