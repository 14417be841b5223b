# luapulse layout: it says what the compiler says, for Luas that never were; and how it refuses.
source "$(dirname "$0")/cli.sh"

# fixture NAME FLAGS…: compiles a made-up Lua
fixture() {
  local name=$1
  shift
  ${CC:-cc} -g -Wl,--build-id -o "$name" "$root/tests/cli/layout_fixture.c" "$@" || fail "the fixture does not compile"
}
# STRUCT.field=number, one to a line, sorted
fields() { awk '/^  / { for (i = 2; i <= NF; i++) print $1 "." $i }' "$1" | grep -vE '^(tag|cframe|callstatus)\.' | sort; }
build_id() { readelf -n "$1" | sed -n 's/.*Build ID: //p'; }

says_what_the_compiler_says() { # HEAD FLAGS…
  local head=$1
  shift
  fixture lua "$@"
  status "$luapulse" layout lua
  same "$status" 0 "status: $(cat err)"
  same "$(head -n 1 out)" "# lua, build-id $(build_id lua)" "first line"
  same "$(sed -n 2p out)" "layout $head" "second line"
  ./lua | sort >expected
  fields out | diff expected - || fail "'$*': the compiler (<) and the command (>) differ"
}
test_shape_of_5_1() {
  says_what_the_compiler_says 'puc 5.1 "Lua 5.1 of lua"' -DSHAPE=51
  has out "  tag thread=8 proto=9 lua=6 c=6 bytes=4"
}
test_shape_of_5_4() {
  says_what_the_compiler_says 'puc 5.4 "Lua 5.4 of lua"' -DSHAPE=54 -DPAD=3
  has out "  tag thread=8 proto=10 lua=70 c=102 light=22 bytes=1"
}
test_shape_of_5_5() {
  says_what_the_compiler_says 'puc 5.5 "Lua 5.5 of lua"' -DSHAPE=55 -DPAD=200
}
# in which bits of callstatus a finalizer and a tail call show
test_bits_of_callstatus() {
  says_what_the_compiler_says 'puc 5.4 "Lua 5.4 of lua"' -DSHAPE=54
  has out "  callstatus fin=7 tail=5"
  says_what_the_compiler_says 'puc 5.4 "Lua 5.4 of lua"' -DSHAPE=54 -DSTACKSIZE
  has out "  callstatus fin=6 tail=4"
  says_what_the_compiler_says 'puc 5.5 "Lua 5.5 of lua"' -DSHAPE=55 -DSTATUS=uint32_t
  has out "  callstatus fin=24 tail=22"
  for flags in "-DSHAPE=51" "-DSHAPE=54 -DSTATUS=byte_t"; do
    fixture lua $flags
    "$luapulse" layout lua >out || fail "status"
    if grep "fin=" out; then fail "a bit that $flags has not"; fi
  done
}
test_shape_of_luajit() {
  says_what_the_compiler_says 'luajit 5.1 "LuaJIT, GC64 of lua"' -DSHAPE=21 -DREF_BITS=64
  has out "  cframe L=16 pc=24 prev=32 nres=8"
  says_what_the_compiler_says 'luajit 5.1 "LuaJIT, GC32 of lua"' -DSHAPE=21 -DREF_BITS=32 -DPAD=77
  has out "  cframe L=24 pc=28 prev=32 nres=16"
  says_what_the_compiler_says 'luajit 5.1 "LuaJIT, GC64 of lua"' -DSHAPE=21 -DREF_BITS=64 -DSTRHASH
}
test_every_way_debug_information_is_written() {
  local flags
  for flags in "-gdwarf-2 -gstrict-dwarf" -gdwarf-3 -gdwarf-4 -gdwarf-5 "-gdwarf-5 -fdebug-types-section" -gsplit-dwarf "-flto -O2"; do
    says_what_the_compiler_says 'puc 5.4 "Lua 5.4 of lua"' -DSHAPE=54 $flags
  done
}
test_text_of_version() {
  says_what_the_compiler_says 'puc 5.4 "Lua 5.4.77 of lua"' -DSHAPE=54 -DTEXT='"$LuaVersion: Lua 5.4.77  Copyright"'
  says_what_the_compiler_says 'puc 5.1 "Lua 5.1.9 of lua"' -DSHAPE=51 -DTEXT='"$Lua: Lua 5.1.9 Copyright"'
  says_what_the_compiler_says 'luajit 5.1 "LuaJIT 2.1.0-x, GC64 of lua"' -DSHAPE=21 -DREF_BITS=64 -DTEXT='"LuaJIT 2.1.0-x"'
}
test_separate_debug_file() {
  fixture lua -DSHAPE=54
  "$luapulse" layout lua | tail -n +3 >whole
  objcopy --only-keep-debug lua apart.debug
  strip lua
  refused 1 "/usr/lib/debug/.build-id/$(build_id lua | sed 's|^..|&/|').debug is not there" layout lua
  has err "-dbgsym"
  objcopy --add-gnu-debuglink=apart.debug lua
  "$luapulse" layout lua | tail -n +3 | cmp - whole || fail "by debug link"
  "$luapulse" layout apart.debug | tail -n +3 | cmp - whole || fail "the debug file itself"
}
test_structures_of_the_same_name_that_are_not_lua() {
  printf '%s\n' 'struct Proto { int port; } a_proto; union TString { int x; } a_string;' \
    'typedef struct { char *who; } CallInfo; CallInfo a_call; struct lua_State; struct lua_State *opaque;' >other.c
  says_what_the_compiler_says 'puc 5.1 "Lua 5.1 of lua"' -DSHAPE=51 other.c
}
# the reader of layouts, as a program
test_output_reads_back() {
  cat >reader.c <<'C'
#include <stdio.h>
#include "walk/layout.h"
int main(void) {
  static char text[65536], again[65536];
  size_t len = fread(text, 1, sizeof text, stdin), at = 0;
  layout_t layout;
  layout_error_t error;
  if (!layout_parse(text, len, &at, &layout, &error)) return puts(error.text), 1;
  layout_print(&layout, again, sizeof again);
  return fputs(again, stdout) < 0 || layout_parse(text, len, &at, &layout, &error) || error.text[0] != '\0';
}
C
  ${CC:-cc} -std=gnu11 -I"$root/src" -o reader reader.c "$root/src/walk/layout.c" || fail "the reader does not compile"
  for shape in 51 54 55 21; do
    fixture lua -DSHAPE=$shape -DREF_BITS=64
    "$luapulse" layout lua >out || fail "status"
    ./reader <out >again || fail "shape $shape is not read back: $(cat again)"
    grep -v '^#' out | cmp - again || fail "shape $shape reads back as another"
  done
  # a name that would break out of the comment and of the quotes
  local name=$'two"\nlayout'
  cp lua "$name"
  "$luapulse" layout "$name" >out || fail "status"
  ./reader <out >again || fail "a hostile name: $(cat out again)"
}

