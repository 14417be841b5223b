# luapulse record: many targets, and what they do meanwhile: they end, fork, call exec, have their files replaced, and come by the hundred.
source "$(dirname "$0")/attach.sh"

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
  # by itself: others that end a process by its number just then, which was free, would end those of here
  if [ -z "${OWN_NUMBERS:-}" ]; then
    OWN_NUMBERS=yes unshare --pid --fork --mount-proc --kill-child bash "$here/test_record_targets.sh" the_number_is_used_again
    same "$?" 0 "status"
    return
  fi
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
# It becomes another program, with another Lua; the samples of both are there.
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
# Threads of a program that was started for the recording, which end as they are being stopped: nobody but the recorder can take their end, and
# the program has not ended before.
test_a_program_whose_threads_end() {
  ${CC:-cc} $(pkg-config --cflags lua5.4) -o host "$here/brief_threads_host.c" $(pkg-config --libs lua5.4) -lpthread || fail "the host does not compile"
  for engine in $(engines); do
    status timeout -s KILL 60 "$luapulse" record --engine "$engine" -F 3000 -o out.folded -- ./host 3
    same "$status" 0 "$engine: status of a recording that ends by itself: $(cat err)"
    has out "threads ended"
    has err "luapulse: ./host ended with status 0"
  done
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
test_a_thousand_short_lived_targets() {
  engine=ptrace # for the other one: test_record_bpf.sh
  recorded -s -F 999 -- bash -c 'for ((i = 0; i < 1000; i++)); do
    lua5.4 -e "local x = 0 for i = 1, $((i % 50 == 0 ? 20000000 : 100000)) do x = x + i end" || exit 1; done'
  has err "luapulse: bash ended with status 0"
  nothing_is_invented
}

attach_main "$@"
