# luapulse stat: its shares on programs that do one thing, its figures against those of /proc and of the programs themselves.
source "$(dirname "$0")/attach.sh"
RUNTIMES=${RUNTIMES:-$all_runtimes}
ENGINES=${ENGINES:-bpf ptrace}

begin() { # RUNTIME… HOW
  start "${@:1:$#-1}" "$here/vitals.lua" "${!#}"
  until_printed ready
}
# stat ARGUMENTS…: of the process started last; it must work
stat_it() {
  status "$luapulse" stat -p "$pid" "$@"
  same "$status" 0 "status of stat $*: $(cat err)"
}
samples() { sed -nE 's/^[0-9.]+ s, ([0-9]+) samples?.*/\1/p' out; }
# enough ARGUMENTS…: until there are so many samples that some strange ones make no difference
enough() { until_seen "sampled 50" stat_it -F 999 "$@"; }
lines() { grep -cE '^[0-9]{2}:[0-9]{2}:[0-9]{2} ' out; }
# part NAME: the share in the summary, in percent, "" when it is not told
part() { sed -nE "s/^  $1 +([0-9.]+) %\$/\1/p" out; }
# busy NAME: its share of the time the processor was used
busy() {
  awk -v part="$(part "$1")" -v rest="$(part idle) $(part waiting)" 'BEGIN { split(rest, r, " "); used = 100 - r[1] - r[2]; print (used > 0 ? part * 100 / used : 0) }'
}
holds() { # EXPRESSION WHAT
  awk "BEGIN { exit !($1) }" || { cat out err >&2; fail "$2: $1"; }
}
# CPU seconds, and the wall clock
cpu_of() { awk '{ print ($14 + $15) / 100 }' "/proc/$pid/stat"; }
clock() { awk '{ print $1 }' /proc/uptime; }

