# nginx with its Lua module under load: phases, coroutines of the module's own, timers, the compiler on and off, workers that come and go.
source "$(dirname "$0")/hosts.sh"

app() {
  cat >app.lua <<'LUA'
local app = {}
local function spin(n)
  local x = 0
  for i = 1, n do x = x + i % 7 end
  return x
end
function app.render(n)
  local t = {}
  for i = 1, n do t[#t + 1] = tostring(spin(200)) end
  return table.concat(t, ",")
end
function app.check(n)
  return spin(n)
end
app.many = {} -- arguments of a subrequest: to write them down takes ngx.location.capture some time
for i = 1, 300 do app.many["key" .. i] = "value & more" end
return app
LUA
  echo 'local app = require "app"
local function page()
  ngx.say(app.render(40))
end
page()' >page.lua
}
# settings PORT [LUA-OF-INIT]
settings() {
  app
  cat >nginx.conf <<CONF
load_module /usr/lib/nginx/modules/ndk_http_module.so;
load_module /usr/lib/nginx/modules/ngx_http_lua_module.so;
worker_processes ${workers:-2};
daemon off;
pid nginx.pid;
error_log error.log notice;
events { worker_connections 512; }
http {
  access_log off;
  client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi; scgi_temp_path scgi;
  lua_package_path "$PWD/?.lua;;";
  init_by_lua_block { ${2:-} app = require "app" }
  init_worker_by_lua_block {
    local function again() app.check(500000) end
    ngx.timer.every(0.01 * ${workers:-2}, again) -- together they use the same, however many there are
    ngx.timer.at(0, function() app.check(30000) end)
  }
  server {
    listen 127.0.0.1:$1;
    location /hello {
      access_by_lua_block {
        app.check(4000)
      }
      content_by_lua_block {
        local function answer()
          ngx.say(app.render(40))
        end
        answer()
      }
    }
    location /capture {
      content_by_lua_block {
        local function fetch()
          return ngx.location.capture("/hello", { args = app.many })
        end
        local res = fetch()
        ngx.sleep(0.001)
        app.render(10)
        ngx.print(res.body)
      }
    }
    location /page { content_by_lua_file page.lua; }
  }
}
CONF
}
# start_nginx [LUA-OF-INIT]: $master is its first process
start_nginx() {
  free_port
  settings "$port" "${1:-}"
  start nginx -p "$PWD/" -c nginx.conf
  master=$pid
  wait_for listens
  wait_for has_workers
}
has_workers() { [ "$(worker_pids | wc -w)" -ge "${workers:-2}" ]; }
worker_pids() { pgrep -P "$master" -f 'nginx: worker process$'; }
worker_list() { worker_pids | paste -sd,; }
load() { start wrk -t 1 -c 32 -d 280 "http://127.0.0.1:$port$1"; } # PATH
line_of() { grep -nF -- "$1" nginx.conf | cut -d: -f1 | sed -n "${2:-1}p"; }

# PHASES that a request to /hello goes through, and timers beside it
expect_phases() {
  local content access timer
  content=$(line_of content_by_lua_block) access=$(line_of access_by_lua_block) timer=$(line_of init_worker_by_lua_block)
  stacks "^main chunk \(content_by_lua\(nginx.conf:$content\):5\);answer \(content_by_lua\(nginx.conf:$content\):3\);app.render \([^;]*/app.lua:9\);spin \([^;]*/app.lua:4\)"
  stacks "^main chunk \(access_by_lua\(nginx.conf:$access\):2\);(app.check \([^;]*/app.lua:13\);)?spin \([^;]*/app.lua:4\)"
  stacks "^again \(init_worker_by_lua\(nginx.conf:$timer\):2\);(app.check [^;]*;)?spin \([^;]*/app.lua:4\)"
  on_top spin
}
test_phases_and_timers() {
  for engine in $ENGINES ptrace; do
    start_nginx
    load /hello
    until_seen expect_phases recorded -p "$(worker_list)" -F 299
    kill "$pid" "$master"
  done
}
test_without_the_compiler() {
  for engine in $ENGINES; do
    start_nginx 'jit.off()'
    load /hello
    until_seen expect_phases recorded -p "$(worker_list)" -F 299
    status "$luapulse" report out.pb.gz --where vmstate=trace
    same "$status" 1 "status where there are no traces"
    kill "$pid" "$master"
  done
}
expect_subrequests() {
  local content
  content=$(line_of content_by_lua_block 2)
  # what a subrequest runs is a coroutine of its own, on nobody's stack
  stacks "^main chunk \(content_by_lua\(nginx.conf:$(line_of content_by_lua_block)\):5\);.*;spin "
  stacks "^main chunk \(content_by_lua\(nginx.conf:$content\):5\);.*ngx.location.capture \(\[C\]"
  # and what comes after the sleep stands on what came before
  stacks "^main chunk \(content_by_lua\(nginx.conf:$content\):7\);app.render .*;spin "
  on_top spin
}
test_subrequests_and_sleeps() {
  for engine in $ENGINES; do
    start_nginx
    load /capture
    until_seen expect_subrequests recorded -p "$(worker_list)" -F 299
    kill "$pid" "$master"
  done
}
test_a_file() {
  for engine in $ENGINES; do
    start_nginx
    load /page
    until_seen "stacks '^main chunk \([^;]*/page.lua:5\);page \([^;]*/page.lua:3\);app.render '" recorded -p "$(worker_list)" -F 299
    kill "$pid" "$master"
  done
}
# The file is another than the one that the master was told, and there are others of its name.
test_included_files() {
  engine=bpf
  free_port
  settings "$port"
  mkdir -p sites other
  awk '/^  server \{/ { on = 1 } on { print > "sites/shop.conf" } !on { print } on && /^  \}/ { on = 0; print "  include other/*.conf;\n  include sites/*.conf;" }' nginx.conf >main.conf
  sed 's/answer/wrong/; 1s/^/#\n/; /listen/d; s/location /location \/other/' sites/shop.conf >other/shop.conf
  start nginx -p "$PWD/" -c main.conf
  master=$pid
  wait_for listens
  wait_for has_workers
  load /hello
  until_seen "stacks '^main chunk \(content_by_lua\(sites/shop.conf:[0-9]+\):5\);answer \(content_by_lua\(sites/shop.conf:[0-9]+\):3\);app.render '" \
    recorded -p "$(worker_list)" -F 299
  no_stacks wrong
  kill "$pid" "$master"
}
one_sleeps() {
  status "$luapulse" dump -p "$(worker_list)"
  same "$status" 0 "status: $(cat err)"
  grep -q ngx.sleep out
}
# Coroutines that wait are there, too: the one that sleeps, with where it does.
test_dump_and_probe() {
  workers=1 start_nginx
  load /capture
  in_time one_sleeps || fail "nobody sleeps: $(cat out)"
  grep -A3 -E '^ *ngx.sleep' out | grep -qE "main chunk +content_by_lua\(nginx.conf:$(line_of content_by_lua_block 2)\):6" || { cat out >&2; fail "nobody sleeps"; }
  status "$luapulse" probe -p "$(worker_list)"
  same "$status" 0 "status of probe: $(cat err)"
  has out "LuaJIT 2.1"
  kill "$pid" "$master"
}
# The old workers end, the new ones are followed from their first sample on.
test_reload_while_it_is_recorded() {
  local old
  for engine in $ENGINES; do
    start_nginx
    load /hello
    wrk=$pid
    old=$(worker_pids)
    start "$luapulse" record --engine "$engine" -s -p "$master" -F 199 -o out.pb.gz -o out.folded
    recorder=$pid
    wait_for samples_threads 3 # the master and both workers
    for pid in $old; do until_busy 10; done
    kill -HUP "$master"
    wait_for workers_are_new "$old"
    for pid in $(worker_pids); do until_busy 20; done
    kill -INT "$recorder"
    until_printed "written to out.folded"
    for pid in $old $(worker_pids); do
      "$luapulse" report --where "pid=$pid" -n 0 out.pb.gz >report 2>err || fail "nothing of process $pid: $(cat err)"
      has report spin
    done
    kill "$wrk" "$master"
  done
}
workers_are_new() {
  local worker
  for worker in $(worker_pids); do [[ " $(echo $1) " != *" $worker "* ]] || return 1; done
  has_workers
}
# One is killed; the master starts another. The others go on, and of the dead one's samples none are lost.
test_a_worker_dies() {
  local victim rest
  for engine in $ENGINES; do
    workers=3 start_nginx
    load /hello
    wrk=$pid
    victim=$(worker_pids | head -n 1) rest=$(worker_pids | tail -n 1)
    start "$luapulse" record --engine "$engine" -p "$(worker_list)" -F 199 -o out.pb.gz -o out.folded
    recorder=$pid
    wait_for samples_threads 3
    kill -KILL "$victim"
    until_printed "process $victim (nginx) has ended"
    pid=$rest until_busy 10
    kill -INT "$recorder"
    until_printed "written to out.folded"
    "$luapulse" report --where "pid=$rest" -n 0 out.pb.gz >report || fail "nothing of process $rest"
    has report spin
    kill "$wrk" "$master"
  done
}
# One table of all, or of each by its label; memory stays bounded.
record_and_measure() {
  start "$luapulse" record --engine "$engine" -p "$(worker_list)" -o out.pb.gz -o out.folded "$@"
  while [ -e "/proc/$pid/status" ] && grep VmHWM "/proc/$pid/status" >hwm.new 2>/dev/null; do
    cp hwm.new hwm
    pause
  done
  until_printed "written to out.folded"
  cp "printed.$((${#started[@]} - 1))" err
}
expect_workers() {
  local worker seen=0
  for worker in $(worker_pids); do
    "$luapulse" report --where "pid=$worker" out.pb.gz >report 2>err || continue
    has report "luapulse"
    seen=$((seen + 1))
  done
  [ "$seen" -ge 48 ] || fail "samples of $seen workers only" # each has a timer; not each has a sample
  expect_phases
}
test_64_workers() {
  local most
  for engine in $ENGINES; do
    workers=64 start_nginx
    load /hello
    wrk=$pid
    until_seen expect_workers record_and_measure -F 299
    most=$(awk '{ print $2 }' hwm)
    [ "$most" -lt 102400 ] || fail "the recorder took $most KiB"
    kill "$wrk" "$master"
  done
}

attach_main "$@"
