# Names of functions that no source and no symbol gives: out of the program's own tables, whatever is in these.
source "$(dirname "$0")/attach.sh"
RUNTIMES=${RUNTIMES:-$all_runtimes}

headers_of() { [[ $1 == *luajit* ]] && echo lua5.1 || echo "${1##*/}"; }
make_module() { # RUNTIME [COMPILER FLAGS…]
  local version
  version=$(headers_of "$1")
  shift
  [ $# -gt 0 ] || set -- "${CC:-cc}" -s
  rm -f names_module.so
  "$@" -shared -fPIC -fvisibility=hidden $(pkg-config --cflags "$version") -o names_module.so "$here/names_module.c" ||
    fail "the module does not compile"
}
dump_names() { # COMMAND…
  start "$@" "$here/names.lua" "$PWD"
  until_printed ready
  until_state S
  status "$luapulse" dump -p "$pid"
  same "$status" 0 "status of $*: $(cat err)"
  same "$(cat err)" "" "messages"
  runs_on
}
is_there() { # NAME PLACE…: a frame of that name, as a whole, and its place
  awk -v name="$1" -v place="$2" 'index($0, "    " name " ") == 1 && index($0, place) { found = 1 } END { exit !found }' out ||
    { cat out >&2; fail "$1 is not there, in $2"; }
}
expect_names() { # IMAGE
  local name
  is_there cart.add cart.lua:3
  is_there cart.tax.rate cart.lua:3
  is_there Account.deposit inline:4
  is_there Savings.interest inline:5
  is_there Savings.__call inline:6
  for name in string.rep table.concat coroutine.create setmetatable file:write os.execute coroutine.wrap; do is_there $name "[C] in $1"; done
  is_there names_module.fail "[C] in names_module.so"
  is_there names_module.deep.fail "[C] in names_module.so"
  is_there names.object:fail "[C] in names_module.so"
  lacks out another_name
  lacks out "built-in function"
}

test_every_runtime() {
  local runtime
  for runtime in $RUNTIMES; do
    make_module $runtime
    dump_names $runtime
    expect_names "$(image)"
    is_there price "[C] in names_module.so"
  done
}
ffi_names_are_seen() {
  stacks ';calls \(.*;cdata\.__call \('
  stacks ';calls \(.*;clib\.__index \('
  stacks ';fills \(.*;cdata\.__newindex \('
  stacks ';fills \(.*;cdata\.__index \('
}
# What no table leads to.
test_what_luajit_calls_c_functions_by() {
  cat >ffi.lua <<'LUA'
local ffi = require "ffi"
ffi.cdef "int abs(int);"
local C, array = ffi.C, ffi.new("int[100]")
local function calls() local sum = 0 for i = 1, 1000 do sum = sum + C.abs(-i) end return sum end
local function fills() for i = 1, 1000 do array[i % 100] = array[(i + 1) % 100] + 1 end return array end
print("ready") io.flush()
while true do calls() fills() end
LUA
  for engine in $(engines); do
    for runtime in luajit $gc32; do
      start $runtime -joff ffi.lua
      until_printed ready
      until_seen ffi_names_are_seen recorded -F 999 -p "$pid"
      kill -KILL "$pid"
    done
  done
}
test_luajit_with_and_without_the_compiler() {
  local flag runtime
  make_module luajit
  for runtime in luajit $gc32; do
    for flag in -jon -joff; do
      dump_names $runtime $flag
      expect_names "$(image)"
      is_there io.lines "[C] in $(image)"
    done
  done
}
test_stripped_and_renamed() {
  local runtime
  for runtime in $RUNTIMES; do
    make_module $runtime
    copy_of $runtime ./httpd
    dump_names ./httpd
    rm httpd
    expect_names httpd
  done
}
# the same names each time
test_names_do_not_depend_on_chance() {
  local i
  make_module lua5.4
  for i in 1 2 3 4 5; do
    dump_names lua5.4
    sed -nE 's/^    ([^ ]+) .*/\1/p' out | sort >names.$i
    cmp -s names.1 names.$i || fail "run $i: $(diff names.1 names.$i)"
  done
}
# in_the_midst EXPRESSION: a dump has a line that fits
in_the_midst() {
  "$luapulse" dump -p "$pid" >out || fail "dump: $(cat out)"
  grep -qE -- "$1" out
}
# A profile from inside calls functions the same.
test_names_from_inside_are_the_same() {
  local runtime
  cat >both.lua <<'END'
f, package.loaded.a_module_with_a_long_name = string.rep, { rep = string.rep }
-- a global that one of its modules fills, with a function that is in no file
local count = (loadstring or load)("return function() local n = 0 for i = 1, 1000000 do n = n + i % 7 end return n end", "=text")()
editor = { count = count }
package.loaded["editor.shared"] = editor
local text, stop = ("x"):rep(100), os.clock() + (tonumber((...)) or 1000)
io.write("ready\n") io.flush()
while os.clock() < stop do for i = 1, 20 do string.rep(text, 10000) end count() end
END
  for runtime in lua5.1 lua5.4 "luajit -joff" ${gc32:+"$gc32 -joff"}; do
    "$luapulse" run -q -o inside.pb.gz -- $runtime both.lua 0.5 >/dev/null || fail "run of $runtime"
    "$luapulse" report inside.pb.gz >out || fail "report of $runtime"
    grep -qE ' string\.rep +\[C\]' out && grep -qE ' editor\.count +text' out || { cat out >&2; fail "$runtime, from inside"; }
    start $runtime both.lua
    until_printed ready
    in_time in_the_midst '^    [^ ]*(rep|f) ' || fail "$runtime never is in string.rep"
    is_there string.rep "[C] in"
    in_time in_the_midst '^    [^ ]*count ' || fail "$runtime never counts"
    is_there editor.count text
    kill -KILL "$pid"
  done
}
# Chunks without a file, as gateways and stores have them.
test_inline_chunks() {
  local runtime
  cat >inline.lua <<'END'
local load = loadstring or load
local text = [[
local wait = ...
local handle = function() wait() return 1 end
return function() handle() return 1 end
]]
local function wait() return coroutine.yield() end
kept = {}
for i, name in ipairs { "=content_by_lua(/etc/nginx/nginx.conf:42)", "=user_script", "@user_script:1f0c", text } do
  kept[i] = coroutine.create(assert(load(text, name))(wait))
  coroutine.resume(kept[i])
end
io.write("ready\n") io.flush()
while true do end
END
  for runtime in $RUNTIMES; do
    start $runtime inline.lua
    until_printed ready
    status "$luapulse" dump -p "$pid"
    same "$status" 0 "status of $runtime: $(cat err)"
    is_there "function <content_by_lua(/etc/nginx/nginx.conf:42):3>" " content_by_lua(/etc/nginx/nginx.conf:42):3"
    is_there "function <user_script:3>" " user_script:3"
    is_there handle " content_by_lua(/etc/nginx/nginx.conf:42):2"
    is_there handle " user_script:1f0c:2"
    is_there handle '[string "local wait = ......"]:2'
    is_there 'function <[string "local wait = ......"]:3>' '[string "local wait = ......"]:3'
    kill -KILL "$pid"
  done
}
# Neither a source nor a table: what callers call them, as Lua itself tells it. RUNTIMES may be any interpreters.
test_names_from_callers() {
  local runtime
  for runtime in $RUNTIMES; do
    start $runtime "$here/callers.lua"
    until_printed ready
    # 5.1 and LuaJIT have none for keys past the 256th constant; 5.4.0 has one name for __lt and __le
    sed -n 's/^name //p' "printed.$((${#started[@]} - 1))" | sed 's/^?$/past_many_constants/; s/^__order$/__lt/' >expected
    # LuaJIT calls what was tail called by the name of what called it so
    [[ $runtime == *luajit* ]] && sed -i 's/^tail_calls$/function <nowhere:10>/; s/^function <nowhere:42>$/past_many_constants/' expected
    same "$(wc -l <expected)" 31 "functions of $runtime"
    status "$luapulse" dump -p "$pid"
    same "$status" 0 "status of $runtime: $(cat err)"
    sed -nE '/main chunk/d; s/^ +(.*[^ ]) +nowhere:[0-9]+$/\1/p' out | diff expected - || fail "$runtime: Lua (<) and the dump (>) differ"
    for engine in $(engines); do
      [[ $engine != ptrace || $runtime == lua5.[15] || $runtime == luajit ]] || continue # dump reads as that does
      until_seen "sampled 10" recorded -F 199 -p "$pid"
      grep -v '^#' out.folded | awk '$NF > most { most = $NF; heaviest = $0 } END { print heaviest }' | sed 's/ [0-9]*$//' | tr ';' '\n' | sed -nE 's/^(.*[^ ]) \(nowhere:[0-9]+\)$/\1/p' | sed '/^main chunk$/d' |
        tac | diff <(sed -E 's/^function <(.*)>$/\1/' expected) - || fail "$runtime, $engine: Lua (<) and the profile (>) differ"
    done
    runs_on
    kill -KILL -- "-$pid"
  done
}
right=("" own first second third made maker target hops inner nested returned tails)
# right_names COUNT: so many have a name that is theirs. A wrong one in any recording, long or short, is the end of the test.
right_names() {
  awk -v names="${right[*]}" -v least="$1" 'BEGIN { split(names, right) } $3 == right[$2] { found++ }
    END { if (found < least) print found + 0 " names are right"; exit found < least }' names
}
recorded_names() { # … -d SECONDS: five times as long, for what is wrong is rare
  recorded "${@:1:$#-1}" "$(times "${!#}" 5)"
  grep -v '^#' out.folded | tr ';' '\n' | sed -nE 's/^(.*) \(nowhere:([0-9]+)\)( [0-9]+)?$/\2 \1/p' | sort | uniq -c >names
  awk -v names="${right[*]}" 'BEGIN { split(names, right) } $2 <= 12 && $3 != right[$2] && $3 != "nowhere:" $2 { print; wrong = 1 }
    END { exit wrong }' names || { cat names >&2; fail "$runtime, $engine: a wrong name"; }
}
# Calls that are being made or left, at any instruction of the VM: no function has the name of another. Those that call others have names,
# which are five; of the rest, with an instruction or two, some builds (5.5) never show that they have begun.
test_names_from_callers_in_a_storm_of_calls() {
  local runtime engine
  for runtime in $RUNTIMES; do
    [[ $runtime != lua5.2 ]] || continue # its records of calls are those of 5.3
    start $runtime $([[ $runtime == *luajit* ]] && echo -joff) "$here/alternating.lua"
    until_printed ready
    for engine in $(engines); do
      [[ $engine != ptrace || $runtime == lua5.4 || $runtime == luajit ]] || continue # the walk is the same
      until_seen "sampled 300 && right_names 5" recorded_names -F 5000 -p "$pid"
    done
    kill -KILL -- "-$pid"
  done
}
test_cplusplus() {
  make_module lua5.4 g++ -x c++
  dump_names lua5.4
  is_there "shop::price(lua_State*)" "[C] in names_module.so"
}
# a stripped library whose debug file is installed
test_installed_debug_file() {
  local id file
  make_module lua5.4 ${CC:-cc} -g -Wl,--build-id -DHIDDEN
  id=$(readelf -n names_module.so | sed -n 's/.*Build ID: //p')
  file=/usr/lib/debug/.build-id/${id:0:2}/${id:2}.debug
  mkdir -p "${file%/*}" 2>/dev/null && objcopy --only-keep-debug names_module.so "$file" 2>/dev/null ||
    skip "$file cannot be written"
  strip names_module.so
  dump_names lua5.4
  rm -f "$file"
  rmdir --ignore-fail-on-non-empty "${file%/*}"
  is_there price "[C] in names_module.so"
}
# Tables that lead to themselves and to each other, tables of a million entries, keys that are no words.
test_hostile_tables() {
  local runtime
  cat >hostile.lua <<'END'
collectgarbage("stop") -- nothing of it is garbage
local load = loadstring or load
a, b = {}, {}
a.__index, b.__index, a.b, b.a, a.a = b, a, b, a, a
setmetatable(a, a)
setmetatable(b, { __index = a, __newindex = b })
big, many, words = {}, {}, {}
for i = 1, 1000000 do big["key" .. i] = i end
for i = 1, 100000 do many["t" .. i] = { f = print, t = {} } end
words["two words"], words["\27[31mred"], words[("x"):rep(1000000)], words[""], words["new\nline"] = print, print, print, print, print
package.loaded.many, package.loaded.big, package.loaded.itself, package.loaded.globals = many, big, package.loaded, _G
deep = {}
local at = deep
for i = 1, 10000 do at.d = { f = print } at = at.d end
assert(load("work = (function() return function() while true do end end end)()", "=nowhere"))()
io.write("ready\n") io.flush()
work()
END
  for runtime in lua5.1 lua5.4 luajit $gc32; do
    start $runtime hostile.lua
    until_printed ready
    status timeout 120 "$luapulse" dump -p "$pid"
    same "$status" 0 "status of $runtime: $(cat err)"
    is_there work nowhere:1
    lacks out $'\x1b'
    runs_on
    kill -KILL "$pid"
  done
}
# Tables that grow, shrink and are replaced while they are read: a name is right or not there.
test_busy_tables() {
  needs_sanitized
  local runtime i seen
  cat >busy.lua <<'END'
local load = loadstring or load
kept = { coroutine.create(function() local r = string.rep() return r end), coroutine.create(function() local r = table.concat() return r end) }
for _, co in ipairs(kept) do coroutine.resume(co) end
local function churn(t, prefix)
  for i = 1, 500 do t[prefix .. i] = load("return " .. i, "=chunk") or {} end
  for i = 1, 500 do t[prefix .. i] = nil end
end
assert(load("work = (function() return function(f) while true do f() end end end)()", "=nowhere"))()
io.write("ready\n") io.flush()
work(function()
  churn(_G, "global") churn(package.loaded, "module") churn(string, "member")
  collectgarbage()
end)
END
  for runtime in lua5.1 lua5.4 luajit $gc32; do
    start $runtime busy.lua
    until_printed ready
    seen=0
    for ((i = 0; i < 8 || (seen < 4 && i < 64); i++)); do
      "$sanitized" dump -p "$pid" >out 2>err
      status=$?
      lacks err Sanitizer
      lacks err "runtime error"
      [ $status = 0 ] || { grep -q "cannot be walked" err || fail "$runtime: $(cat err)"; continue; }
      # without a name from tables: that of luaL_Reg, or the number
      grep -qE '^    (string\.rep|rep|built-in function [0-9]+) ' out || { cat out >&2; fail "$runtime: string.rep has another name"; }
      grep -qE '^    (table\.concat|t?concat|built-in function [0-9]+) ' out || { cat out >&2; fail "$runtime: table.concat has another name"; }
      grep -qE '^    (work|function <nowhere:1>) ' out || { cat out >&2; fail "$runtime: work has another name"; }
      grep -qE '^    string\.rep ' out && seen=$((seen + 1))
    done
    [ $seen -ge 4 ] || fail "$runtime: string.rep had its name $seen times in $i"
    runs_on
    kill -KILL "$pid"
  done
}
attach_main "$@"
