# `go tool pprof` reads our files and agrees with `luapulse report`.
source "$(dirname "$0")/cli.sh"
burn=$root/tests/cli/burn.lua

make_profile() { "$luapulse" run -F 250 -o p.pb.gz -- lua5.4 "$root/examples/shop.lua" >/dev/null; }

# "flat cum name" of every row, in milliseconds with two decimals, from pprof's or our table
pprof_rows() { go tool pprof "$@" -nodecount=0 -nodefraction=0 -unit=ms p.pb.gz 2>/dev/null | table; }
table() {
  awk '/ flat  *flat%/ { on = 1; next }
       on && NF >= 6 { name = $6; for (i = 7; i <= NF; i++) name = name " " $i; print ms($1), ms($4), name }
       function ms(v) { if (v ~ /ms$/) f = 1; else if (v ~ /us$|µs$/) f = 0.001; else if (v ~ /[0-9]s$/) f = 1000; else f = 1
                        sub(/[a-zµ]*$/, "", v); return sprintf("%.0f", v * f * 100) }'
}
# our report in nanoseconds, by way of folded stacks, an independent path through our code: flat by name
flat_by_name() {
  "$luapulse" convert p.pb.gz -o - -f folded | grep -v '^#' |
    awk '{ value = $NF; sub(/ [0-9]+$/, ""); n = split($0, frames, ";"); leaf = frames[n]; sub(/ \(.*$/, "", leaf); sum[leaf] += value }
         END { for (name in sum) printf "%.0f %s\n", sum[name] / 1e4, name }' | sort -k2
}

test_top_agrees() {
  make_profile
  # "[outside Lua]" and its like are in no file
  pprof_rows -top -filefunctions | awk '$1 > 0 { f = $1; $1 = $2 = ""; sub(/^ +/, ""); if (!/^\[/) sub(/ [^ ]*$/, ""); sum[$0] += f } END { for (n in sum) print sum[n], n }' | sort -k2 >theirs
  flat_by_name >ours
  [ "$(wc -l <ours)" -gt 10 ] || fail "too few functions to compare"
  # values are rounded to 10 µs on both sides
  join -1 2 -2 2 <(awk '{ v = $1; $1 = ""; gsub(/ /, "_"); print v, $0 }' ours | sort -k2) \
    <(awk '{ v = $1; $1 = ""; gsub(/ /, "_"); print v, $0 }' theirs | sort -k2) >both
  same "$(wc -l <both)" "$(wc -l <ours)" "functions both know"
  awk '{ d = $2 - $3; if (d > 2 || d < -2) { print; bad = 1 } } END { exit bad }' both >differ || fail "differ: $(cat differ)"
}
test_report_agrees_with_top_to_the_percent() {
  make_profile
  go tool pprof -top -nodecount=0 -nodefraction=0 p.pb.gz 2>/dev/null | awk '/flat%/ { on = 1; next } on { print $2, $5, $6 }' >theirs
  "$luapulse" report -n 0 p.pb.gz | awk '/flat%/ { on = 1; next } on && NF { print $2, $5, $6 }' >ours
  # pprof adds up functions of the same name, we keep them apart by where they are defined: compare those whose name is theirs alone
  awk '{ print $3 }' ours | sort | uniq -u >alone
  for side in ours theirs; do awk 'NR == FNR { alone[$1]; next } $3 in alone' alone $side | head -6 >$side.alone; done
  same "$(wc -l <ours.alone)" 6 "functions compared"
  same "$(cat ours.alone)" "$(cat theirs.alone)" "flat% and cum% of the heaviest functions"
}
test_peek_raw_list_read_our_files() {
  make_profile
  go tool pprof -peek parse_string p.pb.gz >peek 2>err || fail "$(cat err)"
  has peek parse_string
  go tool pprof -raw p.pb.gz >raw 2>err || fail "$(cat err)"
  has raw "samples/count cpu/nanoseconds"
  has raw "luapulse losses:"
  (cd "$root" && go tool pprof -list find_coupon "$OLDPWD/p.pb.gz") >list 2>err || fail "$(cat err)"
  has list "local function find_coupon_in_whole_list"
  lacks err "no such file"
}
test_totals_agree() {
  make_profile
  local theirs ours
  theirs=$(go tool pprof -top -unit=ns p.pb.gz 2>/dev/null | sed -n 's/.*Total samples = \([0-9]*\)ns.*/\1/p')
  ours=$("$luapulse" convert p.pb.gz -o - -f folded | grep -v '^#' | awk '{ s += $NF } END { printf "%.0f", s }')
  same "$ours" "$theirs" "total"
}
test_samples_index() {
  make_profile
  go tool pprof -sample_index=samples -top p.pb.gz >out 2>err || fail "$(cat err)"
  has out "Type: samples"
  local theirs ours
  theirs=$(sed -n 's/.*of \([0-9]*\) total.*/\1/p' out)
  ours=$("$luapulse" report --sample samples p.pb.gz | sed -n 's/^Total *//p')
  same "$ours" "$theirs" "samples in all"
}
test_base_subtracts() {
  "$luapulse" run -o a.pb.gz -- lua5.4 "$burn" 0.3 >/dev/null 2>&1
  go tool pprof -top -base a.pb.gz a.pb.gz >out 2>err || fail "$(cat err)"
  has out "Showing nodes accounting for 0"
}
cli_main "$@"
