# Debian's kernels know a perf_event_paranoid of 3, at which CAP_PERFMON counts for nothing: it is said, and engine ptrace serves.
source "$(dirname "$0")/../attach/attach.sh"

test_paranoid_3() {
  echo 3 >/proc/sys/kernel/perf_event_paranoid
  start lua5.4 "$here/split.lua" plain
  until_printed ready
  capable() {
    status setpriv --reuid=65534 --regid=65534 --clear-groups --inh-caps=-all,+bpf,+perfmon,+sys_ptrace \
      --ambient-caps=-all,+bpf,+perfmon,+sys_ptrace --bounding-set=-all,+bpf,+perfmon,+sys_ptrace "$luapulse" "$@"
  }
  local why="perf events may not be opened: perf_event_paranoid is 3, which permits it to CAP_SYS_ADMIN only; run: sudo luapulse record"
  chmod 777 .
  capable record --engine bpf -p "$pid" -d 1 -o none.folded
  same "$status" 1 "status with engine bpf"
  same "$(cat err)" "luapulse record: $why --engine bpf -p $pid -d 1 -o none.folded"
  any_engine() { capable record -p "$pid" -o out.folded "$@"; }
  until_seen 'sampled 1' any_engine
  has err "with engine ptrace"
  has err "not with engine bpf: $why -p $pid -o out.folded"
  capable probe -p "$pid"
  cat out err >told
  has told "perf_event_paranoid is 3: perf events need CAP_SYS_ADMIN; use sudo"
}

attach_main "$@"
