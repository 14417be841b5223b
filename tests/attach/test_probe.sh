# luapulse probe, and how both commands refuse: what is no Lua, what is no process, what may not be read.
source "$(dirname "$0")/attach.sh"
RUNTIMES=${RUNTIMES:-$all_runtimes}

refused() { # STATUS MESSAGE ARGUMENTS…: the message is the whole of what is said
  local expected=$1 message=$2
  shift 2
  status "$luapulse" "$@"
  same "$(cat err)" "luapulse $1: $message" "message of $*"
  same "$status" "$expected" "status of $*"
}
test_every_runtime() {
  local runtime how
  for runtime in $RUNTIMES $newer; do
    for how in busy wait; do
      start $runtime "$here/known.lua" $how
      until_printed ready
      status "$luapulse" probe -p "$pid"
      same "$status" 0 "status of $runtime: $(cat err)"
      same "$(head -n 1 out)" "process $pid: $runtime $here/known.lua $how" "first line"
      grep -qE "^  VM +0x[0-9a-f]+, main thread 0x[0-9a-f]+, runs on thread $pid: found on its native stack$" out ||
        fail "the VM is missing: $(cat out)"
      grep -qE "^  because +[0-9]+ frames walked, [0-9]+ Lua functions of them with source and lines in order$" out || fail "why: $(cat out)"
      runs_on
      kill -KILL -- "-$pid"
    done
    case $runtime in
      lua5.1) grep -qE '^  layout +"Lua 5.1.3-5.1.5", known to LuaPulse$' out || fail "$(cat out)" ;;
      lua5.2) grep -qE '^  layout +"Lua 5.2.4", known to LuaPulse$' out || fail "$(cat out)" ;;
      lua5.3) grep -qE '^  layout +"Lua 5.3.3-5.3.6", known to LuaPulse$' out || fail "$(cat out)" ;;
      lua5.4*) grep -qE '^  layout +"Lua 5.4.3-5.4.9", known to LuaPulse$' out || fail "$(cat out)" ;;
      lua5.5) grep -qE '^  layout +"Lua 5.5.0-5.5.1", known to LuaPulse$' out || fail "$(cat out)" ;;
      luajit-upstream) grep -qE '^  layout +"LuaJIT 2.1 of [^"]*, GC64", known to LuaPulse$' out || fail "$(cat out)" ;;
      luajit | luajit-newer) grep -qE '^  layout +"[^"]*LuaJIT 2.1[^"]*, GC64", known to LuaPulse$' out || fail "$(cat out)" ;;
      luajit-gc32) grep -qE '^  layout +"LuaJIT 2.1.0-beta3, GC32", known to LuaPulse$' out || fail "$(cat out)" ;;
    esac
    case $runtime in
      luajit*) grep -qE '^  runtime +LuaJIT 2\.1[^ ]*, by its mark in /' out || fail "$(cat out)" ;;
      *) runtime=${runtime%-newer} && grep -qE "^  runtime +Lua ${runtime#lua}\.[0-9], by its mark in /" out || fail "$(cat out)" ;;
    esac
    grep -qE "^  (needs|missing) +kernel [0-9.]+: (has|lacks) bpf_loop, which came with 5.17" out || fail "the kernel: $(cat out)"
    has out "perf_event_paranoid is"
    has out "ptrace"
  done
}
# Its functions are searched for while it runs, where they are behind more objects than can be looked through quickly: dump, which
# has to look at all of them while it is held, says how long that takes. A busy machine may make a hold longer: the shortest counts.
test_an_idle_host_with_a_large_heap() {
  local i probed dumped
  shortest() { # COMMAND, of three
    for i in 1 2 3; do
      "$luapulse" "$1" -p "$pid" >out 2>err || fail "status of $1: $(cat err)"
      sed -nE 's/^ *stopped +for ([0-9.]+) ms.*/\1/p' out
    done | sort -n | head -n 1
  }
  ${CC:-cc} $(pkg-config --cflags lua5.4) -o host "$here/large_heap_host.c" $(pkg-config --libs lua5.4) || fail "the host does not compile"
  start ./host 2000000
  until_printed ready
  probed=$(shortest probe)
  grep -qE "^  because +no Lua function is at work now; [1-9][0-9]* functions in the VM's memory with source and lines in order$" out || fail "why: $(cat out)"
  dumped=$(shortest dump)
  awk "BEGIN { exit !($probed * 4 < $dumped) }" || fail "stopped for $probed ms by probe, and for $dumped ms by dump"
}
# A host that is not in Lua at the moment: its VM is found in memory, and its coroutines.
test_idle_hosts() {
  local version jit
  jit=$(ldconfig -p | sed -n 's/.*libluajit-5\.1\.so\.2 .*x86-64.* => //p' | head -n 1)
  [ -n "$jit" ] || fail "there is no libluajit-5.1.so.2"
  for version in 5.1 5.2 5.3 5.4 ${lua55#lua} jit ${gc32:+texluajit}; do
    case $version in
      jit) set -- $(pkg-config --cflags lua5.1) "$jit" ;; # the interface is that of 5.1
      texluajit) set -- $(pkg-config --cflags --libs texluajit) ;;
      *) set -- $(pkg-config --cflags --libs lua$version) ;;
    esac
    ${CC:-cc} -o idle "$here/idle_host.c" "$@" || fail "the host does not compile"
    start ./idle
    until_printed ready
    status "$luapulse" probe -p "$pid"
    same "$status" 0 "status: $(cat err out)"
    same "$(grep -cE "^  VM +0x[0-9a-f]+, main thread 0x[0-9a-f]+, does not run now: found in memory$" out)" 2 "VMs of $(cat out)"
    grep -qE "^  because +no Lua function is at work now; [0-9]+ functions? in the VM's memory with source and lines in order$" out || fail "why: $(cat out)"
    status "$luapulse" dump -p "$pid"
    same "$status" 0 "status: $(cat err)"
    has out "thread $pid (idle): no Lua"
    same "$(grep -c "^  main thread 0x[0-9a-f]*, idle$" out)" 2 "idle main threads of $(cat out)"
    same "$(grep -cE "^    wait_for_request +\[string" out)" 2 "suspended coroutines of $(cat out)"
    rm idle
  done
}
test_files() {
  local runtime
  for runtime in lua5.1 lua5.2 lua5.3 lua5.4 $lua55; do
    status "$luapulse" probe "$(command -v $runtime)"
    same "$status" 0 "status: $(cat err)"
    grep -qE "^  runtime +Lua ${runtime#lua}\.[0-9], by its mark at byte [0-9]+$" out || fail "$(cat out)"
    grep -qE "^  layouts +\"Lua ${runtime#lua}.*; which of them, a running process tells: luapulse probe -p PID$" out || fail "$(cat out)"
  done
  cp "$(readlink -f "$(command -v lua5.4)")" renamed
  strip renamed
  status "$luapulse" probe renamed
  same "$status" 0 "status of a renamed one: $(cat err)"
  echo 'print "hello"' >program.lua
  refused 1 "no Lua in program.lua: it is no program or library (no ELF file)" probe program.lua
  : >empty
  refused 1 "no Lua in empty: it is empty" probe empty
  refused 1 "no Lua in .: it is not a regular file" probe .
  refused 1 "cannot read missing: No such file or directory" probe missing
  status "$luapulse" probe "$(command -v cat)"
  same "$status" 1 "status of a program without Lua"
  grep -qE "no Lua in /.*cat: there is no mark of one in its [0-9]+ bytes; Lua may be in a library that it is linked with: .*libc.so.6" err || fail "$(cat err)"
}
# A kernel is asked what it can do; the version that it tells counts only where it may not be asked. Here it tells one that never was.
test_a_version_that_is_made_up() {
  status setarch --uname-2.6 "$luapulse" probe "$(command -v lua5.4)"
  same "$status" 0 "status: $(cat err)"
  if has_bpf; then
    grep -qx "  needs     kernel 2\.6: has bpf_loop, which came with 5\.17" out || fail "what the kernel has: $(cat out)"
    has out "  engine    bpf: record samples in the kernel"
  else
    grep -qx "  missing   kernel 2\.6: lacks bpf_loop, which came with 5\.17; that is by its version, for BPF cannot be asked" out || fail "what is not known: $(cat out)"
    has out "  engine    ptrace: "
  fi
}
# Files that lie about themselves are read to their end and no further.
test_files_that_are_broken() {
  needs_sanitized
  local size i
  cp "$(readlink -f "$(command -v lua5.4)")" whole
  size=$(stat -c %s whole)
  for i in 1 4 5 16 40 64 65 300 1000 5000 $((size / 2)) $((size - 1)); do
    head -c "$i" whole >broken
    status "$sanitized" probe broken
    [ "$status" -le 1 ] || fail "$i bytes: status $status: $(cat err)"
    lacks err Sanitizer
  done
  for i in $(seq 16 7 300); do
    cp whole broken
    printf '\xff\xff\xff\xff\xff\xff\xff' | dd of=broken bs=1 seek="$i" conv=notrunc 2>/dev/null
    status "$sanitized" probe broken
    [ "$status" -le 1 ] || fail "at byte $i: status $status: $(cat err)"
    lacks err Sanitizer
  done
}
test_a_process_without_lua() {
  start_sleep
  until_state S
  status "$luapulse" probe -p "$pid"
  same "$status" 1 "status"
  grep -qxE "luapulse probe: no Lua in process $pid \(sleep\): none of the [0-9]+ files mapped there has the mark of one \([0-9.]+ MiB looked through\)" err || fail "$(cat err)"
  status "$luapulse" dump -p "$pid"
  same "$status" 1 "status"
  has err "luapulse dump: no Lua in process $pid (sleep)"
  runs_on
}
test_a_library_without_a_vm() {
  echo 'int main(void) { puts("ready"); fflush(stdout); pause(); return lua_gettop(0); }' >unused.c
  ${CC:-cc} -w -include stdio.h -include unistd.h -o unused unused.c $(pkg-config --libs lua5.4) || fail "it does not compile"
  start ./unused
  until_printed ready
  refused 1 "no Lua that can be read in process $pid (unused): Lua 5.4.4 is mapped there, but no VM was found, on the threads' native stacks or in memory" dump -p "$pid"
  status "$luapulse" probe -p "$pid"
  same "$status" 1 "status of probe"
  has out "runtime   Lua 5.4.4, by its mark in "
  has err "luapulse probe: no Lua that can be read in process $pid (unused)"
  # in a file the mark is all that there is to find
  status "$luapulse" probe "$(awk '/liblua5.4/ { print $6; exit }' "/proc/$pid/maps")"
  same "$status" 0 "status of the library: $(cat err)"
}
test_what_is_no_process() {
  refused 1 "there is no process 4194300" dump -p 4194300
  refused 1 "there is no process 4194300" probe -p 4194300
}
test_zombie() {
  # it ends when its parent is no shell any more, which would notice
  start bash -c '{ until read -r name </proc/$$/comm && [ "$name" = sleep ]; do :; done; exec sleep 0; } & echo "child $!"; exec sleep 1000'
  until_printed child
  pid=$(sed -n 's/child //p' "printed.$((${#started[@]} - 1))")
  until_state Z
  refused 1 "process $pid (sleep) has ended and waits for its parent (a zombie): nothing of it is left to read" dump -p "$pid"
}
test_thread_of_the_kernel() {
  [ "$(cat /proc/2/comm)" = kthreadd ] || skip "no thread of the kernel is to be seen here"
  refused 1 "process 2 (kthreadd) is a thread of the kernel: there is no program in it" dump -p 2
}
test_thread_of_a_process() {
  local thread
  echo 'void *f(void *p) { return pause(), p; } int main(void) { pthread_t t; pthread_create(&t, 0, f, 0); puts("ready"); fflush(stdout); pause(); }' >two.c
  ${CC:-cc} -w -include stdio.h -include unistd.h -include pthread.h -o two two.c -lpthread || fail "it does not compile"
  start ./two
  until_printed ready
  thread=$(ls "/proc/$pid/task" | grep -vx "$pid")
  refused 1 "$thread is a thread of process $pid, not a process: use -p $pid" dump -p "$thread"
}
is_small() { [ "$(cat "/proc/$pid/comm")" = small ]; } # and no more what starts it
test_a_32_bit_program() {
  # where the assembler and the kernel know such programs
  echo '.globl _start; _start: jmp _start' | as --32 -o small.o - && ld -m elf_i386 -o small small.o || skip "no assembler for 32-bit programs"
  start ./small
  in_time eval 'is_small || state_is Z || state_is ""' && is_small || skip "no 32-bit programs here"
  refused 1 "process $pid (small) is a 32-bit program: only 64-bit ones can be read" dump -p "$pid"
}
test_a_32_bit_file() {
  cp "$(readlink -f "$(command -v lua5.4)")" file
  printf '\x01' | dd of=file bs=1 seek=4 conv=notrunc 2>/dev/null
  refused 1 "file: is for 32 bits: only 64-bit programs can be read" probe file
}
test_traced_by_another() {
  local tracer
  cat >tracer.c <<'END'
#include <stdio.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <unistd.h>
int main(int argc, char **argv) {
  if (ptrace(PTRACE_SEIZE, atoi(argv[argc - 1]), NULL, NULL) != 0) return 1;
  puts("attached");
  fflush(stdout);
  return pause();
}
END
  ${CC:-cc} -o tracer tracer.c || fail "the tracer does not compile"
  start lua5.4 "$here/known.lua" wait
  until_printed ready
  local target=$pid
  start ./tracer "$target"
  until_printed attached
  tracer=$pid
  refused 1 "process $target (lua5.4) is traced by process $tracer already (a debugger, strace?): only one can; end that one first" dump -p "$target"
}
as_nobody() { setpriv --reuid=65534 --regid=65534 --clear-groups --inh-caps=-all "$@"; }
test_without_privileges() {
  [ "$(id -u)" = 0 ] || skip "not root: cannot become another user"
  cp "$luapulse" ./luapulse
  chmod 755 luapulse
  start lua5.4 "$here/known.lua" wait
  until_printed ready
  status as_nobody ./luapulse dump -p "$pid"
  same "$(cat err)" "luapulse dump: process $pid (lua5.4) belongs to user 0, and you are user 65534: needs CAP_SYS_PTRACE; run: sudo luapulse dump -p $pid" "message"
  same "$status" 1 "status"
  status as_nobody ./luapulse probe -p "$pid"
  same "$(cat err)" "luapulse probe: process $pid (lua5.4) belongs to user 0, and you are user 65534: needs CAP_SYS_PTRACE; run: sudo luapulse probe -p $pid" "message"
  same "$status" 1 "status"
  # and what would be missing, all of it
  grep -vE "^  (needs|missing) +(Yama|kernel)" out >told # are the machine's
  same "$(cat told)" "process $pid: lua5.4 $here/known.lua wait
  missing   CAP_SYS_PTRACE is missing: processes of other users cannot be read; use sudo
  missing   CAP_BPF and CAP_PERFMON are missing: no BPF program can be loaded; use sudo
$(grep ' perf_event_paranoid is ' out)
  engine    none, as long as the process cannot be read" "what is missing"
  grep -qE "^  (needs|missing) +perf_event_paranoid is $(cat /proc/sys/kernel/perf_event_paranoid): " out || fail "$(cat out)"
  grep -qE "^  (needs|missing) +Yama" out && grep -qE "^  (needs|missing) +kernel [0-9.]+: " out || fail "$(cat out)"
  # and without the capability, as the same user, but the process has more
  status setpriv --bounding-set=-sys_ptrace --inh-caps=-all ./luapulse dump -p "$pid"
  same "$(cat err)" "luapulse dump: process $pid (lua5.4) is yours but protected (set-user-ID, with capabilities of its own, or not dumpable): needs CAP_SYS_PTRACE; run: sudo luapulse dump -p $pid" "message"
  # a file needs none
  status as_nobody ./luapulse probe "$(command -v lua5.4)"
  same "$status" 0 "status: $(cat err)"
  has out "CAP_BPF and CAP_PERFMON are missing: no BPF program can be loaded; use sudo"
}
test_own_processes_without_privileges() {
  [ "$(id -u)" = 0 ] || skip "not root: cannot become another user"
  case $(cat /proc/sys/kernel/yama/ptrace_scope 2>/dev/null) in [123]) skip "Yama permits it not" ;; esac
  cp "$luapulse" ./luapulse
  cp "$here/known.lua" .
  chmod 755 luapulse known.lua
  start setpriv --reuid=65534 --regid=65534 --clear-groups --inh-caps=-all lua5.4 known.lua busy
  until_printed ready
  status as_nobody ./luapulse dump -p "$pid"
  same "$status" 0 "status: $(cat err)"
  grep -qE "^    leaf +known.lua:1[67]$" out || fail "$(cat out)"
}
test_layout_of_a_file() {
  local text=$root/src/walk/puc.layout
  awk '/^layout puc 5.4 "Lua 5.4.3/ { on = 1 } /^layout/ && !/5.4.3/ { on = 0 } on' "$text" >own.layout
  start lua5.4 "$here/known.lua" wait
  until_printed ready
  status "$luapulse" probe -p "$pid" --layout own.layout
  same "$status" 0 "status: $(cat err)"
  grep -qE '^  layout +"Lua 5.4.3-5.4.9", given by --layout$' out || fail "$(cat out)"
  status "$luapulse" dump -p "$pid" --layout own.layout
  same "$status" 0 "status: $(cat err)"
  has out "leaf"
  # without the fields that came last: said, not silent
  sed -E 's/ (allgc|currentwhite|status)=[0-9]+//g' own.layout >old.layout
  status "$luapulse" dump -p "$pid" --layout old.layout
  same "$status" 0 "status: $(cat err)"
  has out "suspended coroutines are not listed: the layout does not say where a VM keeps its objects"
  # a word off
  sed -E 's/ ci=[0-9]+/ ci=40/' own.layout >wrong.layout
  status "$luapulse" dump -p "$pid" --layout wrong.layout
  same "$status" 1 "status"
  has err "no Lua that can be read in process $pid (lua5.4): Lua 5.4.4 is mapped there, but"
  # of another Lua
  sed -n '/^layout puc 5.1 "Lua 5.1.3/,/^$/p' "$text" >other.layout
  refused 1 "layout file other.layout: no layout in it is for Lua 5.4.4, which is in there" dump -p "$pid" --layout other.layout
  refused 1 "cannot read the layout file missing: No such file or directory" probe -p "$pid" --layout missing
  runs_on
}
test_usage() {
  local words
  usage() { # TEXT ARGUMENTS…
    local text=$1
    shift
    status "$luapulse" "$@"
    same "$status" 2 "status of $*"
    has err "$text"
  }
  usage "what to look into is missing: -p PID, or a FILE" probe
  usage "--pid takes the number of one process, not 'x'" probe -p x
  usage "--pid takes the number of one process, not '1,2'" probe -p 1,2
  usage "-p PID and a FILE exclude each other" probe -p 1 file
  usage "one FILE at a time: 'b' is one too many" probe a b
  usage "--layout is checked against a process: it needs -p PID" probe --layout x file
  for words in "help probe" "probe --help" "probe -h"; do
    status "$luapulse" $words
    same "$status" 0 "status of $words"
    has out "Usage: luapulse probe -p PID"
  done
}
attach_main "$@"
