# Yama's ptrace_scope in the way of luapulse: what works all the same, and what is said of what does not.
source "$(dirname "$0")/../attach/attach.sh"

# scope N: of the kernel, from now on; 3 is for ever
scope() { echo "$1" >/proc/sys/kernel/yama/ptrace_scope || fail "ptrace_scope cannot be set to $1"; }
nobody=(setpriv --reuid 65534 --regid 65534 --clear-groups --bounding-set -all --inh-caps -all)
start_own() {
  chmod 777 .
  start "${nobody[@]}" lua5.4 "$here/split.lua" plain
  until_printed ready
}
refused() { # MESSAGE COMMAND…
  local message=$1
  shift
  status "$@"
  same "$status" 1 "status of $*: $(cat out err)"
  has err "$message"
}

test_at_scope_0_own_processes() {
  scope 0
  start_own
  owned() { status "${nobody[@]}" "$luapulse" record -p "$pid" -o out.folded "$@"; }
  until_seen 'sampled 1' owned
  has err "with engine ptrace"
  status "${nobody[@]}" "$luapulse" probe -p "$pid"
  has out "Yama's ptrace_scope is 0: own processes can be read"
}
test_at_scope_1_children() {
  scope 1
  start_own
  refused "process $pid (lua5.4) is yours, but Yama's ptrace_scope is 1, which permits to read children only: needs CAP_SYS_PTRACE; run: sudo luapulse record -p $pid -d 1 -o none.folded" \
    "${nobody[@]}" "$luapulse" record -p "$pid" -d 1 -o none.folded
  refused "needs CAP_SYS_PTRACE; run: sudo luapulse dump -p $pid" "${nobody[@]}" "$luapulse" dump -p "$pid"
  refused "CAP_BPF, CAP_PERFMON and CAP_SYS_PTRACE are missing: no BPF program can be loaded, and Yama's ptrace_scope is 1, which permits to read children only (perf_event_paranoid is $(cat /proc/sys/kernel/perf_event_paranoid)); run: sudo luapulse record --engine bpf -p $pid" \
    "${nobody[@]}" "$luapulse" record --engine bpf -p "$pid"
  # with the right to, it does not matter
  engine=bpf
  until_seen 'sampled 1' recorded -p "$pid"
  # and a program that is started is a child
  child() { status "${nobody[@]}" "$luapulse" record -o out.folded "$@" -- lua5.4 -e 'local x = 0 for i = 1, 3e7 do x = x + i end'; }
  until_seen 'sampled 1' child
  has err "with engine ptrace"
}
test_at_scope_2_the_privileged() {
  scope 2
  start_own
  refused "process $pid (lua5.4) cannot be read: Yama's ptrace_scope is 2, which permits it to CAP_SYS_PTRACE only; run: sudo luapulse record -p $pid -d 1 -o none.folded" \
    "${nobody[@]}" "$luapulse" record -p "$pid" -d 1 -o none.folded
  for engine in bpf ptrace; do until_seen 'sampled 1' recorded -p "$pid"; done
}
# The last one: there is no way back.
test_at_scope_3_nobody() {
  scope 3
  start_own
  refused "process $pid (lua5.4) cannot be read: Yama's ptrace_scope is 3, which permits it to nobody; it can be changed only by a reboot" \
    "$luapulse" record -p "$pid" -d 1 -o none.folded
  refused "it can be changed only by a reboot" "$luapulse" dump -p "$pid"
  refused "it can be changed only by a reboot" "$luapulse" probe -p "$pid"
  status "$luapulse" probe "$(command -v lua5.4)"
  has out "Yama's ptrace_scope is 3: nothing can be read"
  runs_on
}

attach_main "$@"
