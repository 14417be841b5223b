# Debug information of a target's file tells its layout before what is known does; what is wrong with it is no harm to who reads it.
source "$(dirname "$0")/attach.sh"

# host_with FILE [SED]: a host with Lua 5.4 and its debug information, the source changed so
host_with() {
  sed "${2:-}" "$here/debug_host.c" >"$1.c"
  ${CC:-cc} -g $(pkg-config --cflags lua5.4) -o "$1" "$1.c" -rdynamic -l:liblua5.4.a -lm -ldl || fail "the host does not compile"
}
probed() { # LUAPULSE: the process started last
  status "$1" probe -p "$pid"
  same "$status" 0 "status: $(cat err)"
  lacks err Sanitizer
  runs_on
}
layout_is() { grep -qE "^  layout +$1\$" out || fail "$(cat out)"; }
known='"Lua 5\.4\.3-5\.4\.9", known to LuaPulse'

# What is known of 5.4 is wrong in a copy of luapulse: then the debug information of the program tells, and without it a file that is given.
test_a_lua_that_is_not_known() {
  local known=$luapulse luapulse=$PWD/unknowing right='stacks "^main chunk [^;]*split.lua:[0-9]+.;[abc] [^;]*;burn [^;]*split.lua:"'
  LC_ALL=C sed '/^layout puc 5\.4 /,/CallInfo/ s/ ci=32 / ci=40 /' "$known" >unknowing
  chmod 755 unknowing
  ! cmp -s unknowing "$known" || fail "it knows all the same"
  host_with host
  "$luapulse" layout host -o own.layout || fail "no layout"
  strip -o stripped host
  start_split ./stripped -- plain
  kill -STOP "$pid" # it need not run meanwhile
  local without=$pid
  start_split ./host -- plain
  probed "$luapulse"
  layout_is '"Lua 5\.4\.[0-9]", by the debug information of its file'
  lacks out "  not " # nothing else was tried
  status "$luapulse" dump -p "$pid"
  same "$status" 0 "status: $(cat err)"
  has out "main chunk"
  # a file that is given alone is tried, also where the debug information would tell
  sed 's/ ci=32/ ci=40/' own.layout >wrong.layout
  status "$luapulse" dump -p "$pid" --layout wrong.layout
  same "$status" 1 "status of a wrong layout"
  has err "luapulse dump: no Lua that can be read in process $pid (host): Lua 5.4.4 is mapped there, but "
  status "$luapulse" dump -p "$without"
  same "$status" 1 "status without debug information"
  has err "luapulse dump: no Lua that can be read in process $without (stripped): Lua 5.4.4 is mapped there, but "
  has err "; \`luapulse layout\` makes a layout for a build that is not known"
  for engine in $(engines); do
    until_seen "$right" recorded -p "$pid" -F 499
    kill -CONT "$without"
    until_seen "$right" recorded -p "$without" -F 499 --layout own.layout
    kill -STOP "$without"
  done
}
# A file may call any other one its debug file, and where it has moved a part of it to: pipes are not opened, which would wait for a writer.
test_debug_links_to_pipes() {
  local link
  mkfifo pipe
  cp "$(readlink -f "$(command -v lua5.4)")" bare
  objcopy --remove-section .gnu_debuglink --remove-section .note.gnu.build-id bare
  printf 'pipe\0\0\0\0\1\2\3\4' >link
  printf '%s\0%s' "$PWD/pipe" 01234567890123456789 >alternative
  objcopy --add-section .gnu_debuglink=link bare linked || fail "no link"
  host_with host
  objcopy --add-section .gnu_debugaltlink=alternative host split || fail "no second link"
  start ./linked -e 'io.write("ready\n") io.flush() while true do end'
  until_printed ready
  probed "$luapulse"
  layout_is "$known"
  lacks out "debug information could not be read"
  status timeout 20 "$luapulse" layout linked
  same "$status" 1 "status of layout"
  status timeout 20 "$luapulse" layout split
  same "$status" 0 "status of layout, with a part elsewhere: $(cat err)"
}
test_debug_information_comes_first() {
  host_with host
  start_split ./host -- plain
  probed "$luapulse"
  layout_is "$known, and that of its file's debug information"
  lacks out "  not " # it was the first that was tried
  # in a file of its own, which is found by the name that the program has of it
  objcopy --only-keep-debug host host.debug && strip -o linked host && objcopy --add-gnu-debuglink=host.debug linked || fail "no debug link"
  start_split ./linked -- plain
  probed "$luapulse"
  layout_is "$known, and that of its file's debug information"
  # which is none of this program's any more
  echo 'int none;' | ${CC:-cc} -g -c -o host.debug -x c -
  probed "$luapulse"
  layout_is "$known"
}
# Names from tables need more than a walk: debug information that lacks it must not take it away.
test_debug_information_that_says_less() {
  host_with host '/^  Table \*table;$/d'
  "$luapulse" layout host -o own.layout || fail "no layout"
  lacks own.layout "Table"
  start_split ./host -- plain
  probed "$luapulse"
  layout_is "$known, and that of its file's debug information"
}
test_debug_information_that_is_wrong() {
  host_with host 's/^  CallInfo \*ci;/  void *more, *room; CallInfo *ci;/'
  start_split ./host -- plain
  probed "$luapulse"
  layout_is "$known"
  grep -qE '^  not +"Lua 5\.4\.[0-9]": ' out || fail "it was not tried: $(cat out)"
}
test_debug_information_without_lua() {
  host_with host '/^struct lua_State {$/,/^};$/d; /^struct {$/,/^} debug_shapes;$/d'
  start_split ./host -- plain
  probed "$luapulse"
  layout_is "$known"
  grep -qE '^  debug +its debug information has no Lua in it \(no struct lua_State\)' out || fail "why not: $(cat out)"
}
# Bytes of it are changed at random: whatever comes of it, the process is read.
test_debug_information_that_is_broken() {
  needs_sanitized
  local section seed
  host_with whole
  for section in .debug_info .debug_abbrev; do
    objcopy -O binary --only-section=$section --set-section-flags $section=alloc whole "part$section" || fail "no $section"
    for seed in 1 2 3; do
      awk -v seed=$seed -v size="$(stat -c %s "part$section")" 'BEGIN { srand(seed); for (i = 0; i < 40; i++) print int(rand() * size), int(rand() * 256) }' >changes
      cp "part$section" broken
      while read -r at byte; do
        printf "\\x$(printf %02x "$byte")" | dd of=broken bs=1 seek="$at" conv=notrunc 2>/dev/null
      done <changes
      objcopy --update-section $section=broken whole "host$section$seed" 2>/dev/null || fail "$section cannot be replaced"
      start_split "./host$section$seed" -- plain
      probed "$sanitized"
      layout_is "(\"Lua 5\.4\.[0-9]\", by the debug information of its file|$known(, and that of its file's debug information)?)"
      kill -KILL -- "-$pid"
    done
  done
}
# More of it than can be read in a moment: it is given up, in little memory, and what is known will do.
test_debug_information_without_end() {
  host_with whole
  perl -e 'print pack("VvVCC", 8, 4, 0, 8, 1) x 4000000' >endless # units that are empty
  objcopy --update-section .debug_info=endless whole host || fail "it cannot be replaced"
  rm endless
  start_split ./host -- plain
  probed "$luapulse"
  layout_is "$known"
  grep -qE '^  debug +its debug information could not be read within [0-9]+ s and [0-9]+ MiB$' out || fail "why not: $(cat out)"
}

attach_main "$@"