refused() { # STATUS TEXT ARGUMENTS…
  local expected=$1 text=$2
  shift 2
  status "$luapulse" "$@"
  same "$status" "$expected" "status of $*"
  has err "$text"
  [ ! -s out ] || fail "$* wrote: $(cat out)"
  [ ! -e result.layout ] || fail "$* wrote a file"
}
test_refusals() {
  fixture lua -DSHAPE=54 -DWITHOUT_JUMP
  refused 1 "does not say lua_State.errorJmp" layout lua -o result.layout
  fixture lua -DSHAPE=54 -DTEXT='"$LuaVersion: Lua 5.2.4"'
  refused 1 "says it is Lua 5.2.4, but its structures are those of 5.4" layout lua -o result.layout
  fixture lua -DSHAPE=51 -DPAD=70000
  refused 1 "which no layout can say" layout lua
  fixture lua -DSHAPE=54 -g0
  refused 1 "lua: has no debug information (.debug_info)" layout lua -o result.layout
  fixture lua -DSHAPE=54 -g0 -Wl,--build-id=none
  refused 1 "no build-id to find it by; install its -dbgsym package, or build it with -g" layout lua
  echo 'int main(void) { return 0; }' >none.c
  ${CC:-cc} -g -o none none.c
  refused 1 "none: its debug information has no Lua in it" layout none -o result.layout
  echo 'print "I am a script"' >script.lua
  : >empty
  mkfifo pipe
  refused 1 "script.lua: is no program, library or debug file" layout script.lua
  refused 1 "empty: is no program" layout empty
  refused 1 "missing: cannot be opened" layout missing
  refused 1 ".: is not a regular file" layout .
  refused 1 "pipe: is not a regular file" layout pipe
  refused 2 "the file to read is missing" layout
  refused 2 "one too many" layout none none
  refused 2 "--bogus is not an option" layout --bogus none
  refused 2 "-o needs a value" layout none -o
  refused 2 "-f is not an option" layout -f pprof none
}
test_two_luas_in_one_file() {
  fixture one.o -DSHAPE=54 -c
  fixture two.o -DSHAPE=54 -DPAD=40 -c -Dmain=main2 -Dstate=state2 -Dglobal=global2 -Dcall=call2 -Dlua_closure=lua2 -Dc_closure=c2 \
    -Dtable=table2 -Dnode=node2
  fixture jit.o -DSHAPE=21 -c -Dmain=main3 -Dtable=table3 -Dnode=node3
  ${CC:-cc} -g -o both one.o two.o && ${CC:-cc} -g -o mixed one.o jit.o || fail "link"
  refused 1 "more than one Lua is in it" layout both
  refused 1 "both Lua and LuaJIT" layout mixed
}
test_damaged_files_are_refused_or_read() {
  needs_sanitized
  fixture lua -DSHAPE=54
  local size at
  size=$(stat -c %s lua)
  for ((at = 1; at < size; at += size / 40)); do
    head -c $at lua >cut
    status timeout 20 "$sanitized" layout cut
    [ "$status" -le 1 ] || fail "cut at $at: status $status: $(cat err)"
    lacks err Sanitizer
    { head -c $at lua; printf '\377\377\377\377'; tail -c +$((at + 5)) lua; } >changed
    status timeout 20 "$sanitized" layout changed
    [ "$status" -le 1 ] || fail "changed at $at: status $status: $(cat err)"
    lacks err Sanitizer
  done
}
test_output_file_is_whole_or_not_there() {
  fixture lua -DSHAPE=54
  echo precious >precious
  ln -s precious new.layout
  status "$luapulse" layout lua -o new.layout
  same "$status" 0 status
  same "$(cat out err)" "" "what it says"
  "$luapulse" layout lua | cmp - new.layout || fail "file and standard output differ"
  same "$(stat -c %a new.layout)" 600 mode
  same "$(cat precious)" precious "what the link led to"
  echo old >result.layout
  (ulimit -f 0; trap '' XFSZ; "$luapulse" layout lua -o result.layout) 2>err && fail "it said it wrote"
  "$luapulse" layout precious -o result.layout 2>err && fail "it said it wrote"
  same "$(cat result.layout)" old "the old file"
  "$luapulse" layout lua >/dev/full 2>err && fail "it said it wrote"
  has err "standard output"
  same "$(ls -A | grep -vxE 'lua|precious|new.layout|result.layout|out|err' || true)" "" "files left behind"
}
# -- what layouts are for: luapulse run --layout --------------------------------------------------------------------------

