# For the tests that look into live processes: what they start, they stop.
source "$(dirname "${BASH_SOURCE[0]}")/../cli/cli.sh"
here=$root/tests/attach
started=() folder=
stop_all() {
  local pid
  for pid in "${started[@]}"; do kill -KILL -- "-$pid" 2>/dev/null; done
  [ -z "$folder" ] || rm -rf "$folder"
}
trap stop_all EXIT
# Its trap must stay the one that counts: cli_main sets its own.
attach_main() {
  [ "${1:-}" = --list ] && { cli_main --list; return; }
  folder=$(mktemp -d)
  chmod 755 "$folder"
  cd "$folder" || exit 2
  local names
  names=$(declare -F | sed -n 's/^declare -f test_//p')
  for name in ${1:-$names}; do "test_$name"; done
}

source "$root/tests/conditions.sh"
# skip WHY: where tests/allowed_skips permits it
skip() {
  echo "$*"
  exit 77
}
# the engines that should work here, which is not for luapulse to say: only that it has BPF it is believed, which is quicker
has_bpf() { "$luapulse" probe "$(command -v lua5.4)" 2>&1 | grep -q "^ *engine *bpf" || ! { not_root || no_bpf; }; }
why_not_bpf() { "$luapulse" probe "$(command -v lua5.4)" 2>&1 | sed -n 's/^ *engine *\(ptrace: .*not bpf: \)\?//p'; }
# Whoever names ENGINES knows what is left out; else it is said, once, by a file, for this is called in subshells.
engines() {
  if [ -n "${ENGINES:-}" ] || has_bpf; then
    echo "${ENGINES:-bpf ptrace}"
    return
  fi
  [ -e "$folder/.noted" ] || note "engine bpf is left out: $(why_not_bpf)"
  : >"$folder/.noted"
  echo ptrace
}

# program, image: the file of the process started last, and that which its Lua is in, as dump names them
program() { basename "$(readlink -f "/proc/$pid/exe")"; }
image() {
  if [ "$(program)" = luajit-gc32 ]; then basename "$(awk '/libtexluajit/ { print $6; exit }' "/proc/$pid/maps")"; else program; fi
}
# copy_of RUNTIME FILE: an interpreter that has its Lua in it, under another name and stripped
copy_of() {
  local file
  file=$(readlink -f "$(command -v "$1")")
  [ "$1" != luajit-gc32 ] || file+=-static
  cp "$file" "$2"
  strip "$2"
}

# has_help COMMAND: by all ways to ask for it
has_help() {
  local words
  for words in "help $1" "$1 --help" "$1 -h"; do
    status "$luapulse" $words
    same "$status" 0 "status of $words"
    has out "Usage: luapulse $1 -p PID"
  done
}
# misused COMMAND MESSAGE ARGUMENTS…
misused() {
  local command=$1 message=$2
  shift 2
  status "$luapulse" "$command" "$@"
  same "$status" 2 "status of $command $*"
  has err "luapulse $command: $message"
}

