# Heap profiles: sample types, units, every format, and what `go tool pprof` makes of them.
source "$(dirname "$0")/cli.sh"

heap_types() { printf '%s\n' 'type alloc_objects count' 'type alloc_space bytes' 'type inuse_objects count' 'type inuse_space bytes'; }
write_profile() { "$root/$BUILD/tests/cli/profile_fixture" "$1" || fail "the fixture is written wrongly"; }

# load keeps 9 of its 10 tables, rep 10 of its 1000 strings
samples() {
  echo 'sample main@app.lua:3;load@app.lua:12 type=table 10 10240 4 4096'
  echo 'sample main@app.lua:3;load@app.lua:12 type=table,gc_cycles_survived=4 0 0 5 5120'
  echo 'sample main@app.lua:4;work@app.lua:21;string.rep@[C]:0 type=string 1000 2097152 0 0'
  echo 'sample main@app.lua:4;work@app.lua:21;string.rep@[C]:0 type=string,gc_cycles_survived=1 0 0 10 20480'
}
make_heap() {
  {
    heap_types
    printf '%s\n' 'default inuse_space' 'program app.lua' 'period 524288 space bytes' 'duration 5000000000' \
      'comment luapulse 0.1.0, Lua 5.4' 'comment heap_gc_cycles: 37' 'comment heap_alloc_bytes_total: 2107392'
    samples
  } | write_profile heap.pb.gz
}
# the same below cpu, which is what is shown by default
make_mixed() {
  {
    printf '%s\n' 'type samples count' 'type cpu nanoseconds'
    heap_types
    echo 'default cpu'
    echo 'sample main@app.lua:4;work@app.lua:21 - 7 70000000 0 0 0 0'
    samples | sed -E 's/^(sample [^ ]+ [^ ]+)/\1 0 0/'
  } | write_profile mixed.pb.gz
}
row() { awk -v name="$1" '$6 == name { print $1, $2, $4, $5 }' out; }
report() { status "$luapulse" report "$@"; same "$status" 0 "status of report $*"; }

test_types_of_a_heap_profile() {
  make_heap
  report heap.pb.gz
  has out "Type      inuse_space in bytes"
  has out "Total     29kB"
  has out "Stacks    2"
  same "$(row string.rep)" "20kB 68.97% 20kB 68.97%" "string.rep in use"
  same "$(row load)" "9kB 31.03% 9kB 31.03%" "load in use"
  report heap.pb.gz --sample inuse_objects
  same "$(row string.rep)" "10 52.63% 10 52.63%" "objects in use"
  report heap.pb.gz --sample alloc_space
  same "$(row work)" "0 0.00% 2048kB 99.51%" "work, allocated"
  report heap.pb.gz --sample alloc_objects
  same "$(row main)" "0 0.00% 1010 100.00%" "objects allocated"
}
test_what_was_freed_is_computed() {
  make_heap
  report heap.pb.gz --sample free_space
  has out "Type      free_space in bytes"
  has out "Total     2029kB"
  lacks out "difference"
  same "$(row load)" "1kB 0.05% 1kB 0.05%" "freed by load"
  same "$(row string.rep)" "2028kB 99.95% 2028kB 99.95%" "freed by string.rep"
  report heap.pb.gz --sample free_objects
  same "$(row string.rep)" "990 99.90% 990 99.90%" "objects freed"
  report heap.pb.gz --sample free_space --lines
  has out "app.lua:12"
  report heap.pb.gz --sample free_space --tree
  has out "2028kB   99.95%     2028kB      string.rep"
  report heap.pb.gz --sample free_space --peek work
  has out "2028kB  100.00% |     main"
  # nothing of it is stored
  "$luapulse" convert heap.pb.gz -o copy.pb.gz
  go tool pprof -raw copy.pb.gz 2>/dev/null >raw
  lacks raw free_
}
test_a_type_that_is_not_there() {
  make_heap
  status "$luapulse" report heap.pb.gz --sample cpu
  same "$status" 1 status
  has err "heap.pb.gz: has no sample type 'cpu'; it has: alloc_objects, alloc_space, inuse_objects, inuse_space, free_objects, free_space"
  echo 'a;b 1' >in.folded
  status "$luapulse" report in.folded --sample free_space
  same "$status" 1 status
  has err "has no sample type 'free_space'; it has: samples"
  lacks err "samples, free"
  status "$luapulse" convert heap.pb.gz --sample cpu -o out.folded
  same "$status" 1 status
  has err "luapulse convert: heap.pb.gz: has no sample type 'cpu'; it has: alloc_objects"
  [ ! -e out.folded ] || fail "something was written"
}
test_the_head_tells_the_totals() {
  make_heap
  report heap.pb.gz
  has out "Heap      gc cycles 37, alloc total 2.01MB"
  has out "Comment   luapulse 0.1.0, Lua 5.4"
  lacks out "heap_"
}
test_a_profile_of_cpu_and_heap() {
  make_mixed
  report mixed.pb.gz
  has out "Type      cpu in nanoseconds"
  has out "Samples   7, in 1 different stack"
  same "$(row work)" "70ms 100.00% 70ms 100.00%" "cpu of work"
  report mixed.pb.gz --sample inuse_space
  has out "Stacks    2"
  lacks out "Samples"
  same "$(row load)" "9kB 31.03% 9kB 31.03%" "load in use"
  report mixed.pb.gz --sample free_objects
  same "$(row string.rep)" "990 99.90% 990 99.90%" "objects freed"
}

