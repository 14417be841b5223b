# Programs that have Lua inside of them: in C++, static, stripped, with another C library; with a thousand VMs that wander; on fibers.
source "$(dirname "$0")/hosts.sh"

archive() { # the static library of Debian's, and nothing of the shared one
  lib=$(pkg-config --variable=libdir lua5.4)/liblua5.4.a
  [ -e "$lib" ] || lib=/usr/lib/$(gcc -print-multiarch)/liblua5.4.a
  flags=$(pkg-config --cflags lua5.4)
}
compiled() { "$@" 2>compiler || { cat compiler >&2; fail "it does not compile: $*"; }; }
expect_a_and_b() {
  stacks 'main chunk \([^;]*split.lua:[0-9]+\);a \([^;]*split.lua:13\);burn \([^;]*split.lua:10\)'
  stacks 'main chunk .*;b .*;burn '
  on_top burn
}
# A program of the test's own name and nothing in it that says Lua but Lua itself
expect_split() { # COMMAND…
  start "$@" "$here/split.lua" plain
  until_printed ready
  until_seen expect_a_and_b recorded -p "$pid" -F 299
  status "$luapulse" probe -p "$pid"
  same "$status" 0 "status of probe: $(cat err)"
  has out "${lua:-Lua 5.4}"
  runs_on
  kill -KILL "$pid"
}
test_cpp() {
  archive
  compiled g++ -O2 $flags -o shopd "$here/cpp_host.cc" "$lib" -ldl
  strip shopd
  start ./shopd
  until_printed ready
  for engine in $ENGINES ptrace; do
    until_seen "stacks '^main chunk .*;shop.each \(\[C\]:0\);checkout [^;]*:8\);total [^;]*:4\);shop.price \(\[C\]' && on_top total" \
      recorded -p "$pid" -F 299
  done
  status "$luapulse" dump -p "$pid"
  same "$status" 0 "status of dump: $(cat err)"
  grep -qE '^ *shop.each +\[C\] in shopd' out || { cat out >&2; fail "shop.each has no name"; }
  kill -KILL "$pid"
}
test_static_stripped_and_renamed() {
  local lua
  archive
  compiled gcc -O2 -static -s $flags -o httpd "$here/embedded_host.c" "$lib" -lm -ldl
  for engine in $ENGINES ptrace; do expect_split ./httpd; done
  cp httpd deleted
  start ./deleted "$here/split.lua" plain
  until_printed ready
  rm deleted
  engine=bpf
  until_seen "stacks ';a \([^;]*split.lua:13\);burn '" recorded -p "$pid" -F 299
  kill -KILL "$pid"
  [ -n "$gc32" ] || return 0
  lua="LuaJIT 2.1.0-beta3, GC32"
  compiled gcc -O2 -static -s $(pkg-config --cflags texluajit) -o httpd "$here/embedded_host.c" -l:libtexluajit.a -lm -ldl
  for engine in $ENGINES ptrace; do expect_split ./httpd; done
}
# Lua of Debian's library, which is compiled for glibc, on musl: static, and with musl's own loader.
test_musl() {
  archive
  mkdir include
  cp /usr/include/lua5.4/*.h /usr/include/"$(gcc -print-multiarch)"/lua5.4-deb-multiarch.h include/
  compiled musl-gcc -O2 -DBORROWED -static -s -Iinclude -o alpine "$here/embedded_host.c" "$lib"
  compiled musl-gcc -O2 -DBORROWED -Iinclude -o alpine-shared "$here/embedded_host.c" "$lib"
  readelf -l alpine-shared | grep -q ld-musl || fail "that is not musl"
  ! readelf -l alpine | grep -q INTERP || fail "that is not static"
  for engine in $ENGINES ptrace; do
    expect_split ./alpine
    expect_split ./alpine-shared
  done
}
expect_kinds() {
  local i
  for ((i = 0; i < 10; i++)); do
    stacks "^on_message [^;]*kind_$i[^;]*:3\);coroutine.wrap [^;]*;[^;]*kind_$i[^;]*:2\);kind_$i [^;]*:1\)"
  done
  for i in /proc/$pid/task/*; do
    [ "${i##*/}" = "$pid" ] && continue # it waits
    "$luapulse" report --where "tid=${i##*/}" out.pb.gz >report || fail "nothing of thread ${i##*/}"
  done
  on_top 'kind_?'
}
# Samples of ten kinds of VMs on four threads, each stack of one kind alone.
test_a_thousand_vms() {
  archive
  compiled gcc -O2 $flags -o vms "$here/many_vms_host.c" "$lib" -lm -ldl -lpthread
  start ./vms 1000
  until_printed ready
  for engine in $ENGINES; do
    until_seen expect_kinds recorded -p "$pid" -F 499
    awk '!/^#/ { delete kinds; count = 0; text = $0
      while (match(text, /kind_[0-9]/)) { kind = substr(text, RSTART, RLENGTH); if (!(kind in kinds)) { kinds[kind]; count++ } text = substr(text, RSTART + RLENGTH) }
      if (count > 1) { print; bad = 1 } } END { exit bad }' out.folded || fail "VMs are mixed up"
  done
  kill -KILL "$pid"
}
expect_fibers() {
  local i
  for i in 0 1 2 3 4 5 6 7; do
    stacks "$([ "$1" = beside ] && echo "(^|;)" || echo "^")main chunk [^;]*spin_$i[^;]*:3\);pcall [^;]*;fiber_$i [^;]*:2\);spin_$i [^;]*:1\)"
  done
  on_top 'spin_?'
}
# A fiber's stack is its own, and that of none of the others, which all are in the midst of calls.
test_fibers() {
  local i how
  archive
  for i in "lua5.4 $lib" "lua5.1 ${lib/5.4/5.1}" "luajit $(dirname "$lib")/libluajit-5.1.a"; do
    compiled gcc -O2 $(pkg-config --cflags "${i% *}") -o fibers "$here/fibers_host.c" "${i#* }" -lm -ldl
    for how in guarded beside; do
      [[ $how,$i != beside,lua5.1* && $how,$i != guarded,luajit* ]] || continue # less of the same
      start ./fibers $how
      until_printed ready
      for engine in $ENGINES ptrace; do
        until_seen "expect_fibers $how" recorded -p "$pid" -F 299
        # beside each other a neighbour may be taken for a caller (docs/embedding.md); what is innermost is the fiber's own all the same
        [ $how = beside ] || no_stacks 'main chunk.*main chunk'
        awk '!/^#/ && match($0, /spin_[0-9] \([^;]*$/) { own = substr($0, RSTART + 5, 1); if ($0 !~ "(^|;)main chunk [^;]*spin_" own "[^;]*;pcall [^;]*;fiber_" own " [^;]*;spin_" own " [^;]*$") { print; bad = 1 } }
          END { exit bad }' out.folded || fail "$engine, $how: fibers are mixed up"
      done
      kill -KILL "$pid"
    done
  done
}

