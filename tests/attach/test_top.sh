# luapulse top: in a real terminal (tmux) every key, resizes, the targets' end, and how it leaves the terminal; as plain text elsewhere.
source "$(dirname "$0")/attach.sh"
ENGINES=${ENGINES:-bpf ptrace}
export LC_ALL=C.UTF-8
unset TMUX
terminals=0
tmux=()
stop_terminal() {
  [ ${#tmux[@]} -eq 0 ] || "${tmux[@]}" kill-server 2>/dev/null
  stop_all
}
trap stop_terminal EXIT

# terminal COLUMNS ROWS COMMAND: in a terminal of that size; when it ends, "status N" is shown and a shell's cat goes on
terminal() {
  [ ${#tmux[@]} -eq 0 ] || "${tmux[@]}" kill-server 2>/dev/null
  tmux=(tmux -S "$folder/terminal$((++terminals))" -f /dev/null -u) # a server of its own: the last one may still be going
  printf 'stty -a >before\n%s\nstatus=$?\nstty -a >after\necho "status $status"\nexec cat\n' "$3" >commands
  "${tmux[@]}" new-session -d -x "$1" -y "$2" "cd '$folder' && exec bash commands 2>stderr"
}
screen() { "${tmux[@]}" capture-pane -p; }
state() { "${tmux[@]}" display-message -p "$1"; }
key() { "${tmux[@]}" send-keys "$@"; }
# until_screen EXPRESSION: waits until the screen has a line that fits
shows() { screen >shown && grep -qE -- "$1" shown; }
until_screen() {
  in_time shows "$1" && return
  cat shown stderr >&2
  fail "'$1' does not come up"
}
until_not() {
  in_time eval '! shows "$1"' && return
  cat shown >&2
  fail "'$1' does not go"
}
# top ARGUMENTS…: as plain text, and it must work
top_it() {
  status "$luapulse" top "$@"
  same "$status" 0 "status of top $*: $(cat err)"
}
# what the terminal was is what it is: settings, cursor, the ordinary screen
left_sane() {
  until_screen "^status $1\$"
  sed -i -E 's/rows [0-9]+; columns [0-9]+;//' before after # of which resizes are the cause
  cmp -s before after || { diff before after >&2; fail "the terminal's settings are others"; }
  same "$(state '#{cursor_flag}')" 1 "cursor"
  same "$(state '#{alternate_on}')" 0 "alternate screen"
  same "$(state '#{keypad_flag}')" 0 "keypad mode"
}
start_split() {
  start "$@"
  until_printed ready
}
numbers=' +[0-9.]+ +[0-9.]+ +[0-9.]+ +[0-9.]+ +[0-9.]+ +[0-9.]+  '

test_keys() {
  local engine name
  for engine in $ENGINES; do
    start_split luajit "$here/split.lua" plain
    terminal 120 30 "'$luapulse' top --engine $engine -p $pid -d 0.3"
    until_screen "^luapulse top  process $pid \(luajit\) .*engine $engine, 99 Hz"
    until_screen "^[0-9.]+ samples/s, [0-9]+ % of a processor, 0 lost, [0-9]+ unattributed"
    until_screen "^functions, by self, of late"
    until_screen "^${numbers}burn +.*split.lua:8"
    same "$(state '#{cursor_flag} #{alternate_on}')" "0 1" "cursor and alternate screen"
    key s
    until_screen "^functions, by total, of late"
    until_screen "^${numbers}c +.*split.lua:15"
    key s
    until_screen "^functions, by name, of late"
    for name in a b c burn; do until_screen "^${numbers}$name  "; done
    same "$(sed -nE "s/^${numbers}([abc]|burn)  .*/\1/p" shown | paste -sd,)" a,b,burn,c "order of names"
    key s
    until_screen "^functions, by self, of late"
    key l
    until_screen "^lines, by self, of late"
    until_screen "^${numbers}main chunk +.*split.lua:3[0-9]"
    key l
    until_screen "^functions, by self"
    key a
    until_screen "^functions, by self, since the beginning"
    key a
    until_screen "^functions, by self, of late"
    key '?'
    until_screen "^  r +reset: begin anew"
    until_screen "^any key goes back"
    key x
    until_screen "^q quit  s sort"
    key q
    left_sane 0
    runs_on
    kill -KILL "$pid"
  done
}
test_tree() {
  start_split lua5.4 "$here/split.lua" plain
  terminal 120 30 "'$luapulse' top -p $pid -d 0.3"
  until_screen "^${numbers}burn "
  key t
  until_screen "^functions as a call tree, by total"
  until_screen "^${numbers}( *)▾ a +.*split.lua:13"
  until_screen "^${numbers} +burn +.*split.lua:8"
  # closed at the root, nothing else is there; and opened again
  key Home Left
  until_screen " 1-1 of 1\$"
  until_screen "▸"
  until_not "split.lua:13"
  key Right
  until_screen "▾ a +.*split.lua:13"
  key Enter
  until_screen " 1-1 of 1\$"
  key +
  until_screen "▾ a +.*split.lua:13"
  key -
  until_screen " 1-1 of 1\$"
  key Enter Down Enter Down Enter
  until_screen "^${numbers} +burn +.*split.lua:8"
  # what is selected stays so, also up to who called it
  key Left Left
  until_not "▾ a "
  key t
  until_screen "^functions, by self"
  key q
  left_sane 0
  kill -KILL "$pid"
}
test_filter() {
  start_split lua5.4 "$here/split.lua" plain
  terminal 100 24 "'$luapulse' top -p $pid -d 0.3"
  until_screen "^${numbers}burn "
  key /
  key BuRx
  until_screen "filter: BuRx_"
  until_screen "nothing fits the filter"
  key BSpace
  until_screen "^${numbers}burn "
  until_not "^${numbers}main chunk"
  key q # a letter of the pattern, here
  until_screen "filter: BuRq_"
  key BSpace Enter
  until_screen "filter: BuR\$"
  # in the tree, who called it is shown as well
  key t
  until_screen "^${numbers} *▾ main chunk"
  key t Escape
  until_screen "^${numbers}main chunk"
  until_not "filter:"
  key q
  left_sane 0
  kill -KILL "$pid"
}
test_freeze_and_reset() {
  start_split lua5.4 "$here/split.lua" plain
  terminal 100 24 "'$luapulse' top -p $pid -d 0.2"
  until_screen "^${numbers}burn "
  key f
  until_screen " FROZEN"
  key a # whatever is drawn now stands still
  until_screen "since the beginning"
  key a
  until_screen "of late"
  screen >first
  until_busy
  until_busy
  screen >second
  cmp -s first second || { diff first second >&2; fail "the view moves though it is frozen"; }
  key f
  until_not FROZEN
  # what is gone is gone after a reset: the program is stopped, so nothing comes anew
  key a
  until_screen "since the beginning"
  kill -STOP "$pid"
  until_state T
  until_screen "^0.0 samples/s"
  key r
  until_screen "no samples: no processor time is used"
  kill -CONT "$pid"
  until_screen "^${numbers}burn "
  key q
  left_sane 0
  kill -KILL "$pid"
}
test_scrolling_and_resizes() {
  local i
  { for ((i = 10; i < 60; i++)); do echo "local function f$i(n) local x = 0 for i = 1, n do x = x + i end return x end"; done
    echo 'io.write("ready\n") io.flush() while true do'
    for ((i = 10; i < 60; i++)); do echo "f$i(2e5)"; done
    echo end; } >many.lua
  start_split lua5.4 many.lua
  terminal 100 14 "'$luapulse' top -p $pid -d 0.3 -F 999"
  until_screen "of 52\$" # all of them, the main chunk, and the C function below
  key s s # by name: a steady order
  until_screen "by name"
  until_screen "^${numbers}f10 "
  until_screen " 1-9 of 52\$"
  key Down Down
  until_screen " 3-11 of 52\$"
  key Up
  until_screen " 2-10 of 52\$"
  key PageDown
  until_screen " 11-19 of 52\$"
  key PageUp Home
  until_screen " 1-9 of 52\$"
  key End
  until_screen " 44-52 of 52\$"
  key g j k G
  until_screen " 44-52 of 52\$"
  "${tmux[@]}" resize-window -x 70 -y 30
  until_screen " 28-52 of 52\$"
  until_screen "^luapulse top .*engine .* Hz\$"
  "${tmux[@]}" resize-window -x 160 -y 60
  until_screen " 1-52 of 52\$"
  "${tmux[@]}" resize-window -x 20 -y 4 # too small for anything, and no reason to fall
  until_not " of 52\$"
  "${tmux[@]}" resize-window -x 100 -y 24
  until_screen "^${numbers}f[0-9]+ .*many.lua:"
  key q
  left_sane 0
  kill -KILL "$pid"
}
test_signals_leave_the_terminal_sane() {
  local how top
  start_split lua5.4 "$here/split.lua" plain
  for how in C-c TERM HUP; do
    terminal 100 24 "'$luapulse' top -p $pid -d 0.3"
    until_screen "^${numbers}burn "
    top=$(pgrep -f "^$luapulse top -p $pid")
    if [ $how = C-c ]; then key C-c; else kill -$how "$top"; fi
    left_sane 0
  done
  runs_on
  kill -KILL "$pid"
}
# Suspended, it leaves the terminal as it was; and comes back.
test_suspended() {
  start_split lua5.4 "$here/split.lua" plain
  terminal 100 24 "bash --norc --noprofile -i 2>/dev/tty"
  key "stty -a >before; PS1='ready> '" Enter
  until_screen "^ready>"
  key "'$luapulse' top -p $pid -d 0.3" Enter
  until_screen "^${numbers}burn "
  key C-z
  until_screen "Stopped .*luapulse"
  key "stty -a >after; status=0; echo status 0" Enter
  left_sane 0
  key fg Enter
  until_screen "^${numbers}burn "
  key q
  until_not "^luapulse top"
  key exit Enter
  kill -KILL "$pid"
}
test_the_target_ends() {
  start_split lua5.4 "$here/split.lua" plain
  terminal 100 24 "'$luapulse' top -p $pid -d 0.3"
  until_screen "^${numbers}burn "
  kill -KILL "$pid"
  until_screen "process $pid \(lua5.4\) has ended  q quits"
  key s
  until_screen "^functions, by total"
  until_screen "^${numbers}burn " # what was seen stays
  key q
  left_sane 0
  start_split lua5.4 "$here/split.lua" plain
  terminal 100 24 "'$luapulse' top -p $pid -d 0.3 --exit"
  until_screen "^${numbers}burn "
  kill -KILL "$pid"
  left_sane 0
}
test_rounds_end_it() {
  start_split lua5.4 "$here/split.lua" plain
  terminal 100 24 "'$luapulse' top -p $pid -d 0.2 -n 3"
  left_sane 0
  kill -KILL "$pid"
}
# Failures are said on the ordinary screen.
test_failures() {
  start_sleep
  terminal 160 24 "'$luapulse' top -p $pid 2>&1"
  until_screen "^luapulse top: no Lua in process $pid \(sleep\)"
  left_sane 1
  terminal 160 24 "'$luapulse' top -p 4194300 2>&1"
  until_screen "^luapulse top: there is no process 4194300"
  left_sane 1
  # a terminal that cannot: text
  start_split lua5.4 "$here/split.lua" plain
  terminal 160 24 "TERM=dumber-than-dumb '$luapulse' top -p $pid -n 1 -d 0.3 2>&1"
  until_screen "round 1, process $pid"
  left_sane 0
  kill -KILL "$pid"
}
# No other character set than ASCII: nothing else is written.
test_plain_terminals() {
  start_split lua5.4 "$here/split.lua" plain
  terminal 100 24 "LC_ALL=C '$luapulse' top -p $pid -d 0.3"
  until_screen "^${numbers}burn "
  key t
  until_screen "^${numbers} *- main chunk"
  ! LC_ALL=C grep -q '[^ -~]' shown || { cat -v shown >&2; fail "characters that are not in ASCII"; }
  key q
  left_sane 0
  kill -KILL "$pid"
}
# Names of functions and files cannot drive the terminal.
test_hostile_names() {
  printf 'local f = load("io.write(\\"ready\\\\n\\") io.flush() local x = 0 while true do x = x + 1 end", "=evil\\27]0;owned\\7\\27[2J")\nf()\n' >evil.lua
  start_split lua5.4 evil.lua
  terminal 120 24 "'$luapulse' top -p $pid -d 0.3"
  until_screen 'evil\\x1b\]0;owned\\x07\\x1b\[2J'
  until_screen "^luapulse top"
  key q
  left_sane 0
  kill -KILL "$pid"
}
# by self: burn has nearly all of it, and stands first
burn_is_on_top() {
  same "$(grep -cE "^${numbers}burn +.*split.lua:8\$" out)" 3 "rows of burn"
  awk '/self%/ { getline; if ($7 != "burn" || $1 < 90) exit 1 }' out || { cat out >&2; fail "burn is not on top"; }
}
test_plain_text() {
  local engine runtime
  for engine in $ENGINES; do
    for runtime in lua5.1 lua5.4 luajit $gc32; do
      [[ $engine != ptrace || $runtime == lua5.4 ]] || continue # the view is the same
      start_split $runtime "$here/split.lua" plain
      until_seen burn_is_on_top top_it --engine $engine -p "$pid" -n 3 -F 199
      same "$(grep -cE "^[0-9:]{8} round [123], process $pid \($runtime\), engine $engine, 199 Hz\$" out)" 3 "rounds"
      same "$(grep -cE "^[0-9.]+ samples/s, .* lost, .* unattributed" out)" 3 "second lines"
      same "$(grep -cE "^  self%   self/s     now total%  total/s     now  function\$" out)" 3 "heads"
      ! grep -q $'\033' out || fail "control characters in plain text"
      runs_on
      kill -KILL "$pid"
    done
  done
}
# Each row's rates are shares of the rates of all, and self never more than total.
test_figures_agree() {
  start_split lua5.4 "$here/split.lua" plain
  until_seen 'same "$(grep -cE "^${numbers}burn " out)" 4 "rounds with samples"' top_it -p "$pid" -n 4 -F 499 --rows 0
  awk '
    / samples\/s, / { now = $1 }
    /self%/ { rows = 1; self = 0; next }
    /^$/ { if (rows && (self < 99 || self > 101)) { print "self shares make", self; exit 1 }; rows = 0 }
    rows { self += $1; if ($1 > $4 + 0.11 || $2 > $5 + 0.11 || $3 > $6 + 0.11) { print "self above total:", $0; exit 1 }
           if ($6 > now + 0.11) { print "more than all:", $0, now; exit 1 } }' out || { cat out >&2; fail "the figures do not agree"; }
  kill -KILL "$pid"
}
test_plain_text_ends() {
  start_split lua5.4 "$here/split.lua" plain
  local target=$pid
  start "$luapulse" top -p "$target" -d 0.3
  until_printed "round 1"
  kill -KILL "$target"
  until_printed "process $target (lua5.4) has ended"
  until_gone
  start_split lua5.4 "$here/split.lua" plain
  target=$pid
  start "$luapulse" top -p "$target" -d 0.3
  until_printed "round 2"
  kill -INT "$pid"
  until_gone
  pid=$target
  runs_on
  # several, one of them is none
  start_split luajit "$here/split.lua" plain
  status "$luapulse" top -p "$target,$pid,4194300" -d 0.3 -n 2
  same "$status" 1 "status"
  has err "there is no process 4194300"
  has out "3 processes: $target (lua5.4), $pid (luajit), 4194300 (gone)"
  kill -KILL "$pid" "$target"
  # nobody reads it any more
  start_split lua5.4 "$here/split.lua" plain
  "$luapulse" top -p "$pid" -d 0.2 2>err | head -1 >out
  has out "round 1"
  kill -KILL "$pid"
}
expect_both() {
  grep -qE "^${numbers}coroutine.wrap" out && grep -qE "^${numbers}burn .*split.lua:8" out || { cat out >&2; fail "something is missing"; }
}
# where there are no others
of_all() {
  status unshare --mount --pid --mount-proc --fork bash -c "
    lua5.4 '$here/split.lua' plain >ready.1 & luajit '$here/split.lua' coroutines >ready.2 &
    until [ -s ready.1 ] && [ -s ready.2 ]; do sleep 0.02; done
    '$luapulse' top --all -n 2 -F 299 --rows 0 $*"
  same "$status" 0 "status: $(cat err)"
}
test_every_process() {
  until_seen expect_both of_all
  grep -qE "round 2, every process with Lua, 2 now" out || { cat out err >&2; fail "the head does not tell"; }
}
# Children come under the view with -s.
test_children_are_followed() {
  start_split lua5.4 "$here/split.lua" fork 100000 "exec luajit $here/split.lua coroutines 100000"
  until_seen 'grep -qE "^${numbers}coroutine" out || { cat out >&2; fail "nothing of the child"; }' top_it -s -p "$pid" -n 3
  kill -KILL -- "-$pid"
}
# Functions that come and go for good: the view's memory is bounded.
test_memory() {
  start lua5.4 -e 'print("ready") io.flush() local n = 0 while true do n = n + 1 local f = load("local x = 0 for i = 1, 3e4 do x = x + i end", "=chunk" .. n) f() end'
  until_printed ready
  "$luapulse" top -p "$pid" -d 0.2 -n 15 -F 2999 >out 2>err &
  local top=$! most=0 now
  while now=$(sed -n 's/^VmRSS:\t *\([0-9]*\) kB/\1/p' /proc/$top/status 2>/dev/null) && [ -n "$now" ]; do
    [ "$now" -le "$most" ] || most=$now
    pause
  done
  wait $top || fail "status: $(cat err)"
  [ "$most" -gt 0 ] && [ "$most" -lt 102400 ] || fail "it took $most kB"
  kill -KILL "$pid"
}
test_standard_output_that_cannot_be_written() {
  start lua5.4 "$root/tests/attach/split.lua" plain
  until_printed ready
  "$luapulse" top -p "$pid" -d 0.3 -n 2 >/dev/full 2>err
  same $? 1 "status with a full disk"
  same "$(grep -v "^luapulse: " err)" "luapulse top: standard output: cannot be written: No space left on device" "message"
  "$luapulse" top -p "$pid" -d 0.3 -n 2 >&- 2>err
  same $? 1 "status with a closed one"
  same "$(grep -v "^luapulse: " err)" "luapulse top: standard output: cannot be written: Bad file descriptor" "message"
  kill -KILL "$pid"
}
# Where the cursor cannot be addressed, and where nothing is known of the terminal.
test_terminals_that_cannot_be_drawn_on() {
  local name
  start_split lua5.4 "$here/split.lua" plain
  for name in dumb no-such-terminal ""; do
    TERM=$name script -qec "stty -a >before; '$luapulse' top -p $pid -d 0.3 -n 2; echo status \$?; stty -a >after" shown >/dev/null </dev/null
    same "$(grep -acE '^[0-9:]+ round [12], process' shown)" 2 "rounds with TERM=$name: $(cat -v shown)"
    grep -aqE "^${numbers}burn +.*split.lua:8" shown || fail "no table with TERM=$name: $(cat -v shown)"
    has shown "status 0"
    sed 's/\r$//' shown | grep -aq $'[\r\033]' && fail "it is drawn with TERM=$name: $(cat -v shown)"
    cmp before after || fail "the terminal's settings are others"
  done
  kill -KILL "$pid"
}
test_usage() {
  has_help top
  usage() { misused top "$@"; }
  usage "what to look at is missing: -p PID, or --all"
  usage "either some processes (-p) or --all, not both" -p 1 --all
  usage "--pid takes the numbers of processes" -p x
  usage "--rate takes a number from 1 to 10000, not '0'" -F 0 -p 1
  usage "--delay takes seconds from 0.1 to 3600, not '0'" -d 0 -p 1
  usage "--rounds takes a number, not 'x'" -n x -p 1
  usage "--rows takes a number, not 'x'" --rows x -p 1
  usage "--engine takes auto, bpf or ptrace, not 'magic'" --engine magic -p 1
  usage "'lua5.4' is one too many" -p 1 lua5.4
}

attach_main "$@"
