# luapulse report and convert: what they show, and how they refuse.
source "$(dirname "$0")/cli.sh"

# a small profile whose numbers are known
make_profile() {
  printf '%s\n' '# a comment' 'main;work;inner 30' 'main;work 20' 'main;idle 50' >in.folded
  "$luapulse" convert in.folded -o in.pb.gz || fail "convert"
}
row() { awk -v name="$1" '$6 == name { print $1, $2, $4, $5 }' out; }

test_functions() {
  make_profile
  status "$luapulse" report in.pb.gz
  same "$status" 0 status
  same "$(row inner)" "30 30.00% 30 30.00%" inner
  same "$(row work)" "20 20.00% 50 50.00%" work
  same "$(row main)" "0 0.00% 100 100.00%" main
  has out "Lost"
}
test_recursion_counts_once() {
  printf 'a;b;a;b;a 10\n' >in.folded
  status "$luapulse" report in.folded
  same "$(row a)" "10 100.00% 10 100.00%" a
  same "$(row b)" "0 0.00% 10 100.00%" b
}
test_tree_and_peek_and_lines() {
  make_profile
  status "$luapulse" report --tree in.pb.gz
  has out inner
  status "$luapulse" report --peek work in.pb.gz
  has out main
  has out inner
  lacks out idle
  status "$luapulse" report --lines in.pb.gz
  has out inner
  status "$luapulse" report --peek nothing_like_it in.pb.gz
  same "$status" 1 "status of a peek at nothing"
  has err nothing_like_it
}
test_where() {
  (cd "$root" && "$luapulse" run -q -o "$OLDPWD/own.pb.gz" -- lua5.4 tests/cli/burn.lua 0.3) >/dev/null 2>&1
  [ -e own.pb.gz ] || fail "no profile"
  status "$luapulse" report own.pb.gz --where nothing=12
  same "$status" 1 status
  has err "luapulse report: own.pb.gz: no sample has nothing=12; nothing is no label of any"
  status "$luapulse" convert own.pb.gz --where nothing=12 -o out.folded
  same "$status" 1 "status of convert"
  status "$luapulse" report own.pb.gz --where =12
  same "$status" 2 "status of no KEY=VALUE"
}
test_several_outputs() {
  make_profile
  "$luapulse" convert in.pb.gz -o a.html -o a.folded -o a.txt || fail "status of convert"
  has a.html '<!doctype html>'
  has a.folded '# luapulse folded:'
  has a.txt 'flat%'
  # what is wrong with one is known before another is written; or said, and the others are there
  status "$luapulse" convert in.pb.gz -o b.html -o b.xyz
  same "$status" 2 "status with an unknown format"
  [ ! -e b.html ] || fail "a file was written"
  status "$luapulse" convert in.pb.gz -o no/b.html -o b.folded
  same "$status" 1 "status with a directory that is not there"
  has err "luapulse convert: no/b.html: its directory cannot be opened"
  has b.folded '# luapulse folded:'
  for extension in .folded folded .speedscope.json speedscope.json; do
    "$luapulse" convert in.pb.gz -f $extension -o c || fail "status with -f $extension"
  done
}
test_every_format_and_back() {
  make_profile
  for format in pprof folded speedscope callgrind html text; do
    status "$luapulse" convert in.pb.gz -o "out.$format" -f $format
    same "$status" 0 "status for $format"
    [ -s "out.$format" ] || fail "$format is empty"
  done
  "$luapulse" convert in.pb.gz -o back.folded && "$luapulse" convert back.folded -o back.pb.gz &&
    "$luapulse" convert back.pb.gz -o again.folded
  cmp back.folded again.folded || fail "not the same after a round trip"
  "$luapulse" convert - -o - -f folded <in.pb.gz | cmp - back.folded || fail "standard input and output"
}
test_losses_are_in_every_output() {
  printf '%s\n' 'a 1' >in.folded
  "$luapulse" convert in.folded -o in.pb.gz
  for extension in pb.gz folded speedscope.json callgrind html txt; do
    "$luapulse" convert in.pb.gz -o "out.$extension"
    case $extension in
      pb.gz) gzip -dc out.pb.gz >plain ;;
      *) cp "out.$extension" plain ;;
    esac
    grep -qiE 'loss|lost' plain || fail "no losses in $extension"
  done
}
test_names_cannot_drive_the_terminal() {
  printf 'a\\x1b[31mred\\x0d;b 5\n' >in.folded
  status "$luapulse" report in.folded
  same "$status" 0 status
  ! grep -q "$(printf '\033')" out || fail "an escape byte came through"
}
test_hostile_names_round_trip() {
  cat >names.lua <<'LUA'
local pulse = require "luapulse"
local names = { "semi;colon", "new\nline", "nul\0byte", "bad\255utf8\128", "back\\slash", "tab\t", "\xef\xbe\x80" }
local burn = {}
for i, name in ipairs(names) do
  burn[i] = assert(load("local x = 0 for i = 1, 20000 do x = x + i % 3 end return x", "=" .. name:gsub("%z", "0")))
end
pulse.start { cpu_clock = "instructions", cpu_sample_mean_instr = 1000, cpu_max_samples_per_sec = 0 }
for i = 1, 3 do for j = 1, #burn do burn[j]() end end
local profile = pulse.stop()
profile:write("a.pb.gz")
profile:write("a.folded")
LUA
  LUA_CPATH="$root/$BUILD/lua/5.4/?.so" lua5.4 names.lua || fail "the program"
  "$luapulse" convert a.pb.gz -o b.folded || fail "pprof to folded"
  cmp a.folded b.folded || fail "folded by way of pprof differs"
  "$luapulse" convert a.folded -o c.pb.gz && "$luapulse" convert c.pb.gz -o c.folded
  # program and comments are not in the folded stacks, the stacks themselves are
  cmp <(grep -v '^#' a.folded) <(grep -v '^#' c.folded) || fail "pprof by way of folded differs"
  go tool pprof -top a.pb.gz >out 2>err || fail "$(cat err)"
}