# flat and cum by name of a table, from 3 B to 3 GB, as we and as pprof show them
test_go_tool_pprof_shows_the_same_figures() {
  local case
  for case in "1 2 3" "100 200 300" "1000 2000 3000" "600000 700000 2000000" "20480 1048576 20971520" "5000 1048576 20971520" \
    "3 4096 3221225472" "1048576 1048577 2000000000" "70000000 80000000 90000000"; do
    set -- $case
    {
      heap_types
      echo 'default inuse_space'
      echo "sample main@app.lua:1;a@app.lua:2 - 1 $1 1 $1"
      echo "sample main@app.lua:1;b@app.lua:3 gc_cycles_survived=2 1 0 1 $2"
      echo "sample main@app.lua:1;b@app.lua:3;c@app.lua:4 - 1 $3 1 $3"
    } | write_profile case.pb.gz
    for type in inuse_space alloc_space inuse_objects; do
      go tool pprof -sample_index=$type -top -nodecount=0 -nodefraction=0 case.pb.gz 2>/dev/null >top
      report -n 0 --sample $type case.pb.gz
      same "$(awk '/flat%/ { on = 1; next } on && NF { print $1, $4, $6 }' out | sort)" \
        "$(awk '/flat%/ { on = 1; next } on { print $1, $4, $6 }' top | sort)" "$type of $case"
      same "$(sed -n 's/^Total *//p' out)" "$(sed -n 's/.* of \([^ ]*\) total/\1/p' top)" "total of $type of $case"
    done
  done
}
test_go_tool_pprof_sees_growth() {
  growth() {
    {
      heap_types
      echo 'default inuse_space'
      echo "sample main@app.lua:1;leak@app.lua:2 type=table,gc_cycles_survived=4 0 0 $1 $(($1 * 1024))"
      echo "sample main@app.lua:1;leak@app.lua:2 type=table $((2 * $1)) $(($1 * 2048)) 0 0"
      echo "sample main@app.lua:1;keep@app.lua:3 type=string,gc_cycles_survived=4 0 0 9 9216"
      echo "sample main@app.lua:1;gone@app.lua:4 - 0 0 $2 $(($2 * 1024))"
    } | write_profile "$3"
  }
  growth 10 7 first.pb.gz
  growth 50 0 second.pb.gz
  for base in base diff_base; do
    go tool pprof -sample_index=inuse_space -top -$base first.pb.gz second.pb.gz 2>/dev/null >top || fail "-$base"
    same "$(awk '$6 == "leak" { print $1 }' top)" 40kB "growth of leak by -$base"
    same "$(awk '$6 == "gone" { print $1 }' top)" -7kB "what is gone by -$base"
    lacks top keep
  done
  go tool pprof -sample_index=alloc_objects -top -base first.pb.gz second.pb.gz 2>/dev/null >top
  same "$(awk '$6 == "leak" { print $1 }' top)" 80 "growth in objects allocated"
}
test_labels_of_age_come_back() {
  make_heap
  "$luapulse" convert heap.pb.gz -o copy.pb.gz && "$luapulse" convert copy.pb.gz -o again.pb.gz
  cmp copy.pb.gz again.pb.gz || fail "not the same bytes"
  for file in heap copy; do go tool pprof -raw $file.pb.gz 2>/dev/null | sed -n '/^Samples/,/^Locations/p' >$file.raw; done
  cmp heap.raw copy.raw || fail "not the same samples"
  grep -qE 'gc_cycles_survived:\[4( |\])' copy.raw || fail "no number: $(cat copy.raw)"
  go tool pprof -sample_index=inuse_space -tags copy.pb.gz >tags 2>/dev/null
  has tags gc_cycles_survived
  has tags string
  go tool pprof -sample_index=inuse_space -top -tagfocus=gc_cycles_survived=4:8 copy.pb.gz >top 2>/dev/null
  same "$(awk '$6 == "load" { print $1 }' top)" 5kB "load, survivors of 4 to 8 collections"
}
test_formats_say_bytes() {
  make_heap
  "$luapulse" convert heap.pb.gz -o out.folded
  has out.folded "type=inuse_space unit=bytes"
  has out.folded "main (app.lua:3);load (app.lua:12) 9216"
  "$luapulse" convert heap.pb.gz -o out.txt
  has out.txt "Type      inuse_space in bytes"
  "$luapulse" convert heap.pb.gz -o out.callgrind
  has out.callgrind "events: inuse_space alloc_objects alloc_space inuse_objects"
  has out.callgrind "event: inuse_space : inuse_space in bytes"
  has out.callgrind "summary: 29696 1010 2107392 19"
  callgrind_annotate out.callgrind >annotated 2>err || fail "$(cat err)"
  grep -qE '20,480 \(.*\[C\]:string.rep' annotated || fail "callgrind_annotate: $(cat annotated)"
  "$luapulse" convert heap.pb.gz -o out.speedscope.json
  node -e '
    const file = JSON.parse(require("fs").readFileSync("out.speedscope.json", "utf8"));
    for (const p of file.profiles) console.log(p.name, p.unit, p.endValue);
    console.log(file.profiles[file.activeProfileIndex].name);' >scopes || fail "no JSON"
  same "$(tr '\n' ';' <scopes)" \
    "alloc_objects none 1010;alloc_space bytes 2107392;inuse_objects none 19;inuse_space bytes 29696;inuse_space;" "speedscope"
  "$luapulse" convert heap.pb.gz -o out.html
  has out.html '"types":[{"type":"alloc_objects","unit":"count"},{"type":"alloc_space","unit":"bytes"}'
  has out.html '"default_type":3'
}
test_convert_takes_a_sample_type() {
  make_heap
  "$luapulse" convert heap.pb.gz -s alloc_objects -o out.folded || fail "alloc_objects"
  has out.folded "type=alloc_objects unit=count"
  has out.folded "string.rep ([C]:0) 1000"
  "$luapulse" convert heap.pb.gz --sample free_space -o out.folded || fail "free_space"
  has out.folded "type=free_space unit=bytes"
  has out.folded "main (app.lua:3);load (app.lua:12) 1024"
  "$luapulse" convert heap.pb.gz --sample free_space -o out.txt || fail text
  has out.txt "Total     2029kB"
  "$luapulse" convert heap.pb.gz --sample alloc_space -o out.html || fail html
  has out.html '"default_type":1'
  "$luapulse" convert heap.pb.gz --sample alloc_space -o out.callgrind || fail callgrind
  has out.callgrind "events: alloc_space"
  # asked for by name, it is in the file
  "$luapulse" convert heap.pb.gz --sample free_space -o free.pb.gz || fail pprof
  go tool pprof -top -nodefraction=0 free.pb.gz >top 2>/dev/null
  has top "Type: free_space"
  same "$(awk '$6 == "load" { print $1 }' top)" 1kB "freed by load, by pprof"
  report free.pb.gz --sample free_space
  has out "Total     2029kB"
}
cli_main "$@"
