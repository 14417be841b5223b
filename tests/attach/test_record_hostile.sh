# luapulse record: memory in motion, functions that are gone, damaged files, and more than anybody could keep.
source "$(dirname "$0")/attach.sh"
RUNTIMES=${RUNTIMES:-$all_runtimes}

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
# Functions that say they are from a pipe: who waits at its other end is not woken. A regular file would have been read: "work" is its name.
test_pipes_are_not_opened() {
  local engine
  mkfifo pipe
  cat >named.lua <<'END'
local load = loadstring or load
local work = load("return function() while true do end end", "@" .. arg[1])()
io.write("ready\n") io.flush()
coroutine.wrap(work)()
END
  start lua5.4 named.lua "$PWD/pipe"
  until_printed ready
  local target=$pid
  start bash -c 'echo begun; exec 3>pipe; echo woken; sleep 1000'
  until_printed begun
  until_state S
  for engine in $(engines); do
    until_seen 'stacks "pipe:1"' recorded -p "$target"
  done
  "$luapulse" dump -p "$target" >out || fail "dump"
  has out "function <pipe:1>"
  pause
  state_is S && ! grep -q woken "printed.$((${#started[@]} - 1))" || fail "the pipe was opened"
}
# A configuration file that includes what never ends: folders with links to themselves.
test_includes_without_end() {
  local i
  mkdir tree
  for ((i = 0; i < 12; i++)); do ln -s . tree/$i; done
  printf '%s\n' 'include tree/*/*/*/*/*/*/*/*/x;' 'include tree/*/*/*;' 'include tree/*/*/*/x;' >main.conf
  cat >included.lua <<'END'
local work = load("return function() while true do end end", "=content_by_lua(other.conf:3)")()
io.write("ready\n") io.flush()
coroutine.wrap(work)()
END
  start lua5.4 included.lua -c "$PWD/main.conf"
  until_printed ready
  status timeout 60 "$luapulse" dump -p "$pid"
  same "$status" 0 "status of dump: $(cat err)"
  has out "function <content_by_lua(other.conf:3):1>"
}
# A library that is mapped as a GiB, for which nothing is stored: what was looked through of it is in the process's memory.
test_libraries_without_end() {
  local kilobytes
  ${CC:-cc} -shared -fPIC $(pkg-config --cflags lua5.4) -o sparse.so "$here/sparse_module.c" || fail "the module does not compile"
  truncate -s 1G sparse.so
  start lua5.4 -e "package.loadlib('$PWD/sparse.so', 'wait_mapped')('$PWD/sparse.so')"
  until_printed ready
  status "$luapulse" dump -p "$pid"
  same "$status" 0 "status of dump: $(cat err)"
  grep -qE '^ +wait_mapped +\[C\] in sparse.so' out || { cat out >&2; fail "it has no name"; }
  kilobytes=$(sed -n 's/^RssFile:[^0-9]*\([0-9]*\).*/\1/p' "/proc/$pid/status")
  [ "$kilobytes" -lt 262144 ] || fail "$kilobytes KiB were looked through"
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

attach_main "$@"
