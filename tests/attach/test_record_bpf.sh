# luapulse record with the engine in the kernel: what only it can do, and what it needs. Where BPF works none of this may be skipped
# (tests/allowed_skips).
source "$(dirname "$0")/attach.sh"

needs_bpf() {
  has_bpf || skip "$(why_not_bpf)"
}
engine=bpf
# with_capabilities LIST COMMAND…: as a user that is nobody else, with these and no other
with_capabilities() {
  local list=$1
  shift
  setpriv --reuid=65534 --regid=65534 --clear-groups --inh-caps="-all$list" --ambient-caps="-all$list" --bounding-set="-all$list" "$@"
}

test_it_runs_here() {
  needs_bpf
  start lua5.4 "$here/split.lua" plain
  until_printed ready
  until_seen "sampled 1" recorded -p "$pid" -F 499
  has err "with engine bpf"
  has err " 0 lost, 0 unattributed"
  runs_on
}
# left COMMANDS -d SECONDS: rounds of a program, about so long, by a shell that ends, or goes on, as soon as it has made it
left() { record -s -F 999 -- sh -c "(luajit '$here/split.lua' plain $(times "$3" 1500) &) $1"; }
seen_in_lua() { same "$status" 0 "status: $(cat err)"; sampled 100 && stacks "main chunk .*;a \(.*;burn "; }
# Children whose parent ends at once, from the first moment of the program on: who looks through /proc finds them too late.
test_children_that_are_left_at_once() {
  needs_bpf
  until_seen seen_in_lua left "; sleep 1.5"
  until_seen seen_in_lua left ""
}
# A child has the period that its parent had, which was cut short at first, and still is of a parent that is asleep: it is sampled as often as
# was asked for all the same.
below_a_shell() { record -s -F 499 -- sh -c "lua5.4 '$here/split.lua' plain $(times "$2" 1000); true"; }
test_children_of_what_sleeps() {
  needs_bpf
  for i in 1 2 3; do
    until_seen 'same "$status" 0 "status: $(cat err)" && sampled 200' below_a_shell
    awk -v n="$(samples)" '!/^#/ { all += $NF } END { exit !(all / n > 0.8 * 1e9 / 499) }' out.folded || fail "more samples than were asked for: $(cat err out.folded)"
    split_shares "child $i"
  done
}
# lasted SECONDS: all that was recorded is told, by a seventh at most more than once; a busy machine misses ticks
lasted() { awk -v expected="$1" '!/^#/ { all += $NF } END { exit !(all > 0.7 * expected * 1e9 && all < 1.14 * expected * 1e9) }' out.folded || fail "not $1 s: $(cat err out.folded)"; }
# has_events PID COUNT: so many perf events are open there
has_events() { [ "$(ls -l "/proc/$1/fd" | grep -c perf_event)" -ge "$2" ]; }
# Threads that take turns on one processor with the one that started them, whose period was cut short while it slept.
test_threads_of_what_sleeps() {
  needs_bpf
  local one i recorder
  one=$(sed -nE 's/^Cpus_allowed_list:\t([0-9]+).*/\1/p' /proc/self/status)
  ${CC:-cc} $(pkg-config --cflags lua5.4) -o host "$here/late_threads_host.c" $(pkg-config --libs lua5.4) -lpthread || fail "the host does not compile"
  for i in 1 2 3 4; do
    rm -f go
    start taskset -c "$one" ./host
    until_printed ready
    "$luapulse" record --engine bpf -p "$pid" -F 999 -o out.pb.gz 2>err &
    recorder=$!
    in_time has_events $recorder 2 || fail "it does not begin: $(cat err)"
    touch go
    wait $recorder || fail "status: $(cat err)"
    "$luapulse" convert -o out.folded out.pb.gz || fail "it cannot be converted"
    lasted 1.2
    for thread in 0 1 2 3; do has_share "work_$thread " 250 "thread $thread"; done
  done
}
# seconds_of_children: what bash has told of their processor time
seconds_of_children() { awk '/^used / { print $2 + $3 }' out; }
# Children and grandchildren of a process that sleeps meanwhile, with Lua and without: none of their time is told twice.
test_time_of_children_of_what_sleeps() {
  needs_bpf
  cat >family.sh <<'END'
TIMEFORMAT='used %U %S'
time {
  for ((i = 0; i < 6; i++)); do sh -c "lua5.4 -e 'local e = os.clock() + 0.15 while os.clock() < e do end'; true"; done
  awk 'BEGIN { for (i = 0; i < 6000000; i++) n += i }'
}
END
  for i in 1 2 3; do
    status "$luapulse" record --engine bpf -s -F 499 -o out.folded -- bash -c 'sleep 0.3; . ./family.sh 2>used; cat used'
    same "$status" 0 "status: $(cat err)"
    lasted "$(seconds_of_children)"
  done
}
# Programs one after the other that have different functions at the same address, and perhaps the same place in the kernel: each has its own names.
test_names_are_of_their_process() {
  needs_bpf
  local name
  for name in alpha omega; do
    ${CC:-cc} -no-pie -fno-pie -DNAME=$name $(pkg-config --cflags lua5.4) -o host_$name "$here/c_function_host.c" $(pkg-config --libs lua5.4) || fail "the host does not compile"
  done
  same "$(nm host_alpha | awk '$3 == "alpha" { print $1 }')" "$(nm host_omega | awk '$3 == "omega" { print $1 }')" "address of what is called"
  status "$luapulse" record --engine bpf -s -F 999 -o out.pb.gz -- sh -c 'for i in 1 2 3 4 5 6 7 8; do ./host_alpha; ./host_omega; done'
  same "$status" 0 "status: $(cat err)"
  for name in alpha omega; do
    "$luapulse" convert -w "comm=host_$name" -o out.folded out.pb.gz || fail "nothing of host_$name"
    stacks ";$name "
    ! grep -v "^#" out.folded | sed "s/;$name //" | grep -E ";(alpha|omega) " || fail "host_$name has a function of the other"
  done
}
# A kernel that lacks what the programs call, whatever its version: both commands say so in the same words, and the other engine serves.
test_a_kernel_that_is_too_old() {
  needs_bpf
  local why="this kernel is too old for the BPF program: it takes Linux 5.17"
  ${CC:-cc} -shared -fPIC -o old_kernel.so "$here/old_kernel.c" || fail "the old kernel does not compile"
  old() { LD_PRELOAD=$PWD/old_kernel.so "$@"; }
  start lua5.4 "$here/split.lua" plain
  until_printed ready
  status old "$luapulse" probe -p "$pid"
  same "$status" 0 "status of probe: $(cat err)"
  grep -qxE "  missing   kernel [0-9.]+: lacks bpf_loop, which came with 5\.17" out || fail "what is missing: $(cat out)"
  has out "  engine    ptrace: record stops threads for a moment; not bpf: $why"
  status old "$luapulse" record --engine bpf -p "$pid" -d 1 -o none.folded
  same "$status" 1 "status with engine bpf"
  same "$(cat err)" "luapulse record: $why" "message"
  [ ! -e none.folded ] || fail "a file was written"
  by_itself() {
    status old "$luapulse" record -p "$pid" -F 499 -o out.folded "$@"
    same "$status" 0 "status: $(cat err)"
  }
  until_seen "sampled 1" by_itself
  has err "with engine ptrace"
  has err "luapulse: not with engine bpf: $why"
}
# Every Lua that is known has a walker that this kernel's verifier lets pass (others: tests/machines); one that it does not is told of.
test_every_layout_is_verified() {
  needs_bpf
  local names luajit=luajit
  [ "$(uname -m)" != aarch64 ] || luajit=luajit_arm64
  names=$(cat "$root/src/walk/puc.layout" "$root/src/walk/$luajit.layout" | grep -c '^layout ')
  status "$root/$BUILD/tests/attach/verify"
  same "$status" 0 "status: $(cat out err)"
  same "$(grep -c '^verified ' out)" "$names" "layouts verified: $(cat out)"
  # this kernel may count otherwise than older ones, whose limit it is
  awk '{ bytes = $(NF - 3); if (bytes < 64 || bytes > 512) bad = 1 } END { exit bad }' out || fail "more stack than Linux 6.1 has, or it is not known: $(cat out)"
  status "$root/$BUILD/tests/attach/verify" --broken
  same "$status" 1 "status of one that is broken"
  same "$(sort -u out | wc -l)" 1 "messages for the same program: $(cat out)"
  has out "refused Lua 5.1-5.1.2: the verifier of this kernel ($(uname -r)) refuses the BPF program for Lua 5.1-5.1.2 ("
  grep -qE "\([^()]*(invalid|outside)[^()]*\): a fault of luapulse" out || fail "the verifier's reason: $(cat out)"
  has out "): a fault of luapulse, please report it; --engine ptrace works without"
}
# CAP_BPF, CAP_PERFMON and CAP_SYS_PTRACE are enough for the process of another user; what is missing is named.
test_three_capabilities_are_enough() {
  needs_bpf
  chmod 777 .
  cp "$luapulse" ./luapulse # where nobody else can go, it could not be run
  start lua5.4 "$here/split.lua" plain
  until_printed ready
  capable() {
    status with_capabilities ,+bpf,+perfmon,+sys_ptrace ./luapulse record --engine bpf -p "$pid" -F 499 -o capable.pb.gz "$@"
    same "$status" 0 "status with three capabilities: $(cat err)"
  }
  until_seen "sampled 1" capable
}
test_what_is_missing_is_named() {
  needs_bpf
  local paranoid
  paranoid=$(cat /proc/sys/kernel/perf_event_paranoid)
  chmod 777 . # what cannot be written is said before
  cp "$luapulse" ./luapulse
  start lua5.4 "$here/split.lua" plain
  until_printed ready
  refused() { # CAPABILITIES MESSAGE
    status with_capabilities "$1" ./luapulse record --engine bpf -p "$pid" -d 1 -o none.pb.gz
    same "$status" 1 "status with '$1'"
    same "$(cat err)" "luapulse record: $2" "message with '$1'"
    [ ! -e none.pb.gz ] || fail "a file was written with '$1'"
  }
  local run="(perf_event_paranoid is $paranoid); run: sudo luapulse record --engine bpf -p $pid -d 1 -o none.pb.gz"
  refused ,+bpf,+sys_ptrace "CAP_PERFMON is missing: no BPF program can read user memory $run"
  refused ,+perfmon,+sys_ptrace "CAP_BPF is missing: no BPF program can be loaded $run"
  refused ,+sys_ptrace "CAP_BPF and CAP_PERFMON are missing: no BPF program can be loaded $run"
  refused "" "CAP_BPF, CAP_PERFMON and CAP_SYS_PTRACE are missing: no BPF program can be loaded, and processes of other users cannot be read $run"
  refused ,+bpf "CAP_PERFMON and CAP_SYS_PTRACE are missing: no BPF program can read user memory, and processes of other users cannot be read $run"
  refused ,+perfmon "CAP_BPF and CAP_SYS_PTRACE are missing: no BPF program can be loaded, and processes of other users cannot be read $run"
  # with those for BPF it is the process that cannot be read
  status with_capabilities ,+bpf,+perfmon ./luapulse record --engine bpf -p "$pid" -d 1 -o none.pb.gz
  same "$status" 1 "status without CAP_SYS_PTRACE"
  same "$(sed 's/ in [0-9.]* s of/ of/' err)" "luapulse: recording 1 process at 99 Hz with engine bpf, for 1 s
luapulse record: process $pid (lua5.4) belongs to user 0, and you are user 65534: needs CAP_SYS_PTRACE; run: sudo luapulse record --engine bpf -p $pid -d 1 -o none.pb.gz
luapulse: 0 samples of 0 processes, 0 lost, 0 unattributed
luapulse record: nothing was recorded: nothing is written" "message without CAP_SYS_PTRACE"
  [ ! -e none.pb.gz ] || fail "a file was written without CAP_SYS_PTRACE"
  # chosen automatically, and said
  status with_capabilities ,+sys_ptrace ./luapulse record -p "$pid" -d 0.2 -o - -f folded
  has err "with engine ptrace"
  has err "not with engine bpf: CAP_BPF and CAP_PERFMON are missing: no BPF program can be loaded (perf_event_paranoid is $paranoid); run: sudo luapulse record -p $pid -d 0.2 -o - -f folded"
  # of a program that is started no right to read it is missing
  status with_capabilities "" ./luapulse record -o - -f folded -- lua5.4 -e 'print("it is", 1)'
  has err "not with engine bpf: CAP_BPF and CAP_PERFMON are missing: no BPF program can be loaded (perf_event_paranoid is $paranoid); run: sudo luapulse record -o - -f folded -- lua5.4 -e 'print(\"it is\", 1)'"
}
test_deep_stacks_are_cut() {
  needs_bpf
  deep_stacks_are_cut
}
# Which register has the pc is found out by steps of a loop, of which verifiers before Linux 6.7 look at the first alone.
test_lines_of_a_loop() {
  needs_bpf
  local runtime line
  for runtime in lua5.1 lua5.4 ${lua55:+$lua55}; do
    start $runtime "$here/lines.lua"
    until_printed ready
    until_seen "sampled 600" recorded -p "$pid" -F 999
    "$luapulse" report --lines -s samples out.pb.gz >lines || fail "no report"
    share_of_line() { awk -v line="lines.lua:$1" '$NF ~ line "$" { sub("%", "", $2); share = $2 * 10 } END { print int(share) }' lines; }
    for line in 6 7 8; do
      [ "$(share_of_line $line)" -gt $((2 * $(share_of_line 5))) ] || fail "$runtime: the line of the loop has more than half of line $line: $(cat lines)"
    done
    kill -KILL "$pid"
  done
}
# Threads with VMs of their own, a VM inside of another on one thread, and threads that begin and end meanwhile.
test_many_vms_and_threads() {
  needs_bpf
  local package i
  for package in lua5.1 lua5.4 ${gc32:+texluajit}; do
    ${CC:-cc} $(pkg-config --cflags $package) -o host "$here/threads_host.c" $(pkg-config --libs $package) -lpthread || fail "the host does not compile"
    start ./host
    until_printed ready
    until_seen "stacks work_1:1 && stacks work_2:1 && stacks work_3:1 && stacks inside:1" recorded -p "$pid" -F 499
    ! grep -q "outside.*;.*inside\|inside.*;.*outside" out.folded || fail "stacks of two VMs are one: $(cat out.folded)"
    kill -KILL "$pid"
    rm host
  done
}
# A thousand programs one after the other, each gone after some milliseconds, before its functions can be named: which is said, and
# nothing is made up. Now and then one stays for longer.
test_a_thousand_short_lived_targets() {
  needs_bpf
  recorded -s -F 999 -- bash -c 'for ((i = 0; i < 1000; i++)); do
    lua5.4 -e "local x = 0 for i = 1, $((i % 50 == 0 ? 20000000 : 100000)) do x = x + i end" || exit 1; done'
  [ "$(samples)" -gt 100 ] || fail "too little was seen: $(cat err)"
  nothing_is_invented
}

