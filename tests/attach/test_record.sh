# luapulse record: known programs on every runtime with every engine; what targets do meanwhile; how it ends; what it says.
source "$(dirname "$0")/attach.sh"
RUNTIMES=${RUNTIMES:-$all_runtimes}

split_shares() {
  has_share ';a \\(.*;burn ' 500 "$1 a"
  has_share ';b \\(.*;burn ' 300 "$1 b"
  has_share ';c \\(.*;burn ' 200 "$1 c"
}
# enough ARGUMENTS…: recorded until shares mean something: 200 samples tell 500 of a thousand from 300, those of a quiet machine much more
enough() { until_seen "sampled 200" recorded -F 1999 "$@"; }
# Engine ptrace walks by the code that dump has, and the agent, which are tried on every runtime.
tells_more() { [[ $engine != ptrace || $runtime == lua5.5 || $runtime == luajit,-joff ]]; }
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
test_stripped_renamed_and_deleted() {
  local runtime
  for engine in $(engines); do
    for runtime in lua5.4 luajit $gc32; do
      copy_of $runtime ./httpd
      start_split ./httpd -- plain
      rm httpd
      enough -p "$pid"
      has_share ';a \\(.*;burn ' 500 "$engine $runtime"
      same "$(grep -c ' runs ' err)" 1 "lines about the file: $(cat err)"
      has err "luapulse: process $pid (httpd) runs a program that was deleted since: $PWD/httpd"
      kill -KILL "$pid"
    done
  done
}
# The file of a program that runs was replaced by another, as an upgrade does.
test_replaced_binary() {
  for engine in $(engines); do
    cp "$(readlink -f "$(command -v lua5.4)")" ./httpd
    start_split ./httpd -- plain
    cp "$(readlink -f "$(command -v lua5.1)")" ./upgraded
    mv upgraded httpd
    enough -p "$pid"
    has_share ';a \\(.*;burn ' 500 "$engine"
    grep -q "Lua 5.4" <("$luapulse" report out.pb.gz) || fail "another Lua: $("$luapulse" report out.pb.gz)"
    same "$(grep -c ' runs ' err)" 1 "lines about the file: $(cat err)"
    has err "luapulse: process $pid (httpd) runs a program that was replaced since: $PWD/httpd"
    recorded -q -p "$pid" -d 0.1
    same "$(cat err)" "" "what a quiet recording says"
    kill -KILL "$pid"
  done
}
# host_with_a_library: ./host runs the script that it is given by the Lua 5.4 in ./liblua5.4.so.0
host_with_a_library() {
  ${CC:-cc} $(pkg-config --cflags lua5.4) -o host "$here/debug_host.c" $(pkg-config --libs lua5.4) || fail "the host does not compile"
  cp "$(ldd host | awk '/liblua5.4/ { print $3 }')" . || fail "there is no library"
}
# start_with_library ARGUMENTS…: ./host with that library
start_with_library() {
  start env LD_LIBRARY_PATH="$PWD" ./host "$@"
  until_printed ready
  grep -q "$PWD/liblua5.4" "/proc/$pid/maps" || fail "another library: $(cat "/proc/$pid/maps")"
}
# So is the file of a library that the program has its Lua from.
test_replaced_library() {
  host_with_a_library
  cp liblua5.4.so.0 kept
  for engine in $(engines); do
    start_with_library "$here/split.lua" plain
    cp "$(ldconfig -p | awk '/liblua5.1.so.0 / { print $NF; exit }')" upgraded || fail "there is no other library"
    mv upgraded liblua5.4.so.0
    enough -p "$pid"
    has_share ';a \\(.*;burn ' 500 "$engine"
    grep -q "Lua 5.4" <("$luapulse" report out.pb.gz) || fail "another Lua: $("$luapulse" report out.pb.gz)"
    same "$(grep ' runs ' err)" "luapulse: process $pid (host) runs a library that was replaced since: $PWD/liblua5.4.so.0" "line about the file"
    rm liblua5.4.so.0
    recorded -p "$pid" -d 0.1
    same "$(grep ' runs ' err)" "luapulse: process $pid (host) runs a library that was deleted since: $PWD/liblua5.4.so.0" "line about the file"
    kill -KILL "$pid"
    cp kept liblua5.4.so.0
  done
}
# The number of a process that has ended is given to another one: that is none of ours.
test_the_number_is_used_again() {
  local first other i
  [ -w /proc/sys/kernel/ns_last_pid ] || fail "the kernel does not permit to choose the number of a process"
  for engine in $(engines); do
    start_split lua5.4 -- coroutines
    other=$pid
    start_split lua5.4 -- plain
    first=$pid
    start_recorder -p "$first,$other" -F 499
    kill -KILL "$first"
    wait_for grep -q "process $first .* has ended" err
    for ((i = 0; i < 200; i++)); do # others may be quicker
      echo $((first - 1)) >/proc/sys/kernel/ns_last_pid
      start lua5.4 -e 'local function impostor() local x = 0 while true do x = x + 1 end end impostor()'
      [ "$pid" = "$first" ] && break
      kill -KILL "$pid"
    done
    same "$pid" "$first" "number of the other process"
    until_busy 10
    pid=$other until_busy 10
    kill -INT "$recorder"
    wait "$recorder"
    no_stacks impostor
    stacks burn
    kill -KILL "$pid" "$other"
  done
}
has_labels() { # VALUE…
  local value
  go tool pprof -tags out.pb.gz >tags 2>/dev/null
  for value in "$@"; do grep -qE "\): $value$" tags || fail "no label has the value $value: $(cat tags)"; done
}
test_several_targets() {
  local pids=() i
  for engine in $(engines); do
    for i in lua5.1 lua5.4 luajit; do
      start_split $i -- plain
      pids+=("$pid")
    done
    until_seen "sampled 200 && has_labels lua5.1 lua5.4 luajit ${pids[*]}" recorded -F 999 -p "$(IFS=,; echo "${pids[*]}")"
    split_shares "$engine"
    for pid in "${pids[@]}"; do
      runs_on
      kill -KILL "$pid"
    done
    # one that is none, and one without Lua: the others are recorded, and the status tells
    start_split lua5.4 -- plain
    start_sleep
    until_seen "sampled 200" record -F 999 -p "4194300,$pid,${started[-2]}"
    same "$status" 1 "status"
    has err "luapulse record: there is no process 4194300"
    has err "luapulse record: no Lua in process $pid (sleep)"
    split_shares "$engine"
    kill -KILL "${started[-2]}" "$pid"
    pids=()
  done
}
test_many_targets() {
  local pids i
  for engine in $(engines); do
    pids=
    for ((i = 0; i < 64; i++)); do
      start lua5.4 -e 'local x = 0 while true do for i = 1, 1e5 do x = x + i end os.execute("exec sleep 0.2") end'
      pids+=,$pid
    done
    until_seen "sampled 20" recorded -p "${pids#,}" -F 499
    has err "recording 64 processes"
    for pid in ${pids//,/ }; do kill -KILL -- "-$pid"; done
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
# until_stopped -d SECONDS: what is recorded goes on for about so long, of the processor's time; then it is told to end, and with it the recorder
until_stopped() {
  until_busy "$(times "$2" 100)"
  : >stop
  if ! wait $recorder; then # it may have been over before the recorder, for which there was no processor, looked into it
    grep -q "no Lua was found" err || fail "status: $(cat err)"
    : >err
  fi
  rm stop
}
# named COUNT: so many samples, and the recorder had the time to read the names before all was over
named() { sampled "$1" && [ "$(share '\\[gone\\]')" -lt 10 ] && [ "$(share 'outside Lua')" -lt 10 ] || fail "too late: $(cat err)"; }
one_that_ends() {
  start_split lua5.4 -- plain stop
  start_recorder -p "$pid" -F 999
  until_stopped "$@"
}
test_the_target_ends() {
  for engine in $(engines); do
    until_seen "named 200" one_that_ends
    has err "luapulse: process $pid (lua5.4) has ended"
    split_shares "$engine"
  done
}
# It becomes another program, with another Lua; the samples of both are there.
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
# Ends of any kind: before it is looked into, while it is, and after.
said_of_one_that_ends='ended before a Lua was found in it|has ended|is no process|cannot be read|no Lua in process|has no process'
test_targets_that_end_while_they_are_looked_into() {
  local i
  for engine in $(engines); do
    for ((i = 1; i <= 12; i++)); do
      start lua5.4 -e "local t = os.clock() while os.clock() - t < $i * 0.006 do end"
      record -p "$pid" -F 999
      [ "$status" -le 1 ] || fail "status $status: $(cat err)"
      [ "$status" = 0 ] || grep -qE "$said_of_one_that_ends" err || fail "why it is not recorded: $(cat err)"
    done
  done
}
# host_that_calls_exec: ./host PROGRAM ARGUMENTS… becomes that program when there is a file "go"
host_that_calls_exec() {
  cat >exec.c <<'END'
#include <lauxlib.h>
#include <lualib.h>
#include <unistd.h>
int main(int argc, char **argv) {
  lua_State *L = luaL_newstate();
  luaL_openlibs(L);
  (void)argc;
  if (luaL_dostring(L, "print('ready') io.flush() local x = 0 while not io.open('go') do for i = 1, 1e6 do x = x + i % 3 end end")) return 1;
  execvp(argv[1], argv + 1);
  return 2;
}
END
  ${CC:-cc} $(pkg-config --cflags lua5.4) -o host exec.c $(pkg-config --libs lua5.4) || fail "the host does not compile"
}
# No sample tells of that.
test_the_target_becomes_what_only_sleeps() {
  host_that_calls_exec
  for engine in $(engines); do
    start ./host sleep 1000
    until_printed ready
    start_recorder -p "$pid" -F 499
    until_busy 10
    : >go
    wait "$recorder" || fail "status: $(cat err)" # nothing is left to be recorded
    has err "luapulse: process $pid (host) has called exec: it is looked into anew"
    has err "luapulse record: no Lua in process $pid (sleep): none of the "
    [ "$(samples)" -gt 0 ] || fail "what was sampled before is gone: $(cat err)"
    kill -KILL "$pid"
    rm go
  done
}
test_the_target_calls_exec() {
  host_that_calls_exec
  for engine in $(engines); do
    until_seen "named 200" a_shell_that_becomes_lua
    split_shares "$engine"
    until_seen 'stacks "main chunk .*string \"print" && stacks ";a \(.*;burn "' both_programs
    has err "luapulse: process $pid (host) has ended"
  done
}
a_shell_that_becomes_lua() {
  start sh -c "lua5.4 -e 'local x = 0 for i = 1, 1e6 do x = x + i end' >&2; echo begun; exec lua5.1 '$here/split.lua' plain stop"
  until_printed begun
  start_recorder -s -p "$pid" -F 999
  until_stopped "$@"
}
# -d SECONDS: each of both runs for about so long
both_programs() {
  start ./host luajit "$here/split.lua" plain stop
  until_printed ready
  start_recorder -p "$pid" -F 499
  until_busy 10
  : >go
  wait_for grep -q "luapulse: process $pid (host) has called exec: it is looked into anew" err
  until_stopped "$@"
  rm go
}
# family [-s] -d SECONDS: parent and child both run for about so long while the parent is recorded
family() {
  local parent follow=()
  [ "$1" = -s ] && follow=(-s) && shift
  start_split lua5.4 -- fork stop "exec luajit $here/split.lua coroutines stop"
  parent=$pid
  wait_for pgrep -g "$parent" luajit
  start_recorder -p "$parent" -F 499 "${follow[@]}"
  until_busy "$(times "$2" 50)"
  pid=$(pgrep -g "$parent" luajit)
  until_stopped "$@"
}
test_forks_that_are_not_followed() {
  cat >fork.c <<'END'
#include <lauxlib.h>
#include <lualib.h>
#include <sys/prctl.h>
#include <signal.h>
#include <unistd.h>
static int do_fork(lua_State *L) {
  lua_pushinteger(L, fork());
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  return 1;
}
int main(void) {
  lua_State *L = luaL_newstate();
  luaL_openlibs(L);
  lua_register(L, "fork", do_fork);
  return luaL_dostring(L, "local child = fork() if child ~= 0 then print('ready', child) io.flush() end local function parent() while true do end end local function worker() while true do end end if child == 0 then worker() else parent() end");
}
END
  ${CC:-cc} $(pkg-config --cflags lua5.4) -o host fork.c $(pkg-config --libs lua5.4) || fail "the host does not compile"
  local line
  for engine in $(engines); do
    start ./host
    until_printed ready
    line="luapulse: process $pid (host) has forked: its children are recorded only with --follow (-s)"
    until_seen 'stacks "parent " && has err "$line"' recorded -p "$pid" -F 499
    same "$(grep -c forked err)" 1 "lines about forks: $(cat err)"
    no_stacks worker
    until_seen 'stacks "parent " && stacks "worker "' recorded -s -p "$pid" -F 499
    lacks err forked
    kill -KILL -- "-$pid"
    # another program is none of its kind
    start_split lua5.4 -- fork stop "exec sleep 1000"
    until_seen "sampled 20" recorded -p "$pid" -F 499
    lacks err forked
    kill -KILL -- "-$pid"
  done
}
test_children_are_followed() {
  for engine in $(engines); do
    until_seen "stacks 'lua5.4.*;a \(.*;burn ' && stacks 'luajit.*;a \(.*;burn '" family -s
    "$luapulse" convert -o tags.html out.pb.gz || fail "the profile cannot be read"
    until_seen "stacks 'lua5.4.*;a \(.*;burn '" family
    no_stacks luajit
  done
}
# worked: a program that ends before the recorder had a look at it has no Lua, as far as anybody knows
worked() { same "$status" 0 "status: $(cat err)"; }
# -d SECONDS, which a program has not: rounds of it, about so long
rounds_of_a_program() { record -F 999 -- lua5.4 "$here/split.lua" plain "$(times "$2" 500)"; }
rounds_through_a_shell() {
  record -s -F 999 -- sh -c "luajit '$here/split.lua' plain $(times "$2" 1500); lua5.1 '$here/split.lua' plain 100"
}
test_a_program_is_started() {
  for engine in $(engines); do
    until_seen "worked && sampled 100" rounds_of_a_program
    split_shares "$engine"
    has out ready
    has err "luapulse: lua5.4 ended with status 0"
    recorded -- lua5.4 -e 'for i = 1, 3e7 do end os.exit(7)'
    has err "luapulse: lua5.4 ended with status 7"
    recorded -- lua5.4 -e 'for i = 1, 3e7 do end os.execute("kill -KILL $PPID")'
    has err "luapulse: lua5.4 was ended by signal 9 (Killed)"
    until_seen "worked && sampled 100" rounds_through_a_shell
    split_shares "$engine through a shell"
    rm -f out.*
    record -- ./nothing-here
    same "$status" 127 "status"
    has err "luapulse record: cannot run ./nothing-here: No such file or directory"
    record -- true
    same "$status" 1 "status"
    has err "no Lua was found: nothing is written"
    [ ! -e out.pb.gz ] || fail "a profile of nothing was written"
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
write_dying() {
  cat >dying.lua <<'END'
local load = loadstring or load
io.write("ready\n") io.flush()
local n = 0
while true do
  n = n % 500 + 1
  local f = load(("\n"):rep(n) .. "local function f" .. n .. "() local x = 0 for i = 1, 3000 do x = x + i % 7 end return x end return f" .. n .. "()", "=chunk" .. n)
  f()
  if n % 10 == 0 then collectgarbage() end
end
END
}
# Functions that are made and collected all the time, each at lines of its own: a name is right or there is none.
gone_is_told() { grep -qE ', [1-9][0-9]* gone$' err && stacks '\[gone\]' || fail "it is not told that functions are gone: $(cat err)"; }
dying_functions() { grep -oE 'chunk[0-9]+:[0-9]+ \(chunk[0-9]+:[0-9]+\)' out.folded >seen; }
test_functions_that_die() {
  local runtime seen
  write_dying
  for engine in $(engines); do
    seen="sampled 200 && dying_functions"
    [ $engine = ptrace ] || seen+=" && gone_is_told" # most are gone when they are to be named; engine ptrace names them while it holds them
    for runtime in $RUNTIMES; do
      tells_more || continue
      start $runtime dying.lua
      until_printed ready
      until_seen "$seen" recorded -p "$pid" -F 1999
      dying_functions
      # chunk17 has its function on line 18
      awk -F '[^0-9]+' '$2 + 1 != $3 || $2 != $4 || ($5 != 0 && $3 != $5) { print; bad = 1 } END { exit bad }' seen >wrong ||
        fail "$engine $runtime: wrong names, of $(wc -l <seen): $(head wrong)"
      kill -KILL "$pid"
    done
  done
}
# whole: what the sanitized luapulse left behind tells of no fault
whole() {
  [ "$status" -le "${1:-0}" ] || fail "status $status: $(cat err)"
  lacks err Sanitizer
  lacks err "runtime error"
}
# Memory in motion, functions that are gone, and a library whose file is damaged while it is used: nothing of it faults the recorder.
test_hostile_memory_and_files() {
  needs_sanitized
  local luapulse=$sanitized size at
  write_dying
  host_with_a_library
  start_with_library "$here/storm.lua"
  local damaged=$pid
  start luajit dying.lua
  until_printed ready
  for engine in $(engines); do
    until_seen "sampled 100" recorded -p "$damaged,$pid" -F 999
    whole
  done
  kill -KILL "$pid"
  kill -STOP "$damaged"
  # where its parts are told, how many and how large; then its sections, its symbols
  size=$(stat -c %s liblua5.4.so.0)
  for at in 60 40 32 54 $((size - 200)) $((size - 1000)) $((size - 1400)) 600 2000; do
    printf '\377\377\377\177\377\377\377' | dd of=liblua5.4.so.0 bs=1 seek=$at conv=notrunc 2>/dev/null
    status "$luapulse" dump -p "$damaged"
    whole 1
  done
  kill -CONT "$damaged"
  for engine in $(engines); do
    record -p "$damaged" -d 0.2
    whole 1
  done
  pid=$damaged runs_on
}
# clear COMMAND: it has a result, or says why there is none
clear() {
  whole 1
  [ "$status" = 0 ] || grep -q "^luapulse $1: " err || fail "$1 ended with status $status, and says: $(cat err)"
}
# Targets that call exec, and that fork, at any moment of all that is done to them.
test_targets_that_are_never_the_same() {
  local how i
  ${CC:-cc} -O2 $(pkg-config --cflags lua5.4) -o host "$here/restless_host.c" $(pkg-config --libs lua5.4) || fail "the host does not compile"
  for how in exec fork; do
    start ./host $how
    until_printed ready
    for engine in $(engines); do
      record -p "$pid" -d 0.1 -F 999
      clear record
      record -s -p "$pid" -d 0.1 -F 999
      clear record
    done
    for i in 1 2; do
      status "$luapulse" dump -p "$pid"
      clear dump
      status "$luapulse" probe -p "$pid"
      clear probe
    done
    runs_on
    # and by and by it is seen at work, whichever it is
    until_seen 'stacks "work "' record -s -p "$pid" -F 999
    kill -KILL -- "-$pid"
  done
}
# most_of PID: KiB of memory that it had at the most, as last seen before its end
most_of() {
  local line most=0
  while line=$(grep VmHWM "/proc/$1/status" 2>/dev/null); do
    most=${line//[^0-9]/}
    pause
  done
  echo "$most"
}
# Eight processes at once with functions that were never seen before, and tables of thirty thousand: what is kept of them is bounded, and a
# recorder that cannot follow ends in time.
remembered() {
  "$luapulse" record --engine "$engine" -p "$pids" -F 999 -o out.folded "$@" 2>err &
  local recorder=$!
  most_of $recorder >most
  wait $recorder || fail "status: $(cat err)"
}
test_memory_is_bounded() {
  local pids= i
  for ((i = 0; i < 8; i++)); do
    start nice -n 19 lua5.4 "$here/new_stacks.lua" 60 # the recorder is not to wait for them
    until_printed ready
    kill -STOP "$pid"
    pids+=,$pid
  done
  pids=${pids#,}
  kill -CONT ${pids//,/ }
  for engine in $(engines); do
    until_seen '[ "$(grep -oE "_of_[0-9]+ [^;]*" out.folded | sort -u | wc -l)" -ge 300 ] || fail "hardly a new function: $(cat err)"' remembered
    [ "$(cat most)" -gt 1000 ] && [ "$(cat most)" -lt 102400 ] || fail "$engine: $(cat most) KiB"
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
# Targets that begin and end all the time, some before anybody has seen them.
# -d SECONDS: the longer, the more each of the 50 has to do
short_lived() {
  record -s -F 499 -- bash -c 'for ((i = 0; i < 50; i++)); do lua5.4 -e "local x = 0 for i = 1, $((i % 10)) * '"$2"' * 2e6 do x = x + i end" || exit 1; done'
}
test_short_lived_targets() {
  for engine in $(engines); do
    until_seen 'worked && sampled 25 && [ "$(share "main chunk")" -gt 50 ] || fail "hardly any Lua: $(cat out.folded)"' short_lived
    has err "luapulse: bash ended with status 0"
  done
}
test_five_hundred_short_lived_targets() {
  engine=ptrace # for the other one: test_record_bpf.sh
  recorded -s -F 999 -- bash -c 'for ((i = 0; i < 500; i++)); do
    lua5.4 -e "local x = 0 for i = 1, $((i % 50 == 0 ? 20000000 : 100000)) do x = x + i end" || exit 1; done'
  has err "luapulse: bash ended with status 0"
  nothing_is_invented
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
}

attach_main "$@"
