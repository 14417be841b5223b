# redis-server: scripts (EVAL) and functions (FCALL), at work and idle. Its Lua is 5.1 with tables of its own, inside of the program.
source "$(dirname "$0")/hosts.sh"

ask() { redis-cli -h 127.0.0.1 -p "$port" "$@"; }
answers() { [ "$(ask PING)" = PONG ]; }
start_redis() {
  free_port
  start redis-server --port "$port" --bind 127.0.0.1 --save '' --appendonly no --dir "$PWD"
  redis=$pid
  wait_for answers
  cat >script.lua <<'LUA'
local function hash(n)
  local h = 0
  for i = 1, n do h = (h * 31 + i) % 65521 end
  return h
end
local sum = 0
for i = 1, tonumber(ARGV[1]) do
  redis.call("SET", "k" .. i % 100, hash(400))
  sum = sum + hash(400)
end
return cjson.encode({sum})
LUA
  cat >library.lua <<'LUA'
#!lua name=shop
local function spin(n)
  local x = 0
  for i = 1, n do x = x + i % 7 end
  return x
end
redis.register_function('price', function(keys, args)
  local x = spin(tonumber(args[1]))
  return x
end)
LUA
  ask -x FUNCTION LOAD <library.lua >loaded
  has loaded shop
}
# load: scripts and functions in turn, from a client that asks on and on
load() {
  sha=$(ask SCRIPT LOAD "$(cat script.lua)")
  start bash -c "while :; do echo EVALSHA $sha 0 1000; echo FCALL price 0 300000; done | redis-cli -h 127.0.0.1 -p $port >/dev/null"
}

expect_both() {
  stacks "^user_script:$sha \(user_script:9\);hash \(user_script:3\)"
  stacks "^user_script:$sha \(user_script:8\);redis.call \(\[C\]"
  stacks '^[^;]* \(user_function:8\);spin \(user_function:4\)'
}
test_scripts_and_functions() {
  for engine in $ENGINES ptrace; do
    start_redis
    load
    until_seen expect_both recorded -p "$redis" -F 299
    no_stacks 'user_script:[0-9]+ \('
    pid=$redis runs_on
    same "$(ask FCALL price 0 10)" 27 "what redis answers"
    kill -- "-${started[-1]}" "$redis"
  done
}
# No Lua runs, and what there is is found all the same.
test_an_idle_one() {
  start_redis
  status "$luapulse" dump -p "$redis"
  same "$status" 0 "status of dump: $(cat err)"
  has out 'Lua 5.1.5'
  has out 'layout "Lua 5.1.5 of Redis 7"'
  same "$(grep -c '^VM ' out)" 2 "VMs: one for scripts, one for functions"
  status "$luapulse" probe -p "$redis"
  same "$status" 0 "status of probe: $(cat err)"
  engine=bpf recorded -p "$redis" -d 0.5
  has err "no samples: it used no processor time"
  same "$(ask FCALL price 0 10)" 27 "what redis answers"
  kill "$redis"
}

attach_main "$@"
