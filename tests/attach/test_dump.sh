# luapulse dump: the stacks of a known program, on every runtime, busy and waiting; what cannot be read; what is left behind.
source "$(dirname "$0")/attach.sh"
RUNTIMES=${RUNTIMES:-$all_runtimes}

# The loop of leaf() is one line and jumps to itself: between a jump and the next instruction the line before it is as good as that
# line (16, 17).
matches() { # TITLE FILE LINES…: the stack is these lines, each a regular expression
  local title=$1 file=$2 number=0 expected
  shift 2
  stack_of "$title" "$file" >stack
  same "$(wc -l <stack)" $# "frames of '$title' in $(cat "$file")"
  for expected in "$@"; do
    number=$((number + 1))
    sed -n "${number}p" stack | grep -qxE -- "$expected" || { cat "$file" >&2; fail "frame $number of '$title' is not $expected"; }
  done
}
known_stacks() { # IMAGE HOW
  local image=$1 how=$2 line top
  case $how in
    busy) line=1[67] top=() ;;
    wait) line=9 top=("os.execute \[C\] in $image") ;;
    read) line=12 top=("file:read \[C\] in $image") ;;
  esac
  matches ", running" out "${top[@]}" "leaf known.lua:$line" "deeper known.lua:23" "deeper known.lua:24" "deeper known.lua:24" \
    "deeper known.lua:24" "body known.lua:51"
  grep -q "^  coroutine 0x[0-9a-f]*, normal" out || fail "the resumer is missing: $(cat out)"
  matches "main thread" out "coroutine.resume \[C\] in $image" "main chunk known.lua:59" ".* \[C\] in $(program)"
  matches ", suspended" out "coroutine.yield \[C\] in $image" "wait_for_more known.lua:31" "wait_for_more known.lua:34" \
    "wait_for_more known.lua:34" "function <known.lua:37> known.lua:37"
  matches ", dead, by an error" out "error \[C\] in $image" "function <known.lua:43> known.lua:43"
  has out "4 coroutines on no thread"
  same "$(grep -c "suspended, not started$" out)" 1 "coroutines that were never resumed"
  same "$(grep -c ", dead$" out)" 1 "coroutines that returned"
  grep -qE "^stopped for [0-9]+\.[0-9] ms$" out || fail "how long it was stopped is not said: $(cat out)"
}
dump_known() { # HOW COMMAND…
  local how=$1
  shift
  start "$@" "$here/known.lua" "$how"
  until_printed ready
  if [ "$how" = busy ]; then until_busy; else until_state S; fi
  status "$luapulse" dump -p "$pid"
  same "$status" 0 "status of $*, $how: $(cat err)"
  same "$(cat err)" "" "messages"
  runs_on
}
test_busy() {
  local runtime
  for runtime in $RUNTIMES; do
    dump_known busy $runtime
    known_stacks "$(image)" busy
    kill -KILL "$pid"
  done
}
test_waiting_for_a_command() {
  local runtime
  for runtime in $RUNTIMES; do
    dump_known wait $runtime
    known_stacks "$(image)" wait
  done
}
test_waiting_for_a_pipe() {
  local runtime
  for runtime in $RUNTIMES; do
    dump_known read $runtime
    known_stacks "$(image)" read
  done
}
test_luajit_without_the_compiler() {
  local runtime how
  for runtime in luajit $gc32; do
    for how in busy wait; do
      dump_known $how $runtime -joff
      known_stacks "$(image)" $how
    done
  done
}
test_stripped_and_renamed() {
  local runtime
  for runtime in $RUNTIMES; do
    copy_of $runtime ./httpd
    dump_known busy ./httpd
    known_stacks httpd busy
    rm httpd # a deleted file is as good
    status "$luapulse" dump -p "$pid"
    same "$status" 0 "status of a deleted $runtime: $(cat err)"
    matches ", running" out "leaf known.lua:1[67]" "deeper known.lua:23" "deeper known.lua:24" "deeper known.lua:24" \
      "deeper known.lua:24" "body known.lua:51"
    kill -KILL "$pid"
  done
}
# all_stop: a dump of threads that all got the processor in time to stop, which one of many on a busy machine may not
all_stop() {
  status "$luapulse" dump -p "$pid"
  same "$status" 0 "status: $(cat err)"
  ! grep -q "did not stop" out
}
# Threads with VMs of their own, and a VM that runs inside of another on one thread.
test_many_vms() {
  local package i
  for package in lua5.1 lua5.4 ${gc32:+texluajit}; do
    ${CC:-cc} $(pkg-config --cflags $package) -o host "$here/threads_host.c" $(pkg-config --libs $package) -lpthread || fail "the host does not compile"
    start ./host
    until_printed ready
    until_all_busy
    in_time all_stop || fail "they do not stop: $(cat out)"
    for i in 1 2 3; do same "$(grep -cE "^    work_$i +work_$i:1" out)" 1 "stacks of work_$i in $(cat out)"; done
    same "$(grep -c "^thread [0-9]* (host)$" out)" 4 "threads with Lua in $(cat out)"
    same "$(grep -c "^VM 0x" out)" 5 "VMs in $(cat out)"
    # the inner one first, its host below
    awk '/^    inside +inside:/ { inner = NR } /^    outside +outside:/ { outer = NR } END { exit !(inner > 0 && outer > inner) }' out ||
      fail "a VM within a VM: $(cat out)"
    runs_on
    kill -KILL "$pid"
    rm host
  done
}
# Those that wait in the same place stand together, the most first; with --each every one by itself.
test_coroutines_that_are_alike() {
  local runtime at
  for runtime in $RUNTIMES; do
    start $runtime "$here/waiting.lua"
    until_printed ready
    status "$luapulse" dump -p "$pid"
    same "$status" 0 "status of $runtime: $(cat err)"
    has out "36 coroutines on no thread"
    same "$(sed -n 's/^  \([0-9]* coroutines\|coroutine 0x[0-9a-f]*\), \([a-z, ]*\).*/\1, \2/p' out | sed 's/ 0x[0-9a-f]*//')" "28 coroutines, suspended
3 coroutines, suspended, not started
2 coroutines, suspended
2 coroutines, dead
coroutine, suspended" "groups of $runtime: $(cat out)"
    at='0x[0-9a-f]+'
    grep -qxE "  28 coroutines, suspended: $at, $at, $at, $at and 24 more" out || fail "which: $(cat out)"
    grep -qxE "  3 coroutines, suspended, not started: $at, $at, $at" out || fail "which: $(cat out)"
    matches "28 coroutines, suspended" out "coroutine.yield \[C\] in $(image)" "wait_for_request waiting.lua:7" "serve waiting.lua:11"
    matches "2 coroutines, suspended" out "coroutine.yield \[C\] in $(image)" "wait_for_request waiting.lua:5" "serve waiting.lua:11"
    status "$luapulse" dump --each -p "$pid"
    same "$status" 0 "status of $runtime: $(cat err)"
    same "$(grep -cE "^  coroutine $at, " out)" 36 "coroutines of $runtime, each"
    same "$(grep -cE "^    wait_for_request " out)" 30 "stacks of $runtime, each"
    same "$(grep -c "^  [0-9]* coroutines" out)" 0 "groups in spite of --each"
    kill -KILL "$pid"
  done
}
# Targets that begin and end while they are looked at: an answer in words, or a stack.
test_short_lived_targets() {
  local i seen=0
  for ((i = 0; i < 200 || (seen < 20 && i < 2000); i++)); do # where to look takes longer, they stay for longer
    lua5.4 -e "local t = {} for i = 1, $((i % 10 * (1 + i / 200))) * 20000 do t[i % 100] = {i} end" &
    status "$luapulse" dump -p $!
    if [ "$status" = 0 ]; then
      seen=$((seen + 1))
      has out "process $!"
    else
      same "$status" 1 "status"
      grep -qE "^luapulse dump: (there is no process|process [0-9]+ .* (ended while it was looked at|has ended)|no Lua)" err || fail "$(cat err)"
    fi
    wait $! || fail "target $i: its status is $?"
  done
  [ "$seen" -ge 20 ] || fail "only $seen of $i were seen at work"
}
# Again and again: the program runs on, and every stack is right.
test_again_and_again() {
  local runtime i
  for runtime in lua5.4 luajit $gc32; do
    start $runtime "$here/known.lua" busy
    until_printed ready
    until_busy
    for ((i = 0; i < 15; i++)); do
      "$luapulse" dump -p "$pid" >out 2>err || fail "dump $i of $runtime: $(cat err)"
      matches ", running" out "leaf known.lua:1[67]" "deeper known.lua:23" "deeper known.lua:24" "deeper known.lua:24" \
        "deeper known.lua:24" "body known.lua:51"
    done
    runs_on
    kill -KILL "$pid"
  done
}
test_several_processes() {
  local first
  start lua5.4 "$here/known.lua" wait
  until_printed ready
  first=$pid
  start lua5.1 "$here/known.lua" busy
  until_printed ready
  status "$luapulse" dump -p "$first,$pid"
  same "$status" 0 "status: $(cat err)"
  has out "process $first: lua5.4"
  has out "process $pid: lua5.1"
  # one that is none: the others are shown, and the status tells
  status "$luapulse" dump -p "$first,4194300,$pid"
  same "$status" 1 "status"
  same "$(cat err)" "luapulse dump: there is no process 4194300" "message"
  has out "process $first: lua5.4"
  has out "process $pid: lua5.1"
}
# A process that job control has stopped is read, and stays stopped.
test_stopped_by_job_control() {
  start lua5.4 "$here/known.lua" busy
  until_printed ready
  kill -STOP "$pid"
  until_state T
  status "$luapulse" dump -p "$pid"
  same "$status" 0 "status: $(cat err)"
  has out "leaf"
  until_state T
  kill -CONT "$pid"
  until_state R
}
# Signals that arrive meanwhile are not lost.
test_signals_are_delivered() {
  local i
  ${CC:-cc} $(pkg-config --cflags lua5.4) -o host "$here/idle_host.c" $(pkg-config --libs lua5.4) || fail "the host does not compile"
  start ./host
  until_printed ready
  for ((i = 1; i <= 20; i++)); do
    "$luapulse" dump -p "$pid" >out 2>err &
    kill -USR1 "$pid"
    wait $!
    has out "main thread"
    until_printed "got $i"
  done
  runs_on
}
test_killed_while_it_holds_the_process() {
  local i dumping
  start luajit "$here/known.lua" busy
  until_printed ready
  for ((i = 0; i < 30; i++)); do
    "$luapulse" dump -p "$pid" >out 2>err &
    dumping=$!
    read -rt "0.00$((i % 9))" <> <(:)
    kill -KILL $dumping 2>/dev/null
    wait $dumping 2>/dev/null
  done
  until_state R
  runs_on
}
test_functions_of_a_chunk_that_is_a_string() {
  cat >chunk.lua <<'END'
local text = "local function in_text()\n  io.write('ready\\n') io.flush()\n  while true do end\nend\nin_text()"
assert((loadstring or load)(text))()
END
  start lua5.4 chunk.lua
  until_printed ready
  status "$luapulse" dump -p "$pid"
  same "$status" 0 "status: $(cat err)"
  grep -qE '^    in_text +\[string "local function in_text\(\)\.\.\."\]:[23]$' out || { cat out >&2; fail "the function of the text"; }
  grep -qE '^    main chunk +\[string "local function in_text\(\)\.\.\."\]:5$' out || fail "the chunk"
  grep -qE '^    main chunk +chunk.lua:2$' out || fail "the program"
}
test_deep_recursion_is_cut_and_said() {
  cat >deep.lua <<'END'
local function down(n) if n == 0 then io.write("ready\n") io.flush() while true do end end return 1 + down(n - 1) end
down(5000)
END
  start lua5.4 deep.lua
  until_printed ready
  status "$luapulse" dump -p "$pid"
  same "$status" 0 "status: $(cat err)"
  same "$(grep -c '^    down ' out)" 1024 "frames"
  has out "[deeper frames are left out: 1024 at most are read]"
}
test_names_of_strangers_do_not_reach_the_terminal() {
  printf 'local f = load("io.write([[ready]]) io.flush() while true do end", "@\\27[31mred")\nf()\n' >evil.lua
  start lua5.4 evil.lua
  until_printed ready
  status "$luapulse" dump -p "$pid"
  same "$status" 0 "status: $(cat err)"
  has out '\x1b[31mred:'
  lacks out $'\x1b'
}
# A process whose memory changes all the time: stacks that grow and shrink, coroutines that come and go, much garbage.
test_storm() {
  needs_sanitized
  local runtime i
  for runtime in $RUNTIMES; do
    start $runtime "$here/storm.lua"
    until_printed ready
    for ((i = 0; i < 10; i++)); do
      "$sanitized" dump -p "$pid" >out 2>err
      status=$?
      lacks err Sanitizer
      lacks err "runtime error"
      # a thread may be stopped while a frame is made, six times in a row: said, never a crash or a wrong word
      [ $status = 0 ] || grep -q "cannot be walked" err || fail "$runtime: $(cat err)"
      [ $status != 0 ] || { has out "main thread" && lacks out "cannot be read"; }
      [ $status != 0 ] || awk -f "$here/roots.awk" out >wrong || fail "$runtime: stacks without their root: $(cat wrong)"
      ! grep -vE "^( |process|Lua|stopped|thread|VM|$)" out || fail "what is that? $(cat out)"
    done
    runs_on
    kill -KILL "$pid"
  done
}
test_help() {
  for words in "help dump" "dump --help" "dump -h"; do
    status "$luapulse" $words
    same "$status" 0 "status of $words"
    has out "Usage: luapulse dump -p PID"
  done
}
test_usage() {
  refused() { # STATUS TEXT ARGUMENTS…
    local expected=$1 text=$2
    shift 2
    status "$luapulse" "$@"
    same "$status" "$expected" "status of $*"
    has err "$text"
    same "$(cat out)" "" "output of $*"
  }
  refused 2 "the process is missing: -p PID" dump
  refused 2 "--pid takes the numbers of processes" dump -p x
  refused 2 "--pid takes the numbers of processes" dump -p 12,
  refused 2 "--pid takes the numbers of processes" dump -p -1
  refused 2 "--pid takes the numbers of processes" dump -p 0
  refused 2 "-p needs a value" dump -p
  refused 2 "is not an option" dump --everything
  refused 2 "'12' is one too many" dump -p 1 12
}
attach_main "$@"
