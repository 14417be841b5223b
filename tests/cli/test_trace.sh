# luapulse run --trace: every call, its report, its timeline; and what other tools make of it.
source "$(dirname "$0")/cli.sh"

program() {
  cat >app.lua <<'LUA'
local counts = {}
local function count(name) counts[name] = (counts[name] or 0) + 1 end
local function leaf() count "leaf" end
local function branch(n) count "branch" if n > 0 then branch(n - 1) end leaf() end
local function body() for _ = 1, 10 do count "steps" leaf() coroutine.yield() end end
for _ = 1, 50 do branch(3) end
local step = coroutine.wrap(body)
for _ = 1, 10 do step() end
pcall(function() error("no") end)
local file = io.open("counts", "w")
for name, n in pairs(counts) do file:write(name, " ", n, "\n") end
file:close()
if arg[1] == "wait" then io.stderr:write("ready\n") while true do leaf() end end
LUA
}
counted() { awk -v name="$1" '$1 == name { print $2 }' counts; }

test_report_counts_calls() {
  program
  for lua in $all_runtimes; do
    "$luapulse" run --trace -o app.pb.gz -o app.txt -- $lua app.lua || fail "status $?"
    "$luapulse" report -n 0 app.pb.gz >report || fail "report"
    has report "calls       mean        min        max"
    has report "Calls "
    lacks report "unknown" # the VM was closed while traced: the end was seen
    same "$(awk '$10 == "leaf" { print $6 }' report)" "$(counted leaf)" "calls of leaf in the report ($lua)"
    same "$(awk '$10 == "branch" { print $6 }' report)" "$(counted branch)" "calls of branch in the report ($lua)"
    "$luapulse" report -n 0 --tree app.pb.gz >tree || fail "tree"
    has tree "branch"
    has app.txt "exclusive in nanoseconds"
  done
}
test_go_tool_pprof_agrees() {
  program
  "$luapulse" run --trace -o app.pb.gz -- lua5.4 app.lua || fail "status $?"
  go tool pprof -sample_index=calls -top -nodecount=0 -nodefraction=0 app.pb.gz >top 2>err || fail "$(cat err)"
  same "$(awk '$6 == "leaf" { print $1 }' top)" "$(counted leaf)" "calls of leaf, as pprof counts them"
  same "$(awk '$6 == "branch" { print $1 }' top)" "$(counted branch)" "calls of branch"
  # Raw times: corrected ones may be negative, and pprof adds up absolute values then. Inclusive times as values are what
  # pprof adds up itself; that of the root is the sum of all exclusive ones.
  go tool pprof -sample_index=exclusive_raw -top -unit=ns -nodecount=0 -nodefraction=0 app.pb.gz >top 2>err || fail "$(cat err)"
  go tool pprof -sample_index=inclusive_raw -top -unit=ns -nodecount=0 -nodefraction=0 app.pb.gz >inclusive 2>err || fail "$(cat err)"
  same "$(awk '$6 ~ /^lua5.4/ { print $1; exit }' inclusive)" \
    "$(sed -n 's/.*Total samples = \([0-9]*\)ns.*/\1ns/p' top)" "inclusive time of the root, and the sum of exclusive times"
  same "$(awk '$6 == "branch" { print $1 }' inclusive)" "$(awk '$6 == "branch" { print $4 }' top)" "inclusive time of branch"
  go tool pprof -tags app.pb.gz >tags 2>/dev/null
  has tags "coroutine"
  has tags "app.lua:5"
}
test_timeline_is_json_with_a_track_for_each_coroutine() {
  program
  "$luapulse" run --trace -o app.trace.json -- lua5.4 app.lua || fail "status $?"
  node -e '
    const trace = JSON.parse(require("fs").readFileSync("app.trace.json", "utf8"));
    const calls = trace.traceEvents.filter(e => e.ph === "X"), open = {};
    if (new Set(calls.map(e => e.tid)).size !== 2) throw "tracks";
    for (const e of calls) {
      const stack = open[e.tid] = (open[e.tid] || []).filter(end => end > e.ts);
      if (stack.length && e.ts + e.dur > stack[stack.length - 1] + 0.0015) throw "calls do not nest: " + JSON.stringify(e);
      stack.push(e.ts + e.dur);
    }
    console.log(calls.filter(e => e.name === "leaf").length);' >leaves 2>err || fail "$(cat err)"
  same "$(cat leaves)" "$(counted leaf)" "calls of leaf in the timeline"
  "$luapulse" run --trace --trace-events 20 -o app.trace.json -- lua5.4 app.lua || fail "status $?"
  same "$(grep -c '"ph":"X"' app.trace.json)" 20 "calls kept"
  "$luapulse" run --trace --trace-filter 'lea?' -f chrome -o only.json -- lua5.4 app.lua || fail "status $?"
  same "$(grep -c '"name":"leaf"' only.json)" "$(counted leaf)" "calls that fit"
  same "$(grep '"ph":"X"' only.json | grep -vc '"name":"leaf"')" 0 "calls that do not"
}
test_a_profile_without_a_timeline() {
  program
  "$luapulse" run --trace -o app.pb.gz -- lua5.4 app.lua || fail "status $?"
  "$luapulse" convert app.pb.gz -o x.trace.json >out 2>&1 && fail "converted"
  has out "no timeline"
  [ ! -e x.trace.json ] || fail "something was written"
  "$luapulse" run -o x.trace.json -- lua5.4 app.lua >out 2>&1
  same $? 2 "status"
  has out "--trace"
  "$luapulse" run --trace --clock wall -o x.pb.gz -- lua5.4 app.lua >out 2>&1
  same $? 2 "status"
  has out "--clock is for sampling"
}
test_it_is_there_after_sigkill() {
  program
  "$luapulse" run --trace -o app.pb.gz -- lua5.4 app.lua wait 2>err &
  local runner=$! program
  for _ in $(seq 1200); do grep -q ready err && break; sleep 0.05; done
  program=$(cat /proc/$runner/task/$runner/children)
  kill -9 $program
  wait $runner
  "$luapulse" report -n 0 app.pb.gz >report || fail "report"
  [ "$(awk '$10 == "leaf" { print $6 }' report)" -gt "$(counted leaf)" ] || fail "calls of leaf are missing: $(cat report)"
}
test_intervals_add_up() {
  program
  "$luapulse" run --trace --interval 1 -o 'app.%t.pb.gz' -- lua5.4 app.lua wait 2>err &
  local runner=$! program
  for _ in $(seq 1200); do [ "$(ls app.*.pb.gz 2>/dev/null | wc -l)" -ge 2 ] && break; sleep 0.05; done
  program=$(cat /proc/$runner/task/$runner/children)
  kill $program
  wait $runner
  local branches=0
  for file in app.*.pb.gz; do
    "$luapulse" report -n 0 "$file" >report || fail "report of $file"
    branches=$((branches + $(awk '$10 == "branch" { print $6 }' report | head -1 | grep . || echo 0)))
  done
  same "$branches" "$(counted branch)" "calls of branch over all intervals"
}

cli_main "$@"