# start_late PACKAGE [inside|idle]: the host; makes_another TEXT: once luapulse has printed it, the host makes another VM
start_late() {
  compiled gcc -O2 $(pkg-config --cflags "$1") -o late "$here/late_vm_host.c" $(pkg-config --libs "$1")
  start ./late "${@:2}"
  host=$pid
  until_printed ready
}
makes_another() {
  until_printed "$1"
  kill -USR1 "$host"
  wait_for grep -q made "printed.$((${#started[@]} - 2))"
  wait_for has_ended "$pid"
}
has_ended() { ! kill -0 "$1"; }
# [inside] -d SECONDS: for about so long of the processor's time after the other VM was made
record_a_late_one() {
  [ -z "${host:-}" ] || kill -KILL "$host" 2>/dev/null
  start_late $runtime ${3:+$1}
  start_recorder -F 299 -p "$host"
  until_busy 10
  kill -USR1 "$host"
  until_printed made
  until_busy "$(times "${!#}" 200)"
  kill -INT "$recorder"
  wait "$recorder" || fail "status: $(cat err)"
}
expect_a_late_one() {
  stacks '^first_work \(nowhere:1\)'
  stacks '^second_work \(nowhere:2\)'
  # its tables are read again while it fills them, in a tenth of a second or so
  awk '/^second_work /{ named += $NF } /^nowhere:2 /{ placed += $NF } END { exit !(named > 2 * placed) }' out.folded ||
    { cat out.folded >&2; fail "it has no name for long"; }
}
# A VM that was not there when the process was looked into: what only its own tables name has its name.
test_a_vm_that_is_made_later() {
  local runtime
  for runtime in lua5.1 lua5.4 luajit ${gc32:+texluajit}; do
    for engine in $ENGINES ptrace; do
      [[ $engine != ptrace || $runtime == lua5.4 ]] || continue # what is made of samples is the same
      until_seen expect_a_late_one record_a_late_one
      kill -KILL "$host"
    done
  done
}
# The same in a C function of the first, where the engine has found that it need not look for another.
test_a_vm_that_is_made_later_inside_another() {
  local runtime
  for runtime in lua5.4 luajit ${gc32:+texluajit}; do
    for engine in $ENGINES ptrace; do
      [[ $engine != ptrace || $runtime == luajit ]] || continue
      until_seen expect_a_late_one record_a_late_one inside
      kill -KILL "$host"
    done
  done
}
stat_of_a_late_one() {
  [ -z "${host:-}" ] || kill -KILL "$host" 2>/dev/null
  start_late $runtime $how
  start "$luapulse" stat -i 0.5 -d "$(times "$2" 10)" -p "$host"
  makes_another interp
  cp "printed.$((${#started[@]} - 1))" out
}
heap_is_told() {
  awk '/^heap: .* in 2 VMs;/ { split($2, before, "K"); split($6, after, "K"); found = before[1] < 1000 && after[1] > 7800 } END { exit !found }' out ||
    { cat out >&2; fail "its heap is not told"; }
}
# Its heap counts, whether it runs or not: 8 MB that the first VM has not got.
test_the_heap_of_a_vm_that_is_made_later() {
  local which runtime how
  for which in "lua5.1 idle" "lua5.4 busy" "luajit idle"; do
    read -r runtime how <<<"$which"
    until_seen heap_is_told stat_of_a_late_one
    kill -KILL "$host"
  done
}

attach_main "$@"