# start COMMAND…: in a session of its own; $pid is its number, and what it prints is in printed.N
start() {
  : >"printed.${#started[@]}"
  setsid "$@" >>"printed.${#started[@]}" 2>&1 </dev/null &
  pid=$!
  disown "$pid" # its end is no news
  started+=("$pid")
}
# start_split COMMAND… -- ARGUMENTS: of split.lua
start_split() {
  local command=()
  while [ "$1" != -- ]; do command+=("$1") && shift; done
  shift
  start "${command[@]}" "$here/split.lua" "$@"
  until_printed ready
}
# start_sleep: a process without a Lua in it, that has its name: before it is a shell
start_sleep() {
  start sleep 1000
  wait_for grep -qx sleep "/proc/$pid/comm"
}
# pause: for a moment, between two looks; nobody writes to what it reads from
exec {nothing}<> <(:)
pause() { read -rt 0.02 -u "$nothing"; }
# in_time COMMAND…: waits until it succeeds. How long that takes is the machine's business: the limit is for what never comes.
in_time() {
  local end=$((SECONDS + 90))
  until "$@"; do
    [ $SECONDS -lt $end ] || return 1
    pause
  done
  return 0 # and not what the loop ended with
}
# wait_for COMMAND…: the same, and it must
wait_for() { in_time "$@" >/dev/null 2>&1 || fail "this never succeeded: $*"; }
# until_printed TEXT: waits until the process started last has printed it
until_printed() {
  local file=printed.$((${#started[@]} - 1))
  in_time grep -qF -- "$1" "$file" && return
  cat "$file" >&2
  fail "'$1' was not printed"
}
state_is() { [ "$(sed 's/.*) //; s/ .*//' "/proc/$pid/stat" 2>/dev/null)" = "$1" ]; }
# until_state STATE: waits until the first thread of the process is in that state of the scheduler
until_state() { in_time state_is "$1" || fail "process $pid is not in state $1"; }
until_gone() { in_time eval 'state_is Z || state_is ""' || fail "process $pid is still there"; }
# used_by PID: hundredths of a second that it has used the processor for
used_by() {
  local fields
  read -ra fields 2>/dev/null <"/proc/$1/stat" && echo $((fields[13] + fields[14])) || echo 0
}
has_used() { [ "$(used_by "$pid")" -ge "$1" ]; }
# until_busy [HUNDREDTHS]: waits until the process has used the processor for so many hundredths of a second more, three unless told
until_busy() { in_time has_used $(($(used_by "$pid") + ${1:-3})) || fail "process $pid is not busy"; }
# until_all_busy: waits until each of its threads has used the processor for as long
all_used() { awk '{ sub(/.*\) /, ""); if ($12 + $13 < 3) exit 1 }' "/proc/$pid/task/"*/stat; }
until_all_busy() { in_time all_used || fail "not every thread of process $pid is busy"; }
# runs_on: the process still does what it did
runs_on() {
  [ "$(sed 's/.*) //; s/ .*//' "/proc/$pid/stat")" != t ] || fail "process $pid is left in a tracing stop"
  same "$(sed -n 's/^TracerPid:\t//p' "/proc/$pid/status")" 0 "tracer of process $pid"
}
# stack_of TITLE FILE: names and places below a line that contains the title, addresses and folders taken off
stack_of() {
  awk -v title="$1" 'index($0, title) && /^  [a-z0-9]/ { on = 1; next } on && /^    / { print $0; next } { on = 0 }' "$2" |
    sed -E 's/^ +//; s/ +/ /g; s|[^ ]*/||g'
}

# start_vfork_host [none]: it has a thread in uninterruptible sleep, $sleeper, which cannot be stopped until the child that it waits for is gone,
# $child
start_vfork_host() {
  [ -e vfork_host ] || ${CC:-cc} $(pkg-config --cflags lua5.4) -o vfork_host "$here/vfork_host.c" $(pkg-config --libs lua5.4) -lpthread || fail "the host does not compile"
  start ./vfork_host "$@"
  until_printed ready
  wait_for eval 'child=$(pgrep -P "$pid")'
  sleeper=$(ls "/proc/$pid/task" | grep -vx "$pid")
  wait_for sleeper_is D
}
sleeper_is() { [ "$(sed 's/.*) //; s/ .*//' "/proc/$pid/task/$sleeper/stat" 2>/dev/null)" = "$1" ]; }
sleeper_is_asked() { [ "$(sed -n 's/^TracerPid:\t//p' "/proc/$pid/task/$sleeper/status")" != 0 ]; }

# record ARGUMENTS…: with $engine, into out.pb.gz and out.folded; status as status() has it
record() { status "$luapulse" record --engine "$engine" -o out.pb.gz -o out.folded "$@"; }
# recorded ARGUMENTS…: and it must have worked
recorded() {
  record "$@"
  same "$status" 0 "status of record $*: $(cat err)"
}
# until_seen CHECK COMMAND…: runs the command with "-d SECONDS" behind it, each time for longer, until CHECK holds of what it has left
# behind. CHECK is shell text; it may fail as a test does. How many samples there are in a second depends on the machine, so a test that
# wants to see something waits for it in this way and no other. What must not be there, and shares, are looked at after it: a check that
# is tried again overlooks what is wrong now and then.
until_seen() {
  local check=$1 seconds
  shift
  for seconds in 0.4 0.8 1.5 3 6 12 25 50; do
    "$@" -d $seconds
    (eval "$check") >missing 2>&1 && return
  done
  cat missing >&2
  fail "in all this time it did not come to: $check"
}
# start_recorder ARGUMENTS…: in the background, until it takes samples; $recorder is its number, what it says is in err
start_recorder() {
  "$luapulse" record --engine "$engine" -o out.pb.gz -o out.folded "$@" 2>err &
  recorder=$!
  wait_for takes_samples
}
takes_samples() { # of one process at least: it has an event, or has slept from tick to tick for a while
  ls -l "/proc/$recorder/fd" >opened
  if [ "$engine" = bpf ]; then grep -q perf_event opened; else
    grep -q pidfd opened && [ "$(sed -n 's/^voluntary_ctxt_switches:\t//p' "/proc/$recorder/status")" -ge 30 ]
  fi
}
# times SECONDS COUNT: how much to do, as a whole number, where there is so much to do in a second
times() { awk "BEGIN { print int($1 * $2) }"; }
samples() { sed -nE 's/^luapulse: ([0-9]+) samples? in .*/\1/p' err; }
# sampled COUNT: there are so many samples
sampled() { [ "$(samples)" -ge "$1" ] || fail "fewer than $1 samples: $(cat err)"; }
# stacks EXPRESSION: some time was spent in a stack that fits
stacks() {
  grep -v '^#' out.folded | grep -qE -- "$1" || { cat err out.folded >&2; fail "no stack fits '$1'"; }
}
no_stacks() {
  ! grep -v '^#' out.folded | grep -E -- "$1" || { cat err >&2; fail "a stack fits '$1'"; }
}
# nothing_is_invented: of programs that are nothing but a main chunk there is one, and nothing else
nothing_is_invented() {
  grep -v '^#' out.folded | sed -E 's/ [0-9]+$//' | tr ';' '\n' | grep -vE '^(\[gone\]|\[outside Lua\]|main chunk \(\(command line\):[01]\)|.* \(\[C\]:0\))$' >invented &&
    fail "frames that cannot be: $(cat invented)"
  stacks "main chunk"
}
# share EXPRESSION [FILE]: how many of a thousand of all time, or what FILE has, is of stacks that fit
share() {
  awk -v fits="$1" '!/^#/ { all += $NF } !/^#/ && $0 ~ fits { part += $NF } END { printf "%d", (all > 0 ? part * 1000 / all + 0.5 : -1) }' "${2:-out.folded}"
}
# deep_stacks_are_cut: deeper than what is kept, the leaves are, and it is said of every sample that there is more
deep_stacks_are_cut() {
  local runtime
  for runtime in lua5.1 lua5.4 luajit $gc32; do
    start $runtime -e 'local function down(n) if n > 0 then return 1 + down(n - 1) end print "ready" io.flush() local x = 0 while true do x = x + 1 end end down(5000)'
    until_printed ready
    until_seen "sampled 20" recorded -p "$pid" -F 999
    awk '!/^#/ { if (split($0, frames, ";") != 1025 || frames[1] !~ /truncated/) exit 1; any = 1 } END { exit !any }' out.folded ||
      fail "$engine $runtime: stacks that are not 1024 deep and cut: $(head -c 300 out.folded)"
    grep -qE "^luapulse: ([0-9]+) samples in .*, 0 unattributed, \1 truncated$" err || fail "$engine $runtime: it is not said of every sample: $(cat err)"
    kill -KILL "$pid"
  done
}
# within SHARE EXPECTED WHAT [MORE]: samples are independent at best, so that their deviation is that of the binomial distribution. The suite
# compares some two hundred shares: at 4 deviations one run in a hundred would fail by chance, at 5 one in ten thousand. That a thread may
# wait for the processor in the midst of one function adds the length of a slice, so it is never less than 40 of a thousand. MORE times as much
# where samples differ in what they stand for.
within() {
  local got=$1 expected=$2 n
  n=$(samples)
  awk -v got="$got" -v p="$expected" -v n="$n" -v more="${4:-1}" 'BEGIN {
    most = 5 * more * sqrt(p * (1000 - p) / n); if (most < 40) most = 40
    exit !(n > 0 && got >= p - most && got <= p + most) }' || { cat err out.folded >&2; fail "$3: $got of a thousand in $n samples, expected $expected"; }
}
# has_share EXPRESSION EXPECTED WHAT: of samples, and of time. The weights of samples differ where the recorder itself waits for a processor
# (engine ptrace), and where a hypervisor took it away and did not tell: then so many samples are as good as a fourth of them of equal weight.
# On two processors with six programs that never sleep a share of time was off by up to 4.1 deviations in 30 recordings of engine ptrace, one of samples by 1.8.
has_share() {
  "$luapulse" convert -s samples -o counted.folded out.pb.gz 2>said || fail "$(cat said)"
  within "$(share "$1" counted.folded)" "$2" "$3, samples"
  within "$(share "$1")" "$2" "$3, time" 2
}
# split_shares WHAT: of what was recorded of split.lua
split_shares() {
  has_share ';a \\(.*;burn ' 500 "$1 a"
  has_share ';b \\(.*;burn ' 300 "$1 b"
  has_share ';c \\(.*;burn ' 200 "$1 c"
}
# enough ARGUMENTS…: recorded until shares mean something: 200 samples tell 500 of a thousand from 300, those of a quiet machine much more
enough() { until_seen "sampled 200" recorded -F 1999 "$@"; }
# Engine ptrace walks by the code that dump has, and the agent, which are tried on every runtime.
tells_more() { [[ $engine != ptrace || $runtime == lua5.5 || $runtime == luajit,-joff ]]; }
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
