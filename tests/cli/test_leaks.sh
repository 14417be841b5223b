# luapulse leaks: what grows is told from what was kept, turned over or is in use; and how it refuses.
source "$(dirname "$0")/cli.sh"

write_profile() { "$root/$BUILD/tests/cli/profile_fixture" "$1" || fail "the fixture is written wrongly"; }
heap_types() { printf '%s\n' 'type alloc_objects count' 'type alloc_space bytes' 'type inuse_objects count' 'type inuse_space bytes'; }

# site FRAMES FIRST LAST BLOCKS: so many blocks of 1 kB that survived FIRST to LAST collections, for each
site() {
  awk -v frames="$1" -v first="$2" -v last="$3" -v blocks="$4" 'BEGIN {
    for (age = first; age <= last; age++) {
      class = 0
      for (c = 1; c <= age; c *= 2) class = c
      print "sample", frames, (class ? "type=table,gc_cycles_survived=" class : "type=table"), 0, 0, blocks, blocks * 1024
      print "sample", frames, "type=table", blocks, blocks * 1024, 0, 0
    }
  }'
}
# a session of 40 collections: remember leaks by way of string.rep, mostly out of serve
samples() {
  site 'main@app.lua:40;serve@app.lua:31;remember@app.lua:12;string.rep@[C]:0' 0 40 80
  site 'main@app.lua:41;remember@app.lua:12;string.rep@[C]:0' 0 40 20
  site 'main@app.lua:40;serve@app.lua:32;log@app.lua:20' 0 39 5
  site 'main@app.lua:39;load_data@data.lua:7' 38 40 500
  site 'main@app.lua:40;serve@app.lua:33;cache@cache.lua:9' 0 8 300
  site 'main@app.lua:40;serve@app.lua:34;request@app.lua:50' 0 0 900
  echo 'sample main@app.lua:40;tiny@app.lua:60 gc_cycles_survived=32 0 0 3 300'
}
make_heap() {
  { heap_types; printf '%s\n' 'default inuse_space' 'program app.lua' 'comment heap_gc_cycles: 40'; samples; } | write_profile "$1"
}
leaks() { status "$luapulse" leaks "$@"; same "$status" 0 "status of leaks $*: $(cat err)"; }

