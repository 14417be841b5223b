# haproxy: actions, services and tasks in Lua, each a coroutine that no Lua resumes; one VM for all threads, and one per thread.
source "$(dirname "$0")/hosts.sh"

script() { # FILE
  cat >"$1" <<'LUA'
local function spin(n)
  local x = 0
  for i = 1, n do x = x + i % 7 end
  return x
end
local function check(txn)
  local x = spin(3000)
  txn:set_var("txn.x", x)
end
local function hello(applet)
  local text = "sum " .. spin(6000)
  applet:set_status(200)
  applet:add_header("content-length", #text)
  applet:start_response()
  applet:send(text)
end
local function watch()
  while true do
    local x = spin(30000)
    core.msleep(5)
  end
end
core.register_action("check", { "http-req" }, check)
core.register_service("hello", "http", hello)
core.register_task(watch)
LUA
}
start_haproxy() { # lua-load | lua-load-per-thread
  free_port
  script proxy.lua
  cat >haproxy.cfg <<CONF
global
  nbthread 2
  $1 $PWD/proxy.lua
defaults
  mode http
  timeout client 5s
  timeout server 5s
  timeout connect 5s
frontend in
  bind 127.0.0.1:$port
  http-request lua.check
  http-request use-service lua.hello
CONF
  start haproxy -f haproxy.cfg -db
  haproxy=$pid
  wait_for listens
}
load() { start wrk -t 1 -c 8 -d 120 "http://127.0.0.1:$port/"; }
expect_stacks() {
  stacks '^check \([^;]*/proxy.lua:7\);spin \([^;]*/proxy.lua:3\)'
  stacks '^hello \([^;]*/proxy.lua:11\);spin \([^;]*/proxy.lua:3\)'
  stacks '^watch \([^;]*/proxy.lua:19\);spin \([^;]*/proxy.lua:3\)'
  on_top spin
}

test_actions_services_and_tasks() {
  for engine in $ENGINES ptrace; do
    start_haproxy lua-load
    load
    until_seen expect_stacks recorded -p "$haproxy" -F 299
    kill "$pid" "$haproxy"
  done
}
test_a_vm_per_thread() {
  for engine in $ENGINES; do
    start_haproxy lua-load-per-thread
    load
    until_seen expect_stacks recorded -p "$haproxy" -F 299
    kill "$pid" "$haproxy"
  done
}
# The task sleeps, and is seen to.
test_dump() {
  start_haproxy lua-load
  status "$luapulse" dump -p "$haproxy"
  same "$status" 0 "status: $(cat err)"
  grep -A2 'suspended$' out | grep -qE 'watch +[^ ]*/proxy.lua:20' || grep -qE 'watch +[^ ]*/proxy.lua:19' out || { cat out >&2; fail "the task is not there"; }
  kill "$haproxy"
}

attach_main "$@"