refused() { # STATUS TEXT ARGUMENTS…
  local expected=$1 text=$2
  shift 2
  status "$luapulse" "$@"
  same "$status" "$expected" "status of $*"
  has err "$text"
  [ ! -e result.pb.gz ] || fail "$* wrote a file"
}
test_refusals() {
  make_profile
  head -c 40 in.pb.gz >cut.pb.gz
  : >empty
  head -c 3000 /dev/urandom | tr -d '\n' >noise
  refused 2 "a command is missing"
  refused 2 "there is no command 'frobnicate'" frobnicate
  refused 2 "is not an option" report --bogus in.pb.gz
  refused 1 "missing.pb.gz" report missing.pb.gz
  refused 1 "cut.pb.gz" convert cut.pb.gz -o result.pb.gz
  refused 1 "empty" convert empty -o result.pb.gz
  refused 1 "noise" convert noise -o result.pb.gz
  refused 1 "." convert . -o result.pb.gz
  refused 1 "no_such_type" report in.pb.gz --sample no_such_type
  refused 2 "-o OUT is missing" convert in.pb.gz
  refused 2 "tells no format" convert in.pb.gz -o result.xyz
  refused 1 "/dev/full" convert in.pb.gz -o /dev/full -f text
}
test_failed_write_leaves_the_old_file() {
  make_profile
  echo old >result.pb.gz
  (ulimit -f 0; trap '' XFSZ; "$luapulse" convert in.pb.gz -o result.pb.gz) 2>err && fail "it said it wrote"
  same "$(cat result.pb.gz)" old "the old file"
  same "$(ls -A | grep -vxE 'in.folded|in.pb.gz|out|err|result.pb.gz' || true)" "" "files left behind"
}
test_symbolic_link_is_replaced_not_followed() {
  make_profile
  echo precious >precious
  ln -s precious link.pb.gz
  "$luapulse" convert in.pb.gz -o link.pb.gz || fail convert
  same "$(cat precious)" precious "what the link led to"
  [ ! -L link.pb.gz ] || fail "the link is still there"
}
test_help_everywhere() {
  for words in --help help "help run" "run --help" "report --help" "convert --help" "help report"; do
    status "$luapulse" $words
    same "$status" 0 "status of $words"
    has out "Usage: luapulse"
  done
  status "$luapulse" --version
  grep -qE '^luapulse [0-9]+\.[0-9]+\.[0-9]+$' out || fail "version: $(cat out)"
}
cli_main "$@"
