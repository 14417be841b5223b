# For the tests on real hosts: servers with settings of their own, on free ports of 127.0.0.1, in the folder of the test.
source "$(dirname "${BASH_SOURCE[0]}")/attach.sh"
PATH=$PATH:/usr/sbin:/sbin
ENGINES=${ENGINES:-bpf}

# free_port: one that nobody listens on, into $port. Two tests at once draw different ones nearly always; a server that
# cannot have its port is started again with another.
free_port() {
  local tries
  for ((tries = 0; tries < 100; tries++)); do
    port=$((20000 + (RANDOM * 32768 + RANDOM) % 12000))
    (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || return 0
  done
  fail "no free port"
}
listens() { (exec 3<>"/dev/tcp/127.0.0.1/${1:-$port}") 2>/dev/null; }

# samples_threads COUNT: the recorder started last, with engine bpf, has events on so many threads
samples_threads() { [ "$(ls -l "/proc/$pid/fd" | grep -c 'perf_event')" -ge "$1" ]; }
# on_top NAME: the function in which most time of all Lua functions was spent
on_top() {
  local top
  "$luapulse" report -n 0 out.pb.gz >report || fail "the profile cannot be read"
  top=$(awk '/^ *flat /{ on = 1; next } on && $6 !~ /^\[/ { print $6; exit }' report)
  [[ $top == $1 ]] || { cat report >&2; fail "on top is $top, expected $1"; }
}
# named_share: how many of a hundred Lua frames have a name other than their place, by the time spent in them
named_share() {
  grep -v '^#' "${1:-out.folded}" | awk '
    { value = $NF; sub(/ [0-9]+$/, ""); count = split($0, frames, ";")
      for (i = 1; i <= count; i++) {
        if (frames[i] ~ /^\[/ || frames[i] ~ /\(\[C\]/ || frames[i] !~ / \(.*:[0-9]+\)$/) continue
        all += value
        name = frames[i]; sub(/ \(.*:[0-9]+\)$/, "", name)
        if (name !~ /:[0-9]+$/) named += value
      } }
    END { printf "%.1f", (all > 0 ? named * 100 / all : 0) }'
}