# Samples for which there is no room, because nobody takes them, are counted.
test_what_is_lost_is_counted() {
  needs_bpf
  local recorder lost=0
  start lua5.4 -e 'local function down(n) if n > 0 then return 1 + down(n - 1) end print "ready" io.flush() local x = 0 while true do x = x + 1 end end down(1000)'
  until_printed ready
  "$luapulse" record --engine bpf -p "$pid" -F 9999 -o out.pb.gz 2>err &
  recorder=$!
  wait_for eval 'ls -l "/proc/$recorder/fd" | grep perf_event'
  kill -STOP "$recorder"
  until_busy 90 # 16 MiB are 400 of these stacks
  kill -CONT "$recorder"
  kill -INT "$recorder"
  wait "$recorder"
  lost=$(sed -nE 's/.* ([0-9]+) lost.*/\1/p' err)
  [ "$lost" -gt 0 ] || fail "nothing was lost: $(cat err)"
  "$luapulse" report out.pb.gz | grep -qE "Lost +[0-9]+ samples could not be recorded" || fail "the profile does not tell: $("$luapulse" report out.pb.gz)"
}
# Where samples come faster than they can be read, it ends all the same when it is told to.
test_more_samples_than_can_be_read() {
  needs_bpf
  local others=() recorder
  while [ ${#others[@]} -lt 3 ]; do
    start lua5.4 "$here/new_stacks.lua"
    until_printed ready
    others+=("$pid")
  done
  "$luapulse" record --engine bpf -p "$(IFS=,; echo "${others[*]}")" -F 10000 -o out.folded 2>err &
  recorder=$!
  wait_for eval 'ls -l "/proc/$recorder/fd" | grep perf_event'
  until_busy 30
  kill -INT "$recorder"
  wait "$recorder" || fail "status: $(cat err)"
  grep -qE ', [1-9][0-9]* lost' err || fail "what was not read is not counted as lost: $(cat err)"
}
# What the kernel measures is told where it does, and nothing where it does not. The setting is everybody's: whoever else changes it meanwhile is
# no failure, other runs of this case wait, and it is put back whatever comes.
test_what_a_sample_takes_is_told() {
  needs_bpf
  local setting=/proc/sys/kernel/bpf_stats_enabled runtime targets=() lock
  [ -w $setting ] || skip "kernel.bpf_stats_enabled cannot be set"
  for runtime in lua5.4 luajit; do
    start $runtime "$here/split.lua" plain
    until_printed ready
    targets+=("$pid")
  done
  exec {lock}<$setting # after the targets, which would hold it, too
  flock -w 120 "$lock" || fail "something else has kernel.bpf_stats_enabled locked"
  before=$(cat $setting) # not local: the trap outlives the function
  trap 'echo "$before" >/proc/sys/kernel/bpf_stats_enabled; stop_all' EXIT
  told() { sed -nE 's/^luapulse: the program in the kernel took ([0-9]+\.[0-9]) us for a sample, and ([0-9]+) steps to verify$/\1 \2/p' err; }
  takes_time() { told | awk '$1 > 0 { any = 1 } END { exit !any }' || fail "what a sample takes is not told: $(cat err)"; }
  not_told() { [ -z "$(told)" ] || measured_by_others || fail "it is told what was not measured: $(cat err)"; }
  measured() { echo 1 >$setting && recorded -F 999 "$@"; }
  unmeasured() { echo 0 >$setting && recorded -F 999 "$@"; }
  measured_by_others() { [ "$(cat $setting)" != 0 ] || ls -l /proc/[0-9]*/fd 2>/dev/null | grep -q 'anon_inode:bpf-stats'; }
  for pid in "${targets[@]}"; do
    until_seen 'sampled 20 && takes_time' measured -p "$pid"
    told | awk '{ exit !($2 > 0 && $2 < 1000000) }' || fail "steps that no verifier goes: $(cat err)"
    until_seen 'sampled 20 && not_told' unmeasured -p "$pid" # again, for others may have measured for a moment: a fault tells it each time
  done
}

attach_main "$@"
