# record --all: every process with a Lua in it. In a PID namespace of the test's own, for others must not be looked into.
source "$(dirname "$0")/hosts.sh"

# alone SCRIPT: runs it where there are no processes but its own; they end with it
alone() {
  echo "$1" >script
  status unshare --mount --pid --mount-proc --fork env luapulse="$luapulse" here="$here" engine="$engine" seconds="${seconds:-}" bash script
  same "$status" 0 "status: $(cat out err)"
}

# -d SECONDS: from when all of them are sampled, which the recorder holds a descriptor for; to begin takes it long on a machine that is busy
record_all() {
  seconds=$2 alone '
    rm -f ready.*
    lua5.4 "$here/split.lua" plain >ready.1 &
    sleep 1000 &
    until [ -s ready.1 ]; do sleep 0.02; done
    [ $engine = bpf ] && held=perf_event || held=pidfd
    "$luapulse" record --engine $engine --all -F 299 -o out.pb.gz -o out.folded 2>said &
    recorder=$!
    until grep -q recording said; do sleep 0.02; done
    luajit "$here/split.lua" plain >ready.2 &
    (sleep 0.3; exec lua5.1 "$here/split.lua" plain >ready.3) & # another program first
    lua5.3 -e "os.execute([[sleep 0.7; exec lua5.2 $here/split.lua plain >ready.4]])" & # that was a Lua when it began
    until [ -s ready.2 ] && [ -s ready.3 ] && [ -s ready.4 ]; do sleep 0.02; done
    for i in {1..600}; do [ $(ls -l /proc/$recorder/fd | grep -c "$held") -ge 5 ] && break; sleep 0.1; done
    sleep $seconds
    kill -INT $recorder
    wait $recorder'
}
expect_all() {
  for name in lua5.4 luajit lua5.1 lua5.2; do
    "$luapulse" report --where "comm=$name" out.pb.gz >report 2>err || fail "nothing of $name: $(cat err)"
    has report burn
  done
}
test_those_that_run_and_those_that_begin() {
  for engine in $ENGINES ptrace; do
    until_seen expect_all record_all
    lacks said sleep
  done
}
test_none() {
  engine=bpf
  echo '"$luapulse" record --all -d 0.2 -o out.folded' >script
  status unshare --mount --pid --mount-proc --fork env luapulse="$luapulse" bash script
  same "$status" 1 "status"
  has err "recording every process with a Lua at 99 Hz"
  has err "luapulse record: no Lua was found: nothing is written"
  status "$luapulse" record --all -p 12
  same "$status" 2 "status of both"
  has err "either some processes (-p) or --all, not both"
  status "$luapulse" record --all -- true
  same "$status" 2 "status of both"
}
# 150 processes of one program are one file to read; memory is bounded. The file of the name says all.
record_150() {
  seconds=$2 alone '
    rm -f never ready.*
    mkfifo never
    sleep 1000 >never & # it is never written to
    for i in {1..150}; do lua5.4 -e "print(1) io.stdout:flush() io.read()" >ready.$i <never & done
    until [ "$(cat ready.* | wc -l)" = 150 ]; do sleep 0.05; done
    "$luapulse" record --all -d $seconds 2>said &
    recorder=$!
    while kill -0 $recorder 2>/dev/null; do
      cat /proc/$recorder/io >io.new 2>/dev/null && [ -s io.new ] && cp io.new io
      grep VmHWM /proc/$recorder/status >hwm.new 2>/dev/null && [ -s hwm.new ] && cp hwm.new hwm
      sleep 0.05
    done
    wait $recorder
    cat said >&2'
}
found() { [ "$(sed -nE 's/.* s of ([0-9]+) processes.*/\1/p' err)" -ge "$1" ] || fail "not all were found: $(cat err)"; }
test_many() {
  local read most
  engine=bpf
  until_seen "found 150" record_150
  has err "written to luapulse.all.pb.gz"
  # some files of a few MiB, and /proc of all again and again
  read=$(sed -n 's/^rchar: //p' io) most=$(sed -nE 's/.* samples in ([0-9]+)\.[0-9] s of .*/\1 * 2 + 34/p' err)
  [ "$read" -lt $((most << 20)) ] || fail "$read bytes were read, more than $((most << 20))"
  [ "$(awk '{ print $2 }' hwm)" -lt 102400 ] || fail "memory: $(cat hwm)"
}

attach_main "$@"