test_growth_is_shown_and_nothing_else() {
  make_heap heap.pb.gz
  leaks heap.pb.gz
  has out "Program   app.lua"
  has out "40 collections"
  same "$(sed -n '/^Growing/,/^$/p' out | awk 'NR > 2 && $5 != ">" && NF > 5 && $1 ~ /B$/ { print $1, $3, $4 }' | tr '\n' ';')" \
    "4100kB 4100 32+;200kB 200 32+;" "live bytes, objects and ages of what grows"
  grep -qE 'string\.rep in remember +app\.lua:12$' out || fail "the C function is not shown with its line: $(cat out)"
  grep -qE '^ +main app.lua:40 > serve app.lua:31 > remember app.lua:12 > string.rep$' out || fail "no path: $(cat out)"
  grep -qE ' log +app\.lua:20$' out || fail "log: $(cat out)"
  for other in load_data cache.lua request tiny; do lacks out "$other"; done
  has out "looked at 5 sites with 9.18MB live, over 40 collections; 1 below 4kB left out"
  has out "growing 2 (4.20MB), kept since early 1 (1.46MB, --all shows it), turned over or recent 1 (2.64MB), in use only now 1 (900kB)"
}
test_ages_are_drawn() {
  make_heap heap.pb.gz
  leaks heap.pb.gz --all
  has out "▄▄▅▆▇█▇  string.rep" # 100 100 200 400 800 1600 900 blocks
  has out "······█  load_data"
  has out "ages are 0 1 2 4 8 16 32 and more"
}
test_all_shows_what_was_kept() {
  make_heap heap.pb.gz
  leaks heap.pb.gz
  lacks out "Kept since early"
  leaks heap.pb.gz --all
  has out "Kept since early, not growing"
  grep -qE '^ +1500kB .* load_data +data\.lua:7$' out || fail "load_data: $(cat out)"
  lacks out "cache.lua"
}
test_paths_are_told_apart() {
  make_heap heap.pb.gz
  leaks heap.pb.gz --paths
  same "$(grep -cE 'string\.rep in remember +app\.lua:12$' out)" 2 "paths of remember"
  grep -qE '^ +main app.lua:41 > remember app.lua:12 > string.rep$' out || fail "no second path: $(cat out)"
  leaks heap.pb.gz --lines
  same "$(grep -cE 'string\.rep in remember +app\.lua:12$' out)" 1 "lines of remember"
}
test_limits() {
  make_heap heap.pb.gz
  leaks heap.pb.gz -n 1
  has out "remember"
  lacks out " log "
  has out "… and 1 more; -n 0 shows all"
  leaks heap.pb.gz --min-bytes 1M
  lacks out " log "
  has out "below 1MB left out"
  leaks heap.pb.gz --min-bytes 0 --all
  has out tiny
  leaks heap.pb.gz --min-cycles 32
  has out remember
  leaks heap.pb.gz --min-cycles 33
  has out "no leaks seen"
}
test_no_leaks() {
  { heap_types; echo 'comment heap_gc_cycles: 40'; samples | grep -vE 'remember|log@'; } | write_profile fine.pb.gz
  leaks fine.pb.gz
  has out "no leaks seen: looked at 3 sites"
  has out "over 40 collections"
  lacks out "Growing"
  { heap_types; echo 'comment heap_gc_cycles: 40'; } | write_profile empty.pb.gz
  leaks empty.pb.gz
  has out "no leaks seen: looked at 0 sites"
}
test_without_comments_and_with_cpu() {
  { heap_types; samples; } | write_profile plain.pb.gz
  leaks plain.pb.gz
  has out "at least 32 collections"
  has out "remember"
  lacks out "load_data"
  {
    printf '%s\n' 'type samples count' 'type cpu nanoseconds'
    heap_types
    printf '%s\n' 'default cpu' 'period 10000000 cpu nanoseconds' 'sample main@app.lua:40;serve@app.lua:31 - 9 90000000 0 0 0 0'
    samples | sed -E 's/^(sample [^ ]+ [^ ]+)/\1 0 0/'
  } | write_profile mixed.pb.gz
  leaks mixed.pb.gz
  has out "remember"
  lacks out "load_data"
  "$luapulse" leaks - <mixed.pb.gz >piped || fail "standard input"
  cmp out piped || fail "not the same from standard input"
}
refused() { # STATUS TEXT ARGUMENTS…
  local expected=$1 text=$2
  shift 2
  status "$luapulse" leaks "$@"
  same "$status" "$expected" "status of $*"
  has err "$text"
}
test_refusals() {
  make_heap heap.pb.gz
  printf 'a;b 1\n' >cpu.folded
  refused 1 "cpu.folded: it has no sample type inuse_space, so it is no heap profile; it has: samples" cpu.folded
  has err "luapulse run --heap -o heap.pb.gz -- "
  { heap_types; echo 'sample a@a.lua:1 - 1 1 1 1'; } | write_profile bare.pb.gz
  refused 1 "bare.pb.gz: no sample has the label gc_cycles_survived" bare.pb.gz
  has err "luapulse run --heap -o heap.pb.gz -- "
  { heap_types; echo 'comment heap_gc_cycles: 2'; echo 'sample a@a.lua:1 gc_cycles_survived=2 1 1 1 1'; } | write_profile short.pb.gz
  refused 1 "short.pb.gz: it saw 2 collections while profiling, too few to tell what survives: 4 are needed" short.pb.gz
  leaks short.pb.gz --min-cycles 1
  refused 1 missing.pb.gz missing.pb.gz
  refused 2 "a FILE is missing"
  refused 2 "one FILE at a time" heap.pb.gz heap.pb.gz
  refused 2 "is not an option" heap.pb.gz --bogus
  refused 2 "--min-cycles takes a number from 1 on" heap.pb.gz --min-cycles 0
  refused 2 "--min-bytes takes a size" heap.pb.gz --min-bytes lots
  refused 2 "--min-bytes takes a size" heap.pb.gz --min-bytes 99999999999999G
  refused 2 "--top takes a number" heap.pb.gz -n x
  refused 2 "--lines and --paths exclude each other" heap.pb.gz --lines --paths
  "$luapulse" leaks heap.pb.gz >/dev/full 2>err && fail "a full device was not noticed"
  has err "standard output: cannot be written"
}
test_help() {
  for words in "leaks --help" "help leaks"; do
    status "$luapulse" $words
    same "$status" 0 "status of $words"
    has out "Usage: luapulse leaks FILE"
    has out "luapulse run --heap -o heap.pb.gz -- lua5.4 app.lua"
  done
  status "$luapulse" --help
  grep -qE '^  leaks  ' out || fail "not among the commands: $(cat out)"
}
test_deep_paths_are_shortened_and_names_cannot_drive_the_terminal() {
  deep=main@app.lua:1
  for i in $(seq 2 20); do deep="$deep;f$i@app.lua:$i"; done
  evil=$(printf 'main@app.lua:1;bad\033[31m@x\033.lua:3')
  { heap_types; echo 'comment heap_gc_cycles: 40'; site "$deep" 0 40 80; site "$evil" 0 40 40; } | write_profile deep.pb.gz
  leaks deep.pb.gz
  grep -qE '^ +main app.lua:1 > … > f16 app.lua:16 > f17 app.lua:17 > f18 app.lua:18 > f19 app.lua:19 > f20 app.lua:20$' out || fail "path: $(cat out)"
  ! grep -q "$(printf '\033')" out || fail "an escape byte came through"
}
cli_main "$@"
