# luapulse run --heap on real programs: leaks that are found and caches that are none, growth by pprof, profiles after a kill.
source "$(dirname "$0")/cli.sh"
# compiled code is charged to where its trace starts: not here
RUNTIMES=("lua5.1" "lua5.2" "lua5.3" "lua5.4" $lua55 "luajit -joff" ${gc32:+"$gc32 -joff"})

# A program with a leak, a cache that is cleared, data that is kept, and garbage.
program() {
  cat >app.lua <<'LUA'
local config, forgotten, cache = {}, {}, {}
local function configure() for i = 1, 2000 do config[i] = { name = "item" .. i } end end
local function forget(i)
  forgotten[#forgotten + 1] = { request = i, body = ("%08d"):format(i):rep(8) }
end
local function remember(i)
  cache[i % 64] = { key = i, value = ("%08d"):format(i):rep(16) }
  if i % 500 == 0 then cache = {} end
end
local function work(i) local t = {} for k = 1, 20 do t[k] = { k * i } end return #t end
configure()
for i = 1, tonumber(arg[1]) do
  forget(i)
  remember(i)
  work(i)
  if i % 500 == 0 then collectgarbage() end
end
if arg[2] then io.stderr:write("ready\n") while true do work(1) end end
LUA
}

test_a_leak_is_found_and_a_cache_is_not() {
  program
  for lua in "${RUNTIMES[@]}"; do
    "$luapulse" run --heap --heap-rate 2048 --seed 3 -o heap.pb.gz -- $lua app.lua 20000 || fail "status $?"
    "$luapulse" leaks heap.pb.gz >leaks || fail "leaks of $lua: status $?"
    has leaks "Growing:"
    has leaks "forget  app.lua:4"
    lacks leaks "remember"
    lacks leaks "configure"
    lacks leaks "work "
    "$luapulse" leaks --all heap.pb.gz >leaks || fail "leaks --all"
    has leaks "configure"
  done
}
# With the JIT on a leak is where its trace starts: in the function whose loop it is, with what was inlined there.
test_a_leak_in_compiled_code() {
  cat >app.lua <<'LUA'
local forgotten, cache = {}, {}
local function entry(i)
  return { request = i, body = "request " .. i }
end
local function forget(n)
  for i = 1, n do
    forgotten[#forgotten + 1] = entry(i)
  end
end
local function remember(n)
  for i = 1, n do
    cache[i % 64] = { key = i }
  end
  cache = {}
end
for _ = 1, 40 do
  forget(500)
  remember(500)
  collectgarbage()
end
LUA
  for lua in luajit $gc32 $(echo "$newer" | tr ' ' '\n' | grep luajit); do
    "$luapulse" run --heap --heap-rate 2048 --seed 3 -o heap.pb.gz -- $lua app.lua || fail "status $?"
    "$luapulse" leaks heap.pb.gz >leaks || fail "leaks of $lua: status $?"
    has leaks "Growing:"
    has leaks "forget  app.lua:6"
    lacks leaks "entry"
    lacks leaks "remember"
    go tool pprof -sample_index=inuse_space -tagfocus=vmstate=trace -top heap.pb.gz >top 2>err || fail "$(cat err)"
    same "$(awk '$6 == "forget" { print ($2 + 0 > 80) }' top)" 1 "forget is compiled on $lua: $(cat top)"
  done
}
test_pprof_and_report_agree() {
  program
  "$luapulse" run --heap=tracing -o heap.pb.gz -- lua5.4 app.lua 3000 || fail "status $?"
  for type in inuse_objects alloc_objects; do
    "$luapulse" report -n 0 --sample $type heap.pb.gz >report || fail "report"
    go tool pprof -sample_index=$type -top -nodecount=0 -nodefraction=0 heap.pb.gz >top 2>err || fail "$(cat err)"
    for name in forget remember work configure; do
      same "$(awk -v n=$name '$6 == n { print $1 }' report)" "$(awk -v n=$name '$6 == n { print $1 }' top)" "$type of $name"
    done
  done
  go tool pprof -top heap.pb.gz 2>/dev/null | grep -q "Type: inuse_space" || fail "the default type is not inuse_space"
}
test_growth_by_base() {
  cat >grow.lua <<'LUA'
local pulse = require "luapulse"
local kept = {}
local function grow() for i = 1, 1000 do kept[#kept + 1] = { i } end end
local function other() kept.other = { 1 } end
other()
pulse.start { heap = "tracing" }
grow()
pulse.snapshot { gc = true }:write("before.pb.gz")
grow()
pulse.stop { gc = true }:write("after.pb.gz")
LUA
  LUA_CPATH="$root/$BUILD/lua/5.4/?.so" lua5.4 grow.lua || fail "status $?"
  for flag in base diff_base; do
    go tool pprof -sample_index=inuse_objects -$flag=before.pb.gz -top -lines -nodecount=0 -nodefraction=0 after.pb.gz >top 2>err ||
      fail "$(cat err)"
    same "$(awk '/grow / { sum += $1 } END { print (sum >= 2000 && sum < 2010) }' top)" 1 "objects that grow has added, by -$flag: $(cat top)"
  done
}
test_cpu_and_heap_together() {
  program
  "$luapulse" run --cpu=sampling --heap -F 500 -o both.pb.gz -o both.html -- lua5.4 app.lua 5000 || fail "status $?"
  go tool pprof -raw both.pb.gz 2>/dev/null | sed -n '/^Samples:/{n;p}' >types
  same "$(cat types)" "samples/count cpu/nanoseconds[dflt] alloc_objects/count alloc_space/bytes inuse_objects/count inuse_space/bytes" types
  "$luapulse" run --cpu=tracing --heap=tracing -o both.pb.gz -- lua5.4 app.lua 500 || fail "status $?"
  "$luapulse" report -n 0 --sample calls both.pb.gz >report || fail "report"
  same "$(awk '/ forget / { print $1 }' report)" 500 "calls of forget"
  "$luapulse" report -n 0 --sample alloc_objects both.pb.gz >report || fail "report"
  has report " forget "
}
test_a_killed_program_leaves_its_heap() {
  program
  for lua in lua5.1 lua5.4 "luajit -joff" ${gc32:+"$gc32 -joff"}; do
    : >err # what the one before has said is not taken for this one's
    "$luapulse" run --heap=tracing -o killed.pb.gz -- $lua app.lua 2000 wait 2>err &
    local run=$! i
    for ((i = 0; i < 600; i++)); do grep -q ready err && break; sleep 0.1; done
    kill -KILL "$(pgrep -P $run)"
    wait $run 2>/dev/null
    "$luapulse" report -n 0 --sample inuse_objects killed.pb.gz >report || fail "report of $lua"
    # each round keeps a table and a string, and the list of them
    [ "$(awk '/ forget / { print $1 }' report)" -ge 2000 ] || fail "in use by forget on $lua: $(cat report)"
  done
}
test_completed_collections_only() {
  cat >garbage.lua <<'LUA'
local kept = {}
local function keep() for i = 1, 100 do kept[i] = { i } end end
local function waste() for i = 1, 100 do local t = { i } end end
keep() collectgarbage() collectgarbage("stop") waste() os.exit(0)
LUA
  "$luapulse" run --heap=tracing -o now.pb.gz -- lua5.4 garbage.lua || fail "status $?"
  "$luapulse" run --heap=tracing --gc completed -o then.pb.gz -- lua5.4 garbage.lua || fail "status $?"
  "$luapulse" report -n 0 --sample inuse_objects now.pb.gz >now
  "$luapulse" report -n 0 --sample inuse_objects then.pb.gz >then
  has now " waste "
  lacks then " waste "
  has then " keep "
}
test_wrong_options() {
  echo "" >app.lua
  refused() { # WORDS OPTIONS…
    status "$luapulse" run "${@:2}" -o x.pb.gz -- lua5.4 app.lua
    same "$status" 2 "status of ${*:2}"
    has err "$1"
    [ ! -e x.pb.gz ] || fail "${*:2} wrote a file"
  }
  refused "--heap takes =sampling or =tracing, not 'often'" --heap=often
  refused "--cpu takes sampling or tracing, not 'often'" --cpu=often
  refused "--heap-rate takes a number of bytes, at least 1, not '0'" --heap --heap-rate 0
  refused "--heap-rate is for the heap: add --heap" --heap-rate 100
  refused "--gc takes now or completed, not 'x'" --heap --gc x
  refused "--gc is for the heap: add --heap" --gc completed
  refused "--rate is for the cpu: add --cpu sampling" --heap -F 100
  refused "--clock is for the cpu: add --cpu sampling" --heap --clock wall
}

cli_main "$@"
