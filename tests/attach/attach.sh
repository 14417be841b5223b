# For the tests that look into live processes: what they start, they stop.
source "$(dirname "${BASH_SOURCE[0]}")/../cli/cli.sh"
here=$root/tests/attach
started=()
stop_all() {
  local pid
  for pid in "${started[@]}"; do kill -KILL -- "-$pid" 2>/dev/null; done
  [ -z "${folder:-}" ] || rm -rf "$folder"
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

# the engines that work here: what is only tried with the other one where there is no BPF is in test_record_bpf.sh
has_bpf() { "$luapulse" probe "$(command -v lua5.4)" 2>&1 | grep -q "^ *engine *bpf"; }
engines() { echo "${ENGINES:-$(has_bpf && echo bpf) ptrace}"; }

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
# until TEXT: waits until the process started last has printed it
until_printed() {
  local file=printed.$((${#started[@]} - 1)) i
  for ((i = 0; i < 500; i++)); do
    grep -qF -- "$1" "$file" && return
    read -rt 0.02 <> <(:)
  done
  cat "$file" >&2
  fail "'$1' was not printed"
}
# settled STATE: waits until the first thread of the process is in that state of the scheduler
until_state() {
  local i
  for ((i = 0; i < 500; i++)); do
    [ "$(sed 's/.*) //; s/ .*//' "/proc/$pid/stat" 2>/dev/null)" = "$1" ] && return
    read -rt 0.02 <> <(:)
  done
  fail "process $pid is not in state $1"
}
# waits until it has used the processor for some hundredths of a second from now on
until_busy() {
  local i used first
  first=$(awk '{ print $14 }' "/proc/$pid/stat")
  for ((i = 0; i < 500; i++)); do
    used=$(awk '{ print $14 }' "/proc/$pid/stat")
    [ "$used" -gt $((first + 2)) ] && return
    read -rt 0.02 <> <(:)
  done
  fail "process $pid is not busy"
}
# runs_on: the process still does what it did
runs_on() {
  [ "$(sed 's/.*) //; s/ .*//' "/proc/$pid/stat")" != t ] || fail "process $pid is left in a tracing stop"
  same "$(sed -n 's/^TracerPid:\t//p' "/proc/$pid/status")" 0 "tracer of process $pid"
}
# stack_of TITLE FILE: names and places below a line that contains the title, addresses and folders taken off
stack_of() {
  awk -v title="$1" 'index($0, title) && /^  [a-z]/ { on = 1; next } on && /^    / { print $0; next } { on = 0 }' "$2" |
    sed -E 's/^ +//; s/ +/ /g; s|[^ ]*/||g'
}