# The known layouts, one to a file: puc.1, puc.2, …, luajit.1, …
known_layouts() {
  local family
  for family in puc luajit; do
    awk -v name=$family '/^layout / { n++ } n { print >(name "." n) }' "$root/src/walk/$family.layout"
  done
}
# the files of those that are for RUNTIME's language
for_runtime() {
  case $1 in
    luajit*) grep -l '^layout luajit 5\.1 ' luajit.* ;;
    *) grep -l "^layout puc ${1#lua} " puc.* ;;
  esac
}
# run_refused TEXT RUNTIME FILE: the program runs as ever, without a profile, and words say why
run_refused() {
  status "$luapulse" run --layout "$3" -o refused.pb.gz -- "$2" -e 'print "it ran"'
  same "$status" 125 "status of $2 with $3: $(cat err)"
  has err "stacks cannot be walked here: layout file $PWD/$3: $1"
  same "$(cat out)" "it ran" "what the program printed"
  [ ! -e refused.pb.gz ] || fail "$2 with $3: a profile was written"
}
test_run_with_the_block_of_each_runtime() {
  known_layouts
  local runtime file worked
  for runtime in $all_runtimes; do
    worked=
    for file in $(for_runtime $runtime); do
      status "$luapulse" run --layout $file -o p.pb.gz -- $runtime -e 'x = 1'
      if [ "$status" -eq 0 ]; then worked+=" $file"; else run_refused "the " $runtime $file; fi
    done
    # 5.2.4 differs from those before in its tables only, which no walk needs, and so does the 5.1.5 of Redis
    same "$(wc -w <<<"$worked")" "$([[ $runtime == lua5.[12] ]] && echo 2 || echo 1)" "blocks that work on $runtime ($worked)"
    file=${worked##* }
    status "$luapulse" run --layout $file -o $runtime.pb.gz -- $runtime "$root/tests/cli/burn.lua" 0.4
    same "$status" 0 "status of $runtime"
    same "$(cat out err)" $'out\nerr' "what the program printed"
    "$luapulse" report $runtime.pb.gz >report || fail "status of report"
    has report "engine walk"
    has report inner
    has report outer
    # a word off: the frames are not where it says
    sed -E '/^  lua_State /s/ (ci|base)=[0-9]+/ \1=24/' $file >wrong.layout
    cmp -s $file wrong.layout && fail "$file was not changed"
    run_refused "the " $runtime wrong.layout
  done
}
test_run_refuses_the_layout_of_another_lua() {
  known_layouts
  run_refused "no layout in it is for this Lua" lua5.4 luajit.1
  for runtime in luajit $gc32; do run_refused "no layout in it is for this Lua" $runtime puc.1; done
  run_refused "no layout in it is for this Lua" lua5.1 "$(for_runtime lua5.4 | tail -n 1)"
  run_refused "no layout in it is for this Lua" lua5.3 "$(for_runtime lua5.2 | tail -n 1)"
  # what this command made of Luas that never were
  local pair
  for pair in 51:lua5.1 54:lua5.4 21:luajit; do
    fixture made -DSHAPE=${pair%:*} -DREF_BITS=64 -DPAD=3
    "$luapulse" layout made -o made.layout || fail "status"
    run_refused "the " ${pair#*:} made.layout
  done
}
test_run_refuses_what_is_no_layout() {
  echo 'print "a program"' >program.lua
  : >empty
  mkdir folder
  fixture binary -DSHAPE=54
  known_layouts
  head -n 4 puc.1 >cut
  run_refused "line 1: expected \`layout\`, not print" lua5.4 program.lua
  run_refused "it is empty" lua5.4 empty
  run_refused "cannot be read" lua5.4 folder
  run_refused "line 1: expected \`layout\`, not" lua5.4 binary
  run_refused "the layout \"Lua 5.1-5.1.2\" does not say" lua5.1 cut
  refused 125 "cannot read the layout file missing" run --layout missing -o result.layout -f pprof -- lua5.4 program.lua
  refused 2 "--layout needs a value" run -o p.html --layout
}
test_help() {
  for words in "help layout" "layout --help" "layout -h"; do
    status "$luapulse" $words
    same "$status" 0 "status of $words"
    has out "Usage: luapulse layout FILE"
  done
}
cli_main "$@"
