# luapulse run: the profile is there however the program ends, and the program is left alone.
source "$(dirname "$0")/cli.sh"
source "$root/tests/conditions.sh"
burn=$root/tests/cli/burn.lua
RUNTIMES=$all_runtimes

# a readable profile with the program's functions by name
profile_is_there() {
  status "$luapulse" report "$1"
  same "$status" 0 "status of report"
  has out inner
  has out outer
}
# waits until the program has printed, or fails
wait_for_output() {
  for _ in $(seq 600); do
    [ -s "$1" ] && return
    sleep 0.05
  done
  fail "the program printed nothing"
}

test_normal_end_on_every_runtime() {
  for runtime in $RUNTIMES; do
    status "$luapulse" run -o $runtime.pb.gz -- $runtime "$burn" 0.4
    same "$status" 0 "status of $runtime"
    same "$(cat out)" out "output of $runtime"
    same "$(cat err)" err "errors of $runtime"
    profile_is_there $runtime.pb.gz
  done
}
test_os_exit_status_is_kept() {
  for runtime in $RUNTIMES; do
    status "$luapulse" run -o p.pb.gz -- $runtime "$burn" 0.3 exit
    same "$status" 7 "status of $runtime"
    profile_is_there p.pb.gz
  done
}
test_uncaught_error() {
  lua5.4 "$burn" 0.1 error 2>plain >/dev/null
  status "$luapulse" run -o p.pb.gz -- lua5.4 "$burn" 0.3 error
  same "$status" 1 status
  same "$(cat err)" "$(cat plain)" "error output with and without luapulse"
  profile_is_there p.pb.gz
}
# ended_by SIGNAL WHOM: sends it to luapulse alone ("parent"), or to the program ("child")
ended_by() {
  local signal=$1 whom=$2 target
  # a process group of its own, as a shell gives to a job; sleep keeps stdin open
  "$luapulse" run -o p.pb.gz -- lua5.4 "$burn" 0.3 forever >prog.out 2>prog.err </dev/null &
  local parent=$!
  wait_for_output prog.out
  target=$parent
  [ "$whom" = child ] && target=$(cat /proc/$parent/task/*/children)
  kill -s "$signal" $target
  wait $parent
  status=$?
  same "$status" $((128 + $(kill -l "$signal"))) "status after $signal"
  profile_is_there p.pb.gz
}
test_sigterm_to_luapulse_goes_on_to_the_program() { ended_by TERM parent; }
test_sigterm_to_the_program() { ended_by TERM child; }
test_sigkill_of_the_program_leaves_the_profile() { ended_by KILL child; }
test_sigsegv_of_the_program_leaves_the_profile() { ended_by SEGV child; }
test_ctrl_c_in_a_terminal() {
  # a real terminal: script gives one; ^C reaches the foreground group, as from a keyboard
  cat >catch.lua <<'LUA'
local x = 0
function spin() for i = 1, 1000 do x = x + i % 7 end end
while os.clock() < 0.3 do spin() end
io.write("ready\n") io.flush()
while true do spin() end
LUA
  appears() { for _ in $(seq 1200); do grep -q "$1" typescript && return; sleep 0.05; done; }
  : >typescript
  { appears ready; printf '\003'; appears interrupted; } | script -qefc "$luapulse run -o p.pb.gz -- lua5.4 catch.lua" typescript >/dev/null 2>&1
  has typescript interrupted
  status "$luapulse" report p.pb.gz
  same "$status" 0 "status of report"
  has out spin
}
test_program_handles_its_own_signals() {
  cat >trap.sh <<'SH'
trap 'echo trapped; exit 9' USR1
lua5.4 -e 'print("ready") io.stdout:flush()'
while :; do sleep 0.05; done
SH
  "$luapulse" run --lua 5.4 -o p.pb.gz -- bash trap.sh >prog.out 2>prog.err &
  local parent=$!
  wait_for_output prog.out
  kill -USR1 $parent
  wait $parent
  same $? 9 status
  has prog.out trapped
}
test_users_own_lua_init_still_runs() {
  for pair in "lua5.4 LUA_INIT_5_4" "lua5.4 LUA_INIT" "lua5.1 LUA_INIT" "luajit LUA_INIT" ${gc32:+"$gc32 LUA_INIT"} "lua5.3 LUA_INIT_5_3"; do
    set -- $pair
    echo 'from_init = "seen"' >init.lua
    for value in 'from_init = "seen"' @init.lua; do
      status env "$2=$value" "$luapulse" run -o p.pb.gz -- $1 -e "print(from_init, os.getenv('$2'), os.getenv('LUAPULSE_RUN'))"
      same "$(cat out)" "seen	$value	nil" "$pair with $value"
    done
  done
}
test_error_in_users_lua_init_is_the_programs() {
  status env LUA_INIT='error("bad init")' "$luapulse" run -o p.pb.gz -- lua5.4 -e 'print(1)'
  same "$status" 1 status
  has err "bad init"
}
test_children_do_not_inherit() {
  cat >parent.lua <<'LUA'
for _, name in ipairs { "lua5.1", "lua5.3", "lua5.4", "luajit" } do
  os.execute(name .. [[ -e "print(os.getenv('LUA_INIT'), os.getenv('LUA_INIT_5_4'), os.getenv('LUAPULSE_RUN'), package.preload.luapulse)"]])
end
LUA
  for runtime in $RUNTIMES; do
    status "$luapulse" run -o p.pb.gz -- $runtime parent.lua
    same "$(sort -u out)" "nil	nil	nil	nil" "what children of $runtime see"
    same "$(wc -l <out)" 4 "children of $runtime"
  done
}
test_other_lua_versions_on_the_way_are_left_alone() {
  echo 'lua5.3 -e "print(package.preload.luapulse)"; lua5.1 "$1" 0.3' >both.sh
  status env LUA_INIT='init_ran = true' "$luapulse" run --lua 5.1 -o p.pb.gz -- bash both.sh "$burn"
  same "$status" 0 status
  same "$(head -n 1 out)" nil "preload in the 5.3"
  profile_is_there p.pb.gz
}
test_scripts_with_an_interpreter_line() {
  { echo '#!/usr/bin/env lua5.4'; cat "$burn"; } >app
  chmod +x app
  status "$luapulse" run -o p.pb.gz -- ./app 0.3
  same "$status" 0 status
  profile_is_there p.pb.gz
}
test_closed_descriptors_are_the_programs() {
  # with the clock that needs no descriptor of its own in the program
  "$luapulse" run --clock instructions -o p.pb.gz -- lua5.4 -e 'os.execute "cd /proc/$PPID/fd && echo [012]"' >fds <&- 2>&-
  same $? 0 status
  same "$(cat fds)" 1 "descriptors of the program"
}
test_open_descriptors_are_the_programs() {
  cat >fds.lua <<'LUA'
for line in io.popen("ls -l /proc/$PPID/fd"):lines() do if line:find("luapulse") then print(line) end end
LUA
  status "$luapulse" run -o p.pb.gz -- lua5.4 fds.lua
  same "$(cat out)" "" "descriptors of ours in the program"
}
test_require_in_a_profiled_program_sees_the_session() {
  status "$luapulse" run -o p.pb.gz -- lua5.4 -e 'local p = require "luapulse" print(p.status().running, pcall(p.start))'
  has out "true	false"
  has out "profiled already"
}
test_interval_writes_a_profile_of_each() {
  status "$luapulse" run --interval 1 -o 'p.%t.pb.gz' -- lua5.4 "$burn" 3.4
  same "$status" 0 status
  local files=(p.*.pb.gz) sum=0 full=0
  [ ${#files[@]} -ge 3 ] || fail "only ${#files[@]} files: ${files[*]}"
  for file in "${files[@]}"; do
    (profile_is_there "$file") 2>/dev/null && full=$((full + 1)) # the last interval may be too short for a sample
    sum=$((sum + $("$luapulse" convert "$file" -o - -f folded | grep -v '^#' | awk '{ s += $NF } END { printf "%d", s / 1e6 }')))
  done
  [ $full -ge $((${#files[@]} - 1)) ] || fail "only $full of ${#files[@]} files hold the program's functions"
  # each holds its own interval: together they make the whole, not a multiple of it
  [ $sum -gt 2700 ] && [ $sum -lt 4300 ] || fail "the files hold $sum ms together, of 3400"
}
# Messages that nobody reads end neither the profile nor the program.
test_interval_with_messages_that_nobody_reads() {
  exec {pipe}> >(:)
  wait $!
  "$luapulse" run -v --interval 1 -o 'p.%t.pb.gz' -- lua5.4 -e 'while os.clock() < 2.4 do end' 2>&$pipe
  same $? 0 status
  exec {pipe}>&-
  local files=(p.*.pb.gz)
  [ ${#files[@]} -ge 2 ] || fail "only ${#files[@]} files: ${files[*]}"
}
test_several_outputs_and_formats() {
  status "$luapulse" run -o p.html -o p.pb.gz -o p.folded -o p.speedscope.json -o p.callgrind -o p.txt -- lua5.4 "$burn" 0.3
  same "$status" 0 status
  has p.html '<!doctype html>'
  has p.folded 'outer'
  has p.speedscope.json '"sampled"'
  has p.callgrind 'events:'
  has p.txt 'flat%'
  for file in p.*; do same "$(stat -c %a "$file")" 600 "mode of $file"; done
}
# Every format there is: one line for each file, after what was written.
test_what_to_do_with_each_format() {
  local format lines=0
  for format in $("$luapulse" convert -o nothing.xyz /dev/null 2>&1 | sed -n 's/.*with one of: //; s/,//gp'); do
    status "$luapulse" run -v --trace --trace-events 10 -f $format -o out.file -- lua5.4 "$burn" 0.1
    same "$status" 0 "status: $(cat err)"
    tail -n 1 err | grep -qE '^luapulse: (try|open) .*out\.file( |$)' || fail "it is not said what to do with $format: $(cat err)"
    lines=$((lines + 1))
  done
  [ $lines -ge 7 ] || fail "only $lines formats"
  status "$luapulse" run -v --trace -o p.folded -o p.trace.json -o callgrind.out.1 -- lua5.4 "$burn" 0.1
  same "$(tail -n 3 err)" "luapulse: try  flamegraph.pl p.folded >p.svg
luapulse: open p.trace.json in Perfetto (ui.perfetto.dev)
luapulse: try  kcachegrind callgrind.out.1" "what to do with each"
  # on standard output there is nothing to be opened
  status "$luapulse" run -v -o - -f folded -- lua5.4 "$burn" 0.1
  lacks err "try "
}
test_default_output() {
  status "$luapulse" run -- lua5.4 "$burn" 0.2
  ls luapulse.*.pb.gz luapulse.*.html >/dev/null || fail "no default files"
}
test_format_without_a_name() {
  status "$luapulse" run -v -f folded -- lua5.4 "$burn" 0.2
  local files=(luapulse.*)
  [[ ${files[*]} =~ ^luapulse\.[0-9]+\.folded$ ]] || fail "files: ${files[*]}"
  has "${files[0]}" ';inner '
  same "$(tail -n 1 err)" "luapulse: try  flamegraph.pl ${files[0]} >${files[0]%.folded}.svg" "what to do with it"
  rm luapulse.*
  status "$luapulse" run --interval 1 -f text -- lua5.4 "$burn" 1.2
  files=(luapulse.*)
  [[ ${files[0]} =~ ^luapulse\.[0-9]+\.[0-9]+-[0-9]+\.txt$ ]] || fail "files: ${files[*]}"
}
test_instructions_clock() {
  status "$luapulse" run --clock instructions --mean-instr 1000 --max-rate 0 -o p.pb.gz -- lua5.4 "$burn" 0.3
  status "$luapulse" report p.pb.gz
  has out vm_instructions
}
# engine_of FILE: as the profile's comment names it
engine_of() { "$luapulse" report "$1" | sed -n 's/^Comment.*, engine \([a-z]*\).*/\1/p'; }
test_engines() {
  for runtime in $RUNTIMES; do
    local asked=hook
    [[ $runtime == luajit* ]] && asked=luajit
    for pair in auto:walk walk:walk interface:$asked; do
      status "$luapulse" run --engine ${pair%:*} -o p.pb.gz -- $runtime "$burn" 0.3
      same "$status" 0 "status of $runtime with --engine ${pair%:*}"
      profile_is_there p.pb.gz
      same "$(engine_of p.pb.gz)" "${pair#*:}" "engine of $runtime with --engine ${pair%:*}"
    done
    status "$luapulse" run -o p.pb.gz -- $runtime "$burn" 0.3
    same "$(engine_of p.pb.gz)" walk "engine of $runtime"
  done
}
# the program may go to another folder before its Lua starts: the file is found all the same
test_layout_file() {
  mkdir elsewhere
  echo 'cd elsewhere && exec lua5.4 "$@"' >start.sh
  # one of those for 5.4 is for this build of it: the others are refused
  awk '/^layout / { n++ } n { print >"layout." n }' "$root/src/walk/puc.layout"
  local worked=0
  for file in $(grep -l '^layout puc 5\.4 ' layout.*); do
    status "$luapulse" run --lua 5.4 --layout $file -o $file.pb.gz -- bash start.sh "$burn" 0.3
    if [ "$status" -eq 0 ]; then
      profile_is_there $file.pb.gz
      same "$(engine_of $file.pb.gz)" walk "engine with $file"
      worked=$((worked + 1))
    else
      has err "layout file $PWD/$file: "
    fi
  done
  [ $worked -gt 0 ] || fail "no layout for 5.4 works"
}
test_labels_reach_the_file() {
  cat >labels.lua <<'LUA'
local pulse = require "luapulse"
pulse.labels { request = "checkout" }
local x = 0
local stop = os.clock() + 0.3
while os.clock() < stop do for i = 1, 1000 do x = x + i % 7 end end
LUA
  "$luapulse" run -o p.pb.gz -- lua5.4 labels.lua
  go tool pprof -tags p.pb.gz >out 2>err
  has out checkout
}

# -- refusals: words, a status, nothing written ------------------------------------------------------------------------

refused() { # STATUS TEXT ARGUMENTS…
  local expected=$1 text=$2
  shift 2
  status "$luapulse" run "$@"
  same "$status" "$expected" "status of run $*"
  has err "$text"
  same "$(ls | grep -vxE 'out|err|plain.txt' || true)" "" "files left by run $*"
}
test_refusals() {
  refused 2 "the program to run is missing" -o p.html
  refused 2 "is not an option" --bogus -- lua5.4
  refused 2 "tells no format" -o p.xyz -- lua5.4 "$burn"
  refused 2 "there is no format 'xyz'" -f xyz -o p -- lua5.4 "$burn"
  refused 2 "from 1 to 10000, not '0'" -F 0 -o p.html -- lua5.4 "$burn"
  refused 2 "from 1 to 10000, not '12x'" -F 12x -o p.html -- lua5.4 "$burn"
  refused 2 "--clock takes cpu, wall or instructions, not 'sundial'" --clock sundial -o p.html -- lua5.4 "$burn"
  refused 2 "--engine takes auto, walk or interface, not 'steam'" --engine steam -o p.html -- lua5.4 "$burn"
  refused 125 "cannot read the layout file no/such.layout" --layout no/such.layout -o p.html -- lua5.4 "$burn"
  refused 125 "stacks cannot be walked here: layout file" --layout "$root/tests/agent/t.lua" -o p.html -- lua5.4 -e 'print(1)'
  refused 125 "no layout in it is for this Lua" --layout "$root/src/walk/luajit.layout" -o p.html -- lua5.4 -e 'print(1)'
  refused 2 "needs %t" --interval 5 -o p.html -- lua5.4 "$burn"
  refused 2 "% sign" -o p.%q.html -- lua5.4 "$burn"
  refused 127 "cannot find no-such-lua" -o p.html -- no-such-lua x
  refused 125 "not a Lua interpreter" -o p.html -- /bin/true
  refused 125 "--lua takes" --lua 6.0 -o p.html -- lua5.4
  refused 125 "was not profiled" --lua 5.4 -o p.html -- /bin/true
  refused 125 "was not profiled" -o p.html -- lua5.4 -E -e 'print(1)'
  echo text >plain.txt
  refused 125 "not a Lua interpreter" -o p.html -- ./plain.txt
  refused 126 "cannot find plain.txt/lua: Not a directory" -o p.html -- plain.txt/lua
  # 127 is for what could not be found alone; with so few descriptors it comes to no exec, at one place or another
  local most
  for most in 4 5 6 7 8; do
    (ulimit -n $most; "$luapulse" run -o p.html -- lua5.4 -e 'print(1)') >out 2>err
    status=$?
    [ $status = 125 ] || { [ $status = 0 ] && [ -e p.html ]; } || fail "status with $most descriptors: $status, $(cat err)"
    rm -f p.html
  done
}
# A program without standard descriptors has none of luapulse's instead.
test_closed_standard_descriptors() {
  cat >closed.lua <<EOF
os.execute("for fd in 0 1 2; do readlink /proc/\$PPID/fd/\$fd || echo none; done >seen")
io.stdin:read("*a")
dofile("$burn")
EOF
  for closed in '<&-' '>&-' '2>&-' '<&- >&- 2>&-'; do
    (eval "timeout 20 lua5.4 closed.lua 0 </dev/null >out 2>err $closed") || fail "the program alone, $closed: $?"
    mv seen expected
    (eval "timeout 20 $luapulse run -v -F 1000 -o p.pb.gz -- lua5.4 closed.lua 0.2 </dev/null >out 2>err $closed") ||
      fail "luapulse run $closed: $?"
    same "$(cat seen)" "$(cat expected)" "standard descriptors $closed"
    profile_is_there p.pb.gz
    (eval "timeout 20 $luapulse run -o no.pb.gz -- lua5.4 -E closed.lua 0 </dev/null >out 2>err $closed") # which takes nothing of what it is given
    same "$(cat seen)" "$(cat expected)" "standard descriptors of one that is not profiled, $closed"
  done
}
# What can be known of a file before there is a profile is said before the program has begun.
test_unwritable_output_is_an_error_before_the_run() {
  local name
  mkdir folder.html locked
  mkfifo pipe.html
  for name in no/such/folder/p.html no/such/folder/p.%p.html folder.html ./ pipe.html /dev/full; do
    status "$luapulse" run -f html -o p.html -o $name -- lua5.4 "$burn" 0.1
    same "$status" 125 "status with $name"
    same "$(cat out)" "" "output of the program with $name"
    has err "luapulse run: $name: "
    [ ! -e p.html ] || fail "a file was written with $name"
  done
  # a directory whose name is known when it ends
  status "$luapulse" run -o 'no/%p/p.html' -- lua5.4 "$burn" 0.1
  same "$(cat out)" out "output of the program"
  same "$status" 125 "status"
  not_root && nobody() { "$@"; } || nobody() { setpriv --reuid 65534 --regid 65534 --clear-groups --bounding-set -all --inh-caps -all "$@"; }
  chmod 755 . && chmod 555 locked
  cp -r "$luapulse" "$root/$BUILD/lua" . # where nobody else can go, it could not be run
  status nobody ./luapulse run -o locked/p.html -- lua5.4 -e 'print "it ran"'
  same "$status" 125 "status without permission: $(cat err)"
  same "$(cat out)" "" "output of the program without permission"
  has err "locked/p.html: its directory cannot be written to: Permission denied"
}
test_output_that_becomes_unwritable_is_an_error_after_the_run() {
  mkdir folder
  status "$luapulse" run -o folder/p.html -- lua5.4 -e 'os.remove "folder" print "out"'
  same "$status" 125 status
  same "$(cat out)" out "output of the program"
  has err "folder/p.html"
  mkdir folder
  status "$luapulse" run -o folder/p.html -- lua5.4 -e 'os.remove "folder" os.exit(7)'
  same "$status" 7 "the program's own status comes first"
}
test_module_missing_for_that_lua() {
  mkdir bin
  cp "$luapulse" bin/luapulse
  status bin/luapulse run -o p.html -- lua5.4 "$burn"
  same "$status" 125 status
  has err "no luapulse module for Lua 5.4"
}
test_tables_full_is_said() {
  cat >deep.lua <<'LUA'
local stop, n = os.clock() + 1, 0
while os.clock() < stop do
  n = n + 1
  local f = assert((loadstring or load)("local x = 0 for i = 1, 3000 do x = x + i end return x", "=chunk" .. n .. ("y"):rep(900)))
  f()
end
LUA
  status "$luapulse" run --clock instructions --mean-instr 100 --max-rate 0 --memory 1 -v -o p.pb.gz -- lua5.4 deep.lua
  same "$status" 0 status
  has err " found no room for their stack: more than --memory 1 would have it"
  status "$luapulse" report p.pb.gz
  has out "[overflow]"
}

cli_main "$@"
