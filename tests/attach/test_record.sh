# luapulse record: known programs on every runtime with every engine; what it leaves as it was; how it ends; what it says.
source "$(dirname "$0")/attach.sh"
RUNTIMES=${RUNTIMES:-$all_runtimes}

test_known_shares() {
  local runtime
  for engine in $(engines); do
    for runtime in $RUNTIMES $newer luajit,-joff ${gc32:+$gc32,-joff}; do
      tells_more || continue
      start_split ${runtime//,/ } -- plain
      enough -p "$pid"
      split_shares "$engine $runtime"
      runs_on
      kill -KILL "$pid"
    done
  done
}
test_coroutines() {
  local runtime
  for engine in $(engines); do
    for runtime in $RUNTIMES luajit,-joff ${gc32:+$gc32,-joff}; do
      tells_more || continue
      start_split ${runtime//,/ } -- coroutines
      enough -p "$pid"
      # from the function through both coroutines down to the main chunk
      has_share 'main chunk .*;[^;]*split.lua:[0-9]+ .*;[^;]*split.lua:[0-9]+ .*;a \\(.*;burn ' 500 "$engine $runtime a"
      has_share 'main chunk .*;c \\(.*;burn ' 200 "$engine $runtime c"
      kill -KILL "$pid"
    done
  done
}
# What was read of a function is used again where it is met further down: with the line of each call all the same.
test_functions_met_again() {
  local runtime path i turn='first [^;]*:11\\);second [^;]*:(14|15)\\);([^;]*;)?third [^;]*:(18|19)\\);'
  for i in {1..12}; do path+=$turn; done
  for engine in $(engines); do
    for runtime in lua5.1 lua5.4 lua5.5 luajit,-joff ${gc32:+$gc32,-joff}; do
      tells_more || continue
      start ${runtime//,/ } "$here/turns.lua"
      until_printed ready
      enough -p "$pid"
      has_share "main chunk [^;]*;${path}burn " 1000 "$engine $runtime"
      kill -KILL "$pid"
    done
  done
}
# VMs of their own on threads of their own, four that run: each has the share of the samples that it has of the processor, which is for
# the kernel to give. It is known of the time from before the recording until after it, most of which that should have been.
test_threads() {
  local i thread all
  ${CC:-cc} $(pkg-config --cflags lua5.4) -o host "$here/threads_host.c" $(pkg-config --libs lua5.4) -lpthread || fail "the host does not compile"
  used_by_threads() { awk '{ print FILENAME, $1 }' /proc/$pid/task/*/schedstat; }
  watched() {
    used_by_threads >before && recorded -p "$pid" -F 999 "$@" && used_by_threads >after
    paste -d ' ' before after | awk '{ split($1, path, "/"); print path[5], $4 - $2; sum += $4 - $2 } END { print "all", sum }' >used
  }
  was_most_of_it() { awk '/^all/ { used = $2 } !/^#|^all/ && FILENAME != "used" { sum += $NF } END { exit sum < used / 2 }' used out.folded || fail "half of the time is not recorded"; }
  for engine in $(engines); do
    start ./host
    until_printed ready
    until_seen "sampled 150; for i in work_1 work_2 work_3 inside; do stacks \"main chunk .\$i:1.;\$i .\$i:1\"; done; was_most_of_it" watched
    mv out.folded all.folded
    all=$(awk '!/^#/ { sum += $NF } END { print sum }' all.folded)
    for thread in $(sed -n 's/^\([0-9]*\) .*/\1/p' used); do
      "$luapulse" convert --where "tid=$thread" -o out.folded out.pb.gz || fail "nothing of thread $thread"
      same "$(grep -oE 'work_.|inside' out.folded | sort -u | wc -l)" 1 "functions of thread $thread"
      within "$(awk -v all="$all" '!/^#/ { sum += $NF } END { printf "%d", sum * 1000 / all + 0.5 }' out.folded)" \
        "$(awk -v thread="$thread" '$1 == thread { own = $2 } $1 == "all" { printf "%d", own * 1000 / $2 + 0.5 }' used)" "$engine, thread $thread"
    done
    runs_on
    kill -KILL "$pid"
  done
}
# What a thread has used is told by the process while it is the only one, with what those before it used: it is sampled as before.
test_passing_threads() {
  ${CC:-cc} $(pkg-config --cflags lua5.4) -o host "$here/passing_threads_host.c" $(pkg-config --libs lua5.4) -lpthread || fail "the host does not compile"
  for engine in $(engines); do
    start ./host
    until_printed ready
    enough -p "$pid"
    has_share '^with_another ' 500 "$engine"
    has_share '^alone ' 500 "$engine"
    kill -KILL "$pid"
  done
}
# A thread that wakes after it was given up comes to the stop that it was asked for: it is let go then, and not when all is over.
test_a_thread_that_stops_late() {
  for engine in $(engines); do
    start_vfork_host
    start_recorder -p "$pid" -d 20
    until_busy 10 # the others were let go
    sleeper_is_asked || fail "$engine: the thread was not asked to stop"
    kill -KILL "$child"
    wait_for eval 'grep -q awake "printed.$((${#started[@]} - 1))" || ! kill -0 $recorder'
    kill -0 $recorder || fail "$engine: the thread stood still until the recorder ended: $(cat err)"
    kill -INT $recorder
    wait $recorder || fail "status: $(cat err)"
    stacks "work "
    runs_on
    kill -KILL "$pid"
  done
}
# gaps: how long the process started last had no processor, in ms, each time that it was a tenth of a second or more
gaps() { awk '$1 == "gap" { sum += $2 } END { print sum + 0 }' "printed.$((${#started[@]} - 1))"; }
# Such a thread is not waited for long while the others stand still, nor at every look. On a busy machine they may have no processor for other reasons:
# of some times one has to be good.
test_the_others_do_not_wait_for_a_thread_that_does_not_stop() {
  local what tries all
  for engine in $(engines); do
    for what in none lua; do
      all=
      for tries in 1 2 3; do
        start_vfork_host $what
        status timeout 15 "$luapulse" record --engine "$engine" -p "$pid" -d 1 -o out.folded
        all+=" $(gaps)"
        [ "$(gaps)" -lt 500 ] && break
        kill -KILL "$pid"
      done
      [ "$(gaps)" -lt 500 ] || fail "$engine, $what: ms that the process stood still:$all; $(cat err)"
      [ $what = none ] || stacks "work "
      [ $what = lua ] || has err "luapulse record: no Lua that can be read in process $pid (vfork_host): "
      runs_on
      kill -KILL "$pid"
    done
  done
}
test_no_lua() {
  for engine in $(engines); do
    start_sleep
    record -p "$pid"
    same "$status" 1 "status"
    has err "luapulse record: no Lua in process $pid (sleep): none of the "
    has err "luapulse record: no Lua was found: nothing is written"
    [ ! -e out.pb.gz ] || fail "a profile of nothing was written"
    # nothing was looked into: whether there is one nobody knows
    record -q -p 4194300
    same "$status" 1 "status"
    same "$(cat err)" "luapulse record: there is no process 4194300
luapulse record: nothing was recorded: nothing is written" "message"
    # one was
    record -q -p "4194300,$pid"
    same "$(tail -n 1 err)" "luapulse record: no Lua was found: nothing is written" "last line"
    kill -KILL "$pid"
  done
}
both_luas() { stacks "main chunk .*;of_1 " && stacks "main chunk .*;of_2 "; }
# Each by its own layout, whichever comes first.
test_two_luas_in_one_process() {
  local libraries=(liblua5.1.so.0 liblua5.4.so.0) turn
  ${CC:-cc} -o two_luas "$here/two_luas_host.c" -ldl -lpthread || fail "the host does not compile"
  for turn in 1 2; do
    start ./two_luas "${libraries[@]}"
    until_printed ready
    for engine in $(engines); do
      until_seen both_luas recorded -p "$pid" -F 499
      has_share ';of_[12] ' 1000 "$engine: what is named"
    done
    status "$luapulse" dump -p "$pid"
    has out of_1
    has out of_2
    status "$luapulse" probe -p "$pid"
    has out "Lua 5.1"
    has out "Lua 5.4"
    kill -KILL "$pid"
    libraries=("${libraries[1]}" "${libraries[0]}")
  done
}
# code_of PID: what it has in memory that can be run, and in how many threads
code_of() {
  local range _
  ls "/proc/$1/task" | wc -l
  awk '$2 ~ /x/ && $6 !~ /^\[/ { print $1, $2, $6 }' "/proc/$1/maps" | while read -r range _; do
    echo "$range $_ $(dd if="/proc/$1/mem" bs=4096 iflag=skip_bytes,count_bytes skip=$((16#${range%-*})) count=$((16#${range#*-} - 16#${range%-*})) 2>/dev/null | md5sum)"
  done
}
test_nothing_changes_in_the_target() {
  local before runtime
  for runtime in lua5.4 lua5.1; do
    start_split $runtime -- plain
    before=$(code_of "$pid")
    [ "$(echo "$before" | wc -l)" -ge 3 ] || fail "hardly any code: $before"
    for engine in $(engines); do
      start_recorder -p "$pid" -F 499
      until_busy 10
      same "$(code_of "$pid")" "$before" "$engine $runtime: threads and code while it is recorded"
      kill -INT $recorder
      wait $recorder || fail "status: $(cat err)"
      sampled 1
      same "$(code_of "$pid")" "$before" "$engine $runtime: threads and code afterwards"
      runs_on
    done
    kill -KILL "$pid"
  done
}
# The first ends the recording and the files are written, the second ends luapulse at once.
test_interrupts() {
  local recorder i
  for engine in $(engines); do
    start_split lua5.4 -- plain
    target=$pid
    start "$luapulse" record --engine "$engine" -F 999 -p "$target" -o first.folded
    until_printed recording
    until_samples
    kill -INT "$pid"
    until_printed "written to first.folded"
    [ -s first.folded ] || fail "nothing was written"
    start "$luapulse" record --engine "$engine" -F 999 -p "$target" -o second.folded
    until_printed recording
    until_samples
    kill -STOP "$pid"
    kill -INT "$pid"
    kill -TERM "$pid"
    kill -CONT "$pid"
    until_gone
    [ ! -e second.folded ] || fail "it went on after the second signal"
    pid=$target
    runs_on
    kill -KILL "$target"
  done
}
# until_samples: the recorder started last has used the processor in steady work: it has opened its target, which takes it far less
until_samples() { until_busy 8; }
# No signal that arrives meanwhile is lost, at any rate.
test_signals_of_the_target_are_delivered() {
  local i
  cat >counting.c <<'END'
#include <lauxlib.h>
#include <lualib.h>
#include <signal.h>
#include <stdio.h>
static volatile sig_atomic_t got;
static void on_signal(int number) { (void)number; got++; }
static int count(lua_State *L) { lua_pushinteger(L, got); return 1; }
int main(void) {
  lua_State *L = luaL_newstate();
  luaL_openlibs(L);
  lua_register(L, "count", count);
  signal(SIGUSR1, on_signal);
  return luaL_dostring(L, "print('ready') io.flush() local last = 0 while true do local n = count() if n ~= last then last = n print('got ' .. n) io.flush() end end");
}
END
  ${CC:-cc} $(pkg-config --cflags lua5.4) -o host counting.c $(pkg-config --libs lua5.4) || fail "the host does not compile"
  for engine in $(engines); do
    start ./host
    until_printed ready
    "$luapulse" record -q --engine "$engine" -p "$pid" -F 2000 -o out.folded 2>err &
    recorder=$!
    for ((i = 1; i <= 100; i++)); do
      kill -USR1 "$pid"
      until_printed "got $i"
    done
    kill -INT $recorder
    wait $recorder || fail "status: $(cat err)"
    runs_on
    kill -KILL "$pid"
  done
}
# Two at a time: what one holds the other cannot, and counts; to begin it waits until the other lets go.
test_two_recorders() {
  for engine in $(engines); do
    start_split lua5.4 -- plain
    start_recorder -p "$pid" -F 499
    mv err other # where it goes on to write
    until_seen "sampled 100" recorded -p "$pid" -F 499
    split_shares "$engine"
    mv other err
    kill -INT $recorder
    wait $recorder || fail "status of the first: $(cat err)"
    split_shares "$engine, the first"
    runs_on
    kill -KILL "$pid"
  done
}
# What does not run is not stopped.
test_idle_targets() {
  for engine in $(engines); do
    start lua5.4 "$here/known.lua" read
    until_printed ready
    until_state S
    recorded -p "$pid" -d 0.5
    # when it was looked into it was stopped: it runs for a moment to wait again
    [ "$(samples)" -le 2 ] || fail "it does not run: $(cat err)"
    [ "$(samples)" != 0 ] || has err "no samples: it used no processor time"
    kill -KILL "$pid"
  done
}
# One that never sleeps has used the processor all the same.
test_too_short_for_a_sample() {
  local try
  start_split lua5.4 -- plain
  for engine in $(engines); do
    for try in {1..20}; do
      recorded -p "$pid" -F 2 -d 0.001
      [ "$(samples)" != 0 ] || break
    done
    [ "$engine" != ptrace ] || [ "$(samples)" = 0 ] || continue # whose first tick is at once
    same "$(grep -c "^luapulse: no samples: 0\.[0-9]* s are too short for 2 in a second; record for longer, or more often (-F)\$" err)" 1 "it is said: $(cat err)"
    lacks err "no processor time"
  done
  kill -KILL "$pid"
}
test_duration_and_formats() {
  start_split lua5.4 -- plain
  engine=$(engines | sed 's/ .*//')
  into_default_files() {
    status "$luapulse" record --engine "$engine" -p "$pid" -F 999 "$@"
    same "$status" 0 "status: $(cat err)"
    "$luapulse" report "luapulse.$pid.pb.gz" >report || fail "the profile cannot be read"
  }
  until_seen "has report burn" into_default_files
  [ -s "luapulse.$pid.pb.gz" ] && [ -s "luapulse.$pid.html" ] || fail "the default files are missing: $(ls)"
  has err "luapulse: try  luapulse report luapulse.$pid.pb.gz"
  has err "luapulse: open luapulse.$pid.html in a browser"
  status "$luapulse" record -q --engine "$engine" -p "$pid" -d 0.3 -F 200 -o a.speedscope.json -o a.callgrind -o a.txt -o 'b.%p.html'
  same "$status" 0 "status: $(cat err)"
  same "$(cat err out)" "" "what a quiet recording says"
  for file in a.speedscope.json a.callgrind a.txt "b.$pid.html"; do [ -s $file ] || fail "$file is missing"; done
  has report "engine $engine, from outside"
  status "$luapulse" record --engine "$engine" -p "$pid" -d 0.3 -o a.folded -o a.speedscope.json -o "a b.callgrind" -o a.txt
  same "$status" 0 "status: $(cat err)"
  # with names that a shell can read
  same "$(sed -n '/^luapulse: try /p' err)" "luapulse: try  flamegraph.pl a.folded >a.svg
luapulse: try  npx speedscope a.speedscope.json   or  open it in www.speedscope.app
luapulse: try  kcachegrind 'a b.callgrind'
luapulse: try  less a.txt" "what to do with what was written"
}
has_status_line() {
  grep -qE '[0-9]+ s: [0-9]+ samples, [0-9]+/s, [0-9]+ lost, [0-9]+ unattributed.*; 1 of 1 process' screen || { cat -v screen >&2; fail "no status line"; }
}
test_status_line() {
  for engine in $(engines); do
    start_split lua5.4 -- plain
    in_a_terminal() { script -qec "'$luapulse' record --engine $engine -p $pid -o out.folded $*" screen >/dev/null </dev/null; }
    until_seen "has_status_line" in_a_terminal
    has screen $'\r\033[K'
    kill -KILL "$pid"
  done
}
# A host that is not in Lua for much of its time: what is not attributed is counted with its reason, while it records and at the end.
is_told() {
  grep -aqE ' s: [0-9]+ samples, [0-9]+/s, 0 lost, ([1-9][0-9]*) unattributed \(no state \1\); 1 of 1 process' screen &&
    grep -aqE 'luapulse: [0-9]+ samples in [0-9.]+ s of 1 process, 0 lost, ([1-9][0-9]*) unattributed \(no state \1\)' screen ||
    { tail -c 400 screen | cat -v >&2; fail "it is not told"; }
}
test_time_outside_of_lua() {
  cat >outside.c <<'END'
#include <lauxlib.h>
#include <lualib.h>
#include <stdio.h>
int main(void) {
  lua_State *L = luaL_newstate();
  luaL_openlibs(L);
  if (luaL_loadstring(L, "local x = 0 for i = 1, 1e5 do x = x + i end")) return 1;
  puts("ready");
  fflush(stdout);
  for (;;) {
    lua_pushvalue(L, 1);
    lua_call(L, 0, 0);
    for (volatile int i = 0; i < 1000000; i++) continue;
  }
}
END
  ${CC:-cc} $(pkg-config --cflags lua5.4) -o host outside.c $(pkg-config --libs lua5.4) || fail "the host does not compile"
  start ./host
  until_printed ready
  for engine in $(engines); do
    in_a_terminal() { script -qec "stty cols 150; '$luapulse' record --engine $engine -p $pid -F 499 -o out.folded $*" screen >/dev/null </dev/null; }
    until_seen is_told in_a_terminal
    stacks '\[outside Lua\]'
    stacks 'main chunk'
  done
}
# A kernel that has no BPF, or permits none: the other engine is taken, and it is said why.
test_kernels_without_bpf() {
  local error why
  ${CC:-cc} -o without_bpf "$here/without_bpf.c" || fail "the filter does not compile"
  start_split lua5.4 -- plain
  for error in 1 38; do # EPERM, ENOSYS
    why="this kernel has no BPF"
    [ $error = 38 ] || why="the kernel refuses BPF programs although CAP_BPF and CAP_PERFMON are held: it is locked down, or a security module or a filter of system calls forbids it"
    filtered() {
      status ./without_bpf $error "$luapulse" record -p "$pid" -F 499 -o out.folded "$@"
      same "$status" 0 "status: $(cat err)"
    }
    until_seen 'sampled 1 && stacks ";burn "' filtered
    grep -qxE "luapulse: recording 1 process at 499 Hz with engine ptrace, for [0-9.]+ s" err || fail "$(cat err)"
    grep -qxF "luapulse: not with engine bpf: $why" err || fail "$(cat err)"
    status ./without_bpf $error "$luapulse" record --engine bpf -p "$pid" -d 1 -o none.folded
    same "$status" 1 "status"
    same "$(cat err)" "luapulse record: $why" "message"
    [ ! -e none.folded ] || fail "a file was written"
    status ./without_bpf $error "$luapulse" probe -p "$pid"
    grep -qxF "  engine    ptrace: record stops threads for a moment; not bpf: $why" out || fail "$(cat out)"
  done
}
test_deep_stacks_are_cut() {
  engine=ptrace # for the other one: test_record_bpf.sh
  deep_stacks_are_cut
}
# Only those of capabilities and users: whether the kernel has Yama depends on the machine.
test_without_privileges() {
  start_split lua5.4 -- plain
  engine=ptrace
  chmod 777 .
  cp "$luapulse" ./luapulse # where nobody else can go, it could not be run
  status setpriv --reuid 65534 --regid 65534 --clear-groups --bounding-set -all --inh-caps -all \
    ./luapulse record --engine ptrace -s -F 499 -p "4194300,$pid" -o "out of '%p'.folded" -d 0.3
  same "$status" 1 "status"
  grep -vE " 0 samples in " err >said
  same "$(cat said)" "luapulse: recording 2 processes at 499 Hz with engine ptrace, for 0.3 s
luapulse record: there is no process 4194300
luapulse record: process $pid (lua5.4) belongs to user 0, and you are user 65534: needs CAP_SYS_PTRACE; run: sudo luapulse record --engine ptrace -s -F 499 -p 4194300,$pid -o 'out of '\\''%p'\\''.folded' -d 0.3
luapulse record: nothing was recorded: nothing is written" "message"
  # the command does what was wanted, as it stands
  luapulse() { "$luapulse" "$@"; }
  sudo() { "$@"; }
  sed -n 's/.*; run: //p' err >command
  status . ./command
  has err "written to out of '4194300'.folded"
  kill -KILL "$pid"
  # one's own is another matter
  start setpriv --reuid 65534 --regid 65534 --clear-groups lua5.4 "$here/split.lua" plain
  until_printed ready
  status setpriv --reuid 65534 --regid 65534 --clear-groups --bounding-set -all --inh-caps -all \
    "$luapulse" record --engine ptrace -p "$pid" -o out.folded -d 0.3
  grep -q "ptrace_scope" err || { same "$status" 0 "status: $(cat err)" && [ -s out.folded ]; } || fail "$(cat err)"
  kill -KILL "$pid"
}
test_what_is_said_of_programs_and_processes() {
  engine=ptrace
  record -- sh -c 'lua5.4 -e "local stop = os.clock() + 0.3 while os.clock() < stop do end"; true'
  same "$status" 1 "status"
  has err "luapulse: recording sh at 99 Hz with engine ptrace, until it ends, or Ctrl-C"
  has err "luapulse record: no Lua was found: nothing is written; if the program starts others, add --follow (-s)"
  start_split lua5.4 -- plain
  recorded -p "$pid,$pid" -p "$pid" -d 0.2
  has err "luapulse: recording 1 process at"
  recorded -p "$pid" -d 0.2 -o -strange.txt
  has err "luapulse: try  less ./-strange.txt"
  kill -KILL "$pid"
}
# Before anything is recorded: what was, would be lost.
test_outputs_that_cannot_be() {
  local name
  mkdir folder.html
  start_split lua5.4 -- plain
  for name in no/p.html no/p.%p.html folder.html /dev/full; do
    status timeout 60 "$luapulse" record -p "$pid" -f html -o p.html -o $name # with no end of its own
    same "$status" 1 "status with $name"
    has err "luapulse record: ${name/\%p/$pid}: "
    lacks err "recording"
    [ ! -e p.html ] || fail "a file was written with $name"
  done
  status "$luapulse" record -f html -o no/p.html -- lua5.4 -e 'print "it ran"'
  same "$status$(cat out)" 1 "status, and output of a program"
  kill -KILL "$pid"
}
# Started by nohup, it goes on when the terminal is closed.
test_hangups_that_are_ignored() {
  start_split lua5.4 -- plain
  for engine in $(engines); do
    (trap '' HUP && exec "$luapulse" record --engine "$engine" -p "$pid" -o out.pb.gz -o out.folded 2>err) &
    recorder=$!
    wait_for takes_samples
    kill -HUP $recorder
    until_busy 10
    kill -TERM $recorder
    wait $recorder || fail "status: $(cat err)"
    sampled 5
  done
  start_recorder -p "$pid" # otherwise a hangup ends it, as an interrupt does
  kill -HUP $recorder
  wait $recorder || fail "status: $(cat err)"
  kill -KILL "$pid"
}
# nobody_reads COMMAND…: its standard error is a pipe that has no reader
nobody_reads() {
  exec {pipe}> >(:)
  wait $! # the reader has ended
  "$@" 2>&$pipe
  status=$?
  exec {pipe}>&-
}
test_messages_that_nobody_reads() {
  local old
  start_split lua5.4 -- plain
  nobody_reads "$luapulse" record -p "$pid" -d 0.5 -o out.pb.gz -o out.folded
  same "$status" 0 "status"
  stacks ';burn '
  rm out.*
  # PROGRAM has the signal as it was
  for old in - "''"; do
    (eval "trap $old PIPE" && nobody_reads "$luapulse" record -o out.folded -- lua5.4 -e 'for l in io.lines "/proc/self/status" do if l:find "SigIgn" then print(l) end end' && exit "$status") >out
    grep -q "^SigIgn:.*$([ "$old" = - ] && echo 0 || echo 1)...\$" out || fail "SIGPIPE in the program with trap $old: $(cat out)"
  done
  # and who reads the profile may end it; other files are there then
  (set -o pipefail; "$luapulse" record -q -p "$pid" -d 0.5 -F 999 -f folded -o - -o out.folded 2>err | :)
  same $? 141 "status of a broken pipe: $(cat err)"
  same "$(cat err)" "" "message"
  stacks ';burn '
  kill -KILL "$pid"
}
# The way that the documents tell: sudo luapulse record, then luapulse report by oneself.
test_files_belong_to_who_called_sudo() {
  local engine=ptrace
  not_root && skip "only root can give files away"
  start_split lua5.4 -- plain
  chmod 755 . && cp "$luapulse" ./luapulse # where nobody else can go, it could not be run
  SUDO_UID=65534 SUDO_GID=65533 recorded -p "$pid" -d 0.5 -F 499
  same "$(stat -c '%u:%g %a' out.pb.gz out.folded | sort -u)" "65534:65533 600" "owner and mode"
  status setpriv --reuid 65534 --regid 65534 --clear-groups ./luapulse report out.pb.gz
  same "$status" 0 "status of report: $(cat err)"
  has out burn
  kill -KILL "$pid"
  # only what luapulse has made, and only where both are told
  echo precious >target
  ln -s target link.folded
  SUDO_UID=65534 SUDO_GID=65533 "$luapulse" convert out.pb.gz -o link.folded || fail "status of convert"
  same "$(stat -c %u target link.folded | paste -sd ' ')" "0 65534" "owners of a link's target and of what has replaced the link"
  same "$(cat target)" precious "target"
  for environment in SUDO_UID=65534 SUDO_GID=65534 "SUDO_UID=nobody SUDO_GID=65534" "SUDO_UID=65534 SUDO_GID=-1" "SUDO_UID=4294967295 SUDO_GID=65534"; do
    env $environment "$luapulse" convert out.pb.gz -o out.txt || fail "status of convert"
    same "$(stat -c %u out.txt)" 0 "owner with $environment"
  done
}
test_usage() {
  has_help record
  usage() { misused record "$@"; }
  usage "what to record is missing: -p PID, --all, or -- PROGRAM"
  usage "--pid takes the numbers of processes" -p x
  usage "--rate takes a number from 1 to 10000, not '0'" -F 0 -p 1
  usage "--duration takes a number of seconds, not '-1'" -d -1 -p 1
  usage "--engine takes auto, bpf or ptrace, not 'magic'" --engine magic -p 1
  usage "either processes (-p, --all) or a program to run, not both: 'lua5.4' is one too many" -p 1 -- lua5.4
  usage "there is no format 'x'" -f x -p 1
  usage "the name 'x' tells no format" -o x -p 1
  usage "--duration takes a number of seconds, not '0x10'" -d 0x10 -p 1
  usage "a timeline is made of every call, by luapulse run --trace" -o x.trace.json -p 1
  usage "a timeline is made of every call, by luapulse run --trace" -f chrome -p 1
}

attach_main "$@"