test_compiled_and_interpreted() {
  local engine runtime
  for engine in $ENGINES; do
    for runtime in luajit $gc32; do
      [[ $engine != ptrace || $runtime == luajit ]] || continue # the walk is the same
      begin $runtime compute
      enough --engine $engine
      holds "$(busy compiled) > 90" "$engine $runtime: compiled, with the compiler on"
      kill -KILL "$pid"
      begin $runtime -joff compute
      enough --engine $engine
      holds "$(busy compiled) == 0" "$engine $runtime: compiled, with the compiler off"
      holds "$(busy interpreter) > 90" "$engine $runtime: interpreter"
      runs_on
      kill -KILL "$pid"
    done
  done
}
test_functions_in_lua_and_c() {
  local engine runtime
  for engine in $ENGINES; do
    for runtime in lua5.1 lua5.4 luajit,-joff ${gc32:+$gc32,-joff}; do
      [[ $engine != ptrace || $runtime == lua5.4 || $runtime == luajit,-joff ]] || continue # the walk is the same
      begin ${runtime//,/ } c
      enough --engine $engine
      holds "$(busy 'C functions') > 80" "$engine $runtime: C functions"
      kill -KILL "$pid"
    done
    begin lua5.3 compute
    enough --engine $engine
    holds "$(busy interpreter) > 90" "$engine: interpreter"
    has out "  compiled      not told: there is no compiler"
    grep -qE '^[0-9:]{8} +[0-9]+ +- +[0-9]+ +[0-9]+' out || { cat out >&2; fail "what is not told is a number"; }
    kill -KILL "$pid"
  done
}
collects() { grep -qE 'found at .*(mark|sweep|atomic)' out || { cat out >&2; fail "the collector is never at work"; }; }
test_collector() {
  local runtime
  for runtime in luajit $gc32; do
    begin $runtime garbage
    until_seen 'holds "$(busy collector) > 3" collector && collects' stat_it -i 0.1 # so that it is looked at often
    kill -KILL "$pid"
  done
}
# PUC Lua from 5.4.3 on tells by a mark in the VM: what the host itself measures that it takes, or a little less.
test_collector_by_its_state() {
  local engine how archive share most
  archive=$(pkg-config --variable=libdir lua5.4)/liblua5.4.a
  [ -f "$archive" ] || archive=/usr/lib/$(${CC:-cc} -dumpmachine)/liblua5.4.a
  ${CC:-cc} -O2 -s -o collecting $(pkg-config --cflags lua5.4) "$here/collecting_host.c" "$archive" -lm -ldl || fail "the host does not compile"
  for how in incremental generational full; do
    for engine in $ENGINES; do
      start ./collecting $how
      until_printed share
      until_seen "sampled 200" stat_it --engine $engine -F 1999
      share=$(sed -n 's/^share //p' "printed.$((${#started[@]} - 1))" | tail -n 1)
      # five deviations: six are compared, and at three a run in a hundred would fail by chance
      most=$(awk -v p="$share" -v n="$(samples)" 'BEGIN { most = 5 * sqrt(p * (100 - p) / n); print (most > 10 ? most : 10) }')
      holds "$(busy collector) < $share + $most" "$engine, $how: collector, which takes $share %"
      holds "$(busy collector) > 0.85 * $share - $most" "$engine, $how: collector, which takes $share %"
      has out "at least: of PUC Lua"
      kill -KILL "$pid"
    done
  done
  begin lua5.4 compute
  enough
  holds "$(busy collector) < 2" "one that rests"
  kill -KILL "$pid"
}
# host VERSION OPTIONS…: a program with Lua in it
host() {
  local archive
  archive=$(pkg-config --variable=libdir lua$1)/liblua$1.a
  [ -f "$archive" ] || archive=/usr/lib/$(${CC:-cc} -dumpmachine)/liblua$1.a
  [ -f "$archive" ] || archive=$(pkg-config --libs-only-other lua$1 | grep -o '[^ ]*\.a') # that of scripts/newer
  cat >host.c <<'END'
#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>
int main(int argc, char **argv) {
  lua_State *L = luaL_newstate();
  luaL_openlibs(L);
  lua_pushstring(L, argv[2]);
  return argc < 3 || luaL_loadfile(L, argv[1]) != 0 || (lua_insert(L, -2), lua_pcall(L, 1, 0, 0));
}
END
  ${CC:-cc} $(pkg-config --cflags lua$1) host.c "${@:2}" "$archive" -Wl,--no-whole-archive -lm -ldl || fail "the host does not compile"
}
# tells_no_collector ENGINE PROGRAM: that it does not work where there is no garbage
tells_no_collector() {
  start "$2" "$here/vitals.lua" compute
  until_printed ready
  enough --engine "$1"
  holds "$(busy collector) < 5" "$*: no garbage"
  kill -KILL "$pid"
}
# tells_collector ENGINE PROGRAM: that it works where there is
tells_collector() {
  start "$2" "$here/vitals.lua" garbage
  until_printed ready
  until_seen "sampled 300" stat_it -F 1999 --engine "$1"
  holds "$(busy collector) > 5 && $(busy collector) < 95" "$*: collector"
  has out "at least: of PUC Lua"
  kill -KILL "$pid"
}
# Others tell nothing of it; symbols do, where there are any. What the symbols are is a matter of the version, what is done with them one
# of the engine: both are tried at the last version. The same program without them, which still tells what others may link with, has
# to come to the same; and the interpreters as they are installed have to tell.
test_collector_by_its_code() {
  local engine version by_symbols most
  for version in 5.1 5.2 5.3 5.4 ${lua55#lua}; do
    host $version -o host$version -Wl,-E -Wl,--whole-archive
    for engine in $ENGINES; do
      [[ $version == "${lua55#lua}" || $engine == "${ENGINES%% *}" ]] || continue
      tells_collector $engine ./host$version
    done
    by_symbols=$(busy collector)
    strip -o stripped$version host$version
    tells_no_collector "${ENGINES%% *}" ./stripped$version
    tells_collector "${ENGINES%% *}" ./stripped$version
    most=$(awk -v p="$by_symbols" -v n="$(samples)" 'BEGIN { print 5 + 5 * sqrt(2 * p * (100 - p) / n) }')
    holds "$(busy collector) < $by_symbols + $most && $(busy collector) > $by_symbols - $most" "$version: by calls and by symbols"
    [[ $version == 5.[24] ]] || tells_collector "${ENGINES%% *}" lua$version
  done
}
# Without either, and nothing to begin with.
test_collector_that_is_not_told() {
  host 5.3 -s -o silent
  start ./silent "$here/vitals.lua" garbage
  until_printed ready
  enough
  has out "  collector     not told: it counts for the function that was at work"
  grep -qE '^[0-9:]{8} +[0-9]+ +- +- +[0-9]+' out || { cat out >&2; fail "what is not told is a number"; }
  kill -KILL "$pid"
}
busy_ticks() { sed -nE 's/^cpu: ([0-9]+)\.([0-9]+) s,.*/\1\2/p' out | sed 's/^0*//; s/^$/0/'; } # hundredths of a second, by the kernel's clock
four_times_as_long() { stat_it "${@:1:$#-1}" "$(awk "BEGIN { print ${!#} * 4 }")"; } # the last argument is that of -d
# Engine bpf tells the kernel's share by where threads were interrupted, /proc by its own clock.
test_kernel() {
  begin lua5.4 kernel
  stat_it --engine ptrace -d 0.2
  has out "  kernel        not told: engine ptrace cannot tell"
  [[ " $ENGINES " == *" bpf "* ]] || return 0
  until_seen '[ "$(busy_ticks)" -ge 150 ] && sampled 300' four_times_as_long --engine bpf -F 999
  local cpu system most
  cpu=$(sed -nE 's/^cpu: ([0-9.]+) s, of it ([0-9.]+) s.*/\1/p' out)
  system=$(sed -nE 's/^cpu: ([0-9.]+) s, of it ([0-9.]+) s.*/\2/p' out)
  holds "$(busy kernel) > 5" "kernel"
  # Both are counted by samples: luapulse's own, and the ticks of the kernel, a hundred a second at least. Five deviations of both together
  # are 20 points with a second and a half of the processor, for shares about a half; 15 would be less than four.
  most=$(awk -v cpu="$cpu" -v kernel="$system" -v n="$(samples)" 'BEGIN {
    p = kernel / cpu; most = 500 * sqrt(p * (1 - p) * (1 / n + 1 / (100 * cpu))); print (most > 15 ? most : 15) }')
  holds "$(busy kernel) - 100 * $system / $cpu < $most && 100 * $system / $cpu - $(busy kernel) < $most" "kernel and /proc"
  kill -KILL "$pid"
}
# Two on one processor: each waits for it about half of the time, and is never idle.
test_waiting_for_a_processor() {
  begin taskset -c 0 lua5.4 compute
  begin taskset -c 0 lua5.4 compute
  stat_it -d 1
  holds "$(part waiting) > 20" "waiting"
  holds "$(part idle) < $(part waiting)" "idle"
  kill -KILL "${started[@]: -2}"
}
# What the process used before and after stat looked is at most as much as there was time.
test_cpu_against_proc() {
  local engine before after began ended cpu seconds
  for engine in $ENGINES; do
    begin lua5.4 compute
    before=$(cpu_of) began=$(clock)
    stat_it --engine $engine -d 1
    after=$(cpu_of) ended=$(clock)
    cpu=$(sed -nE 's/^cpu: ([0-9.]+) s,.*/\1/p' out)
    seconds=$(sed -nE 's/^([0-9.]+) s, [0-9]+ samples?.*/\1/p' out)
    # steps of /proc are 0.01 s, and so are those of the clock; what is printed has one digit
    holds "$cpu <= $after - $before + 0.05" "$engine: CPU seconds"
    holds "$cpu >= $after - $before - ($ended - $began - $seconds) - 0.15" "$engine: CPU seconds"
    holds "$seconds >= 0.9 && $seconds <= $ended - $began + 0.1" "$engine: seconds"
    # what is left of the time it was idle, or waited for a processor; this one never rests
    holds "$(part idle) + $(part waiting) <= 100 * (1 - $cpu / ($seconds + 0.06)) + 1 && $(part idle) + $(part waiting) >= 100 * (1 - $cpu / ($seconds - 0.06)) - 1" "$engine: idle"
    kill -KILL "$pid"
  done
}
test_switches_and_faults_against_proc() {
  local began ended seconds before after switches faults
  switches_of() { sed -nE 's/^voluntary_ctxt_switches:\t//p' "/proc/$pid/status"; }
  faults_of() { awk '{ print $10 + $12 }' "/proc/$pid/stat"; }
  begin luajit sleep
  before=$(switches_of) began=$(clock)
  stat_it -d 1
  after=$(switches_of) ended=$(clock)
  switches=$(sed -nE 's/^cpu: .*; ([0-9]+) voluntary and .*/\1/p' out)
  seconds=$(sed -nE 's/^([0-9.]+) s, [0-9]+ samples?.*/\1/p' out)
  holds "$switches <= $after - $before" "switches"
  # it sleeps all the time: of all switches about as many are in the interval as its length has of it
  holds "$switches >= ($after - $before) * $seconds / ($ended - $began) * 0.3" "switches"
  kill -KILL "$pid"
  begin lua5.4 kernel
  before=$(faults_of)
  stat_it -d 0.5
  after=$(faults_of)
  faults=$(sed -nE 's/^cpu: .* switches, ([0-9]+) page faults.*/\1/p' out)
  holds "$faults <= $after - $before" "page faults"
  kill -KILL "$pid"
}
# The program's own figures: what its heap has, that the collector rests, how many coroutines there are.
test_heap_collector_and_coroutines() {
  local runtime heap rests
  for runtime in $RUNTIMES; do
    begin "$runtime" known
    rests=pause
    [[ $runtime == lua5.[45] ]] && rests=gen # which these interpreters set at their start
    heap=$(sed -n 's/^heap //p' "printed.$((${#started[@]} - 1))")
    # a count that takes too long, because this processor was taken away, is broken off
    until_seen "grep -qE '^[0-9:]{8} .* [0-9]+K $rests +37 ' out" stat_it -i 0.2
    same "$(sed -nE 's/^coroutines: ([0-9]+) at the beginning, ([0-9]+) at the last count; counted [0-9]+ times.*/\1 \2/p' out)" "37 37" "$runtime: coroutines: $(cat out)"
    grep -qE "in 1 VM; the collector was found at $rests [0-9]+ of [0-9]+ times" out || { cat out >&2; fail "$runtime: the collector does not rest"; }
    # printed in kB; since it told its heap it has made a few strings
    holds "$(sed -nE 's/^heap: .*, ([0-9]+)K at the end.*/\1/p' out) * 1024 - $heap < 65536" "$runtime: heap"
    holds "$heap - $(sed -nE 's/^heap: .*, ([0-9]+)K at the end.*/\1/p' out) * 1024 < 65536" "$runtime: heap"
    runs_on
    kill -KILL "$pid"
  done
}
# Counting is not worth holding a process for long.
test_many_objects() {
  begin lua5.4 objects
  stat_it -d 1
  has out "coroutines: not told: there are too many objects to look through"
  grep -qE '^[0-9:]{8} .*M [a-z]+ +- ' out || { cat out >&2; fail "a number that nobody knows"; }
  runs_on
  kill -KILL "$pid"
}
test_idle() {
  local engine
  for engine in $ENGINES; do
    start bash -c "sleep 1000 | lua5.4 '$here/vitals.lua' read"
    until_printed ready
    pid=$(pgrep -g "$pid" lua5.4)
    until_state S
    stat_it --engine $engine -d 1
    # when it was held and is let go it may wait for a processor, to wait again
    holds "$(part idle) + $(part waiting) >= 99.5 && $(part idle) > 90" "$engine: idle"
    grep -qE '^[0-9.]+ s, [0-3] samples?, 0 lost' out || { cat out >&2; fail "$engine: samples of a process that rests"; } # but when it is held, and let go
    grep -qE '^[0-9:]{8} +0 +- +0 +0 .* (100|9[0-9]) ' out || { cat out >&2; fail "$engine: the line is not idle"; }
    kill -KILL -- "-${started[-1]}"
  done
}
test_the_target_ends() {
  local engine
  for engine in $ENGINES; do
    begin lua5.4 compute
    local target=$pid
    start "$luapulse" stat --engine $engine -p "$target" -i 0.3
    until_printed "interp"
    kill -KILL "$target"
    until_printed "instructions per cycle"
    has "printed.$((${#started[@]} - 1))" "process $target (lua5.4) has ended"
    begin lua5.4 compute
    target=$pid
    start "$luapulse" stat --engine $engine -p "$target" -i 0.3
    until_printed "interp"
    kill -INT "$pid"
    until_printed "instructions per cycle"
    kill -KILL "$target"
  done
}
test_several_processes() {
  local first
  begin luajit compute
  first=$pid
  begin lua5.4 compute
  of_both() {
    status "$luapulse" stat -F 299 -p "$first,$pid" "$@"
    same "$status" 0 "status: $(cat err)"
  }
  # one is compiled, the other cannot be; how much of the processor each gets is the kernel's business
  until_seen 'sampled 100 && holds "$(busy compiled) > 1 && $(busy interpreter) > 1" shares' of_both
  has err "2 processes, engine"
  has out "in 2 VMs"
  status "$luapulse" stat -p "$first,4194300" -d 0.3
  same "$status" 1 "status with one that is none"
  has err "luapulse stat: there is no process 4194300"
  kill -KILL "$pid" "$first"
}
# where there are no others
of_all() {
  status unshare --mount --pid --mount-proc --fork bash -c "
    lua5.4 '$here/vitals.lua' compute >ready.1 & luajit '$here/vitals.lua' compute >ready.2 &
    until grep -q ready ready.1 && grep -q ready ready.2; do sleep 0.02; done
    '$luapulse' stat --all -F 299 $*"
  same "$status" 0 "status: $(cat err)"
}
test_every_process() {
  until_seen 'holds "$(part interpreter) > 0 && $(part compiled) > 0" shares' of_all
  has err "luapulse: 2 processes, engine"
}
test_no_lua() {
  start_sleep
  status "$luapulse" stat -p "$pid"
  same "$status" 1 "status"
  has err "luapulse stat: no Lua in process $pid (sleep)"
  same "$(cat out)" "" "what is printed"
  kill -KILL "$pid"
}
ten_lines_a_second() { stat_it -i 0.1 -d "$(awk "BEGIN { print $2 * 6 }")"; }
test_lines() {
  begin lua5.4 compute
  until_seen 'holds "$(lines) >= 21" lines' ten_lines_a_second
  holds "$(lines) <= 10 * $(sed -nE 's/^([0-9.]+) s, [0-9]+ samples?.*/\1/p' out) + 2" "lines"
  same "$(grep -c 'time interp  jit' out)" $((($(lines) + 19) / 20)) "heads, one for 20 lines"
  ! grep -q $'\033' out || fail "control characters"
  # shares of a line make 100, but for their being rounded; where there was no sample they are not told
  awk '/^[0-9][0-9]:/ && $2 != "-" { sum = 0; for (i = 2; i <= 9; i++) if ($i != "-") sum += $i; if (sum < 96 || sum > 104) { print sum ": " $0; exit 1 } }' out || fail "shares do not make 100"
  kill -KILL "$pid"
}
# Many virtual machines have no counters; where they are, they make sense.
test_counters() {
  begin lua5.4 compute
  stat_it -d 1
  if grep -q 'ipc br-miss' out; then
    holds "$(sed -nE 's/^instructions per cycle: ([0-9.]+);.*/\1/p' out) > 0.1" "instructions per cycle"
  else
    has out "instructions per cycle, branch misses: not supported"
  fi
  kill -KILL "$pid"
}
# A mock, because nothing real is to be had where there are no counters: the kernel's clock of the process takes the place of cycles,
# instructions and branches, and a counter that stays at 0 that of the misses. All else is as it is with real ones.
test_counters_in_their_place() {
  cat >counters.c <<'END'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <linux/perf_event.h>
#include <stdarg.h>
#include <sys/syscall.h>
long syscall(long number, ...) {
  long (*real)(long, ...) = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
  long a[6];
  va_list rest;
  va_start(rest, number);
  for (int i = 0; i < 6; i++) a[i] = va_arg(rest, long);
  va_end(rest);
  struct perf_event_attr *attr = (struct perf_event_attr *)a[0];
  if (number == SYS_perf_event_open && attr->type == PERF_TYPE_HARDWARE) {
    attr->type = PERF_TYPE_SOFTWARE;
    attr->config = attr->config == PERF_COUNT_HW_BRANCH_MISSES ? PERF_COUNT_SW_DUMMY : PERF_COUNT_SW_TASK_CLOCK;
  }
  return real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
END
  ${CC:-cc} -shared -fPIC -o counters.so counters.c -ldl || fail "the counters do not compile"
  begin lua5.4 compute
  status env LD_PRELOAD="$PWD/counters.so" "$luapulse" stat -p "$pid" -d 1 -i 0.5
  same "$status" 0 "status: $(cat err)"
  has out "ipc br-miss"
  grep -qE '^[0-9:]{8} .* 1\.00 +0\.0[0-9]?$' out || { cat out >&2; fail "a line has no counters"; }
  has out "instructions per cycle: 1.00; branch misses: 0.00 %"
  kill -KILL "$pid"
}
test_standard_output_that_cannot_be_written() {
  start lua5.4 "$root/tests/attach/split.lua" plain
  until_printed ready
  "$luapulse" stat -p "$pid" -d 0.3 >/dev/full 2>err
  same $? 1 "status with a full disk"
  same "$(grep -v "^luapulse: " err)" "luapulse stat: standard output: cannot be written: No space left on device" "message"
  "$luapulse" stat -p "$pid" -d 0.3 >&- 2>err
  same $? 1 "status with a closed one"
  same "$(grep -v "^luapulse: " err)" "luapulse stat: standard output: cannot be written: Bad file descriptor" "message"
  kill -KILL "$pid"
}
test_usage() {
  has_help stat
  usage() { misused stat "$@"; }
  usage "what to look at is missing: -p PID, or --all"
  usage "either some processes (-p) or --all, not both" -p 1 --all
  usage "--duration takes a number of seconds, not '-1'" -d -1 -p 1
  usage "--interval takes a number of seconds from 0.1 on, not '0.01'" -i 0.01 -p 1
  usage "--rate takes a number from 1 to 10000, not 'x'" -F x -p 1
  usage "'lua5.4' is one too many" -p 1 lua5.4
}

attach_main "$@"
